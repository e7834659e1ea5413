"""The command line as a user meets it: a process with arguments, two streams and an exit code."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from pairbus.cli.main import main
from tests.processes import killed_at_end
from tests.waiting import wait_until

__all__ = ["COMMAND", "PATIENCE", "call", "run", "running_broker"]

COMMAND = [sys.executable, "-m", "pairbus.cli"]
# Generous, for a loaded machine; a start takes a fraction of a second.
PATIENCE = 90.0


def run(*arguments: str, variables: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PAIRBUS_")}
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**environment, **(variables or {})},
    )


def call(*arguments: str, variables: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The same as `run` without the price of a process, for commands that neither log nor catch signals."""
    # As strict as those of a process: what is no text in UTF-8 cannot be printed.
    out, err = io.BytesIO(), io.BytesIO()
    printed = io.TextIOWrapper(out, encoding="utf-8", write_through=True)
    told = io.TextIOWrapper(err, encoding="utf-8", errors="backslashreplace", write_through=True)
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed), redirect_stderr(told):
        patch.delenv("PAIRBUS_READY_FILE", raising=False)
        for name, value in (variables or {}).items():
            patch.setenv(name, value)
        code = main(list(arguments))
    return subprocess.CompletedProcess(
        list(arguments), code, out.getvalue().decode(), err.getvalue().decode()
    )


@contextmanager
def running_broker(
    ready_file: Path, *arguments: str
) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """A broker process that has written its ready file, and the description found there."""
    process = subprocess.Popen(
        [*COMMAND, "broker", "--ready-file", str(ready_file), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with killed_at_end(process):
        wait_until(lambda: ready_file.exists() or process.poll() is not None, within=PATIENCE)
        assert ready_file.exists(), f"the broker did not start: {process.communicate()}"
        yield process, json.loads(ready_file.read_text(encoding="utf-8"))
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)
