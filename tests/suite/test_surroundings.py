"""What a test leaves behind is found, and does the least harm that is possible to the tests after it."""

import gc
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.surroundings import SETTINGS, Surroundings
from tests.waiting import wait_until

CHANGES: dict[str, Callable[[Path], object]] = {
    "environment variables": lambda _: os.environ.update(PAIRBUS_LEFT="a secret"),
    "the working directory": os.chdir,
    "handlers of signals": lambda _: signal.signal(signal.SIGTERM, signal.SIG_IGN),
    "what logging is disabled for": lambda _: logging.disable(logging.ERROR),
    "whether garbage is collected": lambda _: gc.disable(),
    "the usual time-out of sockets": lambda _: socket.setdefaulttimeout(7.0),
    "the path of modules": lambda path: sys.path.append(str(path)),
    "the limit of recursion": lambda _: sys.setrecursionlimit(sys.getrecursionlimit() + 1),
}


def test_a_thread_that_goes_on_is_told() -> None:
    before, ended = Surroundings(), threading.Event()
    thread = threading.Thread(target=ended.wait, name="left", daemon=True)
    thread.start()
    assert before.restore(patience=0.01) == ["thread left"]
    ended.set()
    assert before.restore() == []


def test_a_process_that_goes_on_is_told_and_ended() -> None:
    before = Surroundings()
    with subprocess.Popen(["sleep", "1000"]) as process:
        assert before.restore(patience=0.01) == [f"process {process.pid}: sleep 1000"]
        process.wait()
    assert process.returncode == -signal.SIGKILL
    assert before.restore() == []


def test_a_process_that_nobody_has_waited_for_is_told() -> None:
    before = Surroundings()
    with subprocess.Popen(["true"]) as process:
        wait_until(lambda: ") Z " in Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii"))
        assert before.restore(patience=0.01) == [f"process {process.pid}: ended"]
    assert before.restore() == []


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_that_was_changed_is_told_and_set_back(name: str, tmp_path: Path) -> None:
    before, usual = Surroundings(), SETTINGS[name][0]()
    CHANGES[name](tmp_path)
    (told,) = before.restore()
    assert told.startswith(f"{name}: ")
    assert "secret" not in told
    assert SETTINGS[name][0]() == usual
    assert before.restore() == []


def test_a_variable_that_was_removed_is_there_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAIRBUS_FOUND", "there")
    before = Surroundings()
    del os.environ["PAIRBUS_FOUND"]
    assert before.restore() == ["environment variables: PAIRBUS_FOUND"]
    assert os.environ["PAIRBUS_FOUND"] == "there"
