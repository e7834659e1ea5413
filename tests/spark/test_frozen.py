"""A worker, an executor and the driver that stand still for longer than their locks, and a full disk below
the checkpoint: nothing that was acknowledged is lost, and the verdict says so.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from .bus import Bus, until
from .processes import executors_below, kill_tree, pumps_below
from .test_command import PAIR, call, java_below, receipts_of, start
from .test_kills import SHARDS, cluster, moves
from .test_verdict import record
from .traffic import assert_whole, letters

__all__ = ["cluster"]

pytestmark = [pytest.mark.timeout(1200), pytest.mark.usefixtures("java")]

MESSAGES = 20_000
RATE = ["--max-rate", "150"]
LOCK = 6.0
# Longer than the locks of messages, and than that of the lease.
STANDS_STILL = 20.0


@contextmanager
def frozen(pids: Sequence[int]) -> Iterator[None]:
    """These processes stand still."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def test_a_worker_an_executor_and_the_driver_stand_still_and_go_on(
    full_bus: Bus, tmp_path: Path, cluster: list[str]
) -> None:
    bus, log = full_bus, tmp_path / "log"
    bus.shorten_locks(LOCK)
    sent = letters(MESSAGES)
    bus.put(sent)
    record(tmp_path / "records", bus, sent)
    state = ["--state", str(tmp_path)]
    syphon = start("syphon", "run", *PAIR, *state, "--shards", str(SHARDS), *RATE, *cluster, log=log)
    victims: dict[str, Callable[[], list[int]]] = {
        "worker": lambda: pumps_below(syphon.pid)[:1],
        "executor": lambda: executors_below(syphon.pid)[:1],
        "driver": lambda: [syphon.pid, java_below(syphon.pid)],
    }
    try:
        for victim, find in victims.items():
            moves(bus, syphon, log)
            found = find()
            assert found, victim
            with frozen(found):
                time.sleep(STANDS_STILL)
            moves(bus, syphon, log)
        until(lambda: bus.left() == 0 or syphon.poll() is not None, within=400)
        assert call("syphon", "stop", *PAIR, *state, "--json")[0] == 0
        assert syphon.wait(120) == 0, log.read_text()
    finally:
        kill_tree(syphon)
    assert_whole(bus, sent)
    assert receipts_of(tmp_path / "records") == {letter.id for letter in sent}
    assert_verdict(state, len(sent))


def assert_verdict(state: list[str], delivered: int) -> None:
    code, told, errors = call("verify", *PAIR, *state, "--json")
    assert (code, told["redirected"], told["delivered"]) == (0, delivered, delivered), (told, errors)


def test_a_full_disk_below_the_checkpoint_ends_the_run_and_loses_nothing(
    full_bus: Bus, tmp_path: Path, small_disk: Callable[[Path], None]
) -> None:
    bus, log, state = full_bus, tmp_path / "log", tmp_path / "state"
    small_disk(state)
    records = tmp_path / "records"
    sent = letters(4000)
    bus.put(sent)
    record(records, bus, sent)
    place = ["--state", str(state), "--records", str(records)]
    with filled(start("syphon", "run", *PAIR, *place, *RATE, log=log), bus, log, state) as syphon:
        code = syphon.wait(300)
    assert code == 3, log.read_text()
    told = log.read_text()
    assert "No space left on device" in told, told
    assert "make room and run it again" in told, told
    assert "Traceback" not in told, told
    assert call("syphon", "run", "--once", *PAIR, *place, "--json")[0] == 0
    assert_whole(bus, sent)
    assert receipts_of(records) == {letter.id for letter in sent}
    assert_verdict(place, len(sent))


@contextmanager
def filled(
    syphon: subprocess.Popen[bytes], bus: Bus, log: Path, disk: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """The disk has no room from the moment on when messages move."""
    filler = disk / "filler"
    try:
        moves(bus, syphon, log)
        with filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 4096)
            except OSError:
                pass
        yield syphon
    finally:
        kill_tree(syphon)
        filler.unlink(missing_ok=True)
