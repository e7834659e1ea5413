"""How often a broker makes the disk keep its word: calls of fsync and fdatasync, seen by strace.

Where strace is not installed, or may not look, the commits of the store are counted instead. Each of them is
one sync; those of checkpoints, one or two for 32 MB, are then left out.
"""

import contextlib
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.brokers import PATIENCE, Pairbus

__all__ = ["Syncs", "count_syncs"]

_CALL = re.compile(r"\b(?:fsync|fdatasync)\(")


@dataclass(frozen=True, slots=True)
class Syncs:
    """Syncs while something was done, and how they were counted."""

    count: int
    commits: int
    source: str


def count_syncs(broker: Pairbus, act: Callable[[], object], scratch: Path) -> Syncs:
    """Do something and count the syncs meanwhile. It takes longer than usual: nothing is timed here."""
    commits = broker.commits()
    calls = _trace(broker.pid, act, scratch / "strace.txt")
    commits = broker.commits() - commits
    if calls is None:
        return Syncs(commits, commits, "commits of the store; strace is not available")
    return Syncs(calls, commits, "system calls, by strace")


def _trace(pid: int, act: Callable[[], object], output: Path) -> int | None:
    strace = shutil.which("strace")
    if strace is None:
        act()
        return None
    command = [strace, "-f", "-e", "trace=fsync,fdatasync", "-o", str(output), "-p", str(pid)]
    tracer = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        has_attached = _await_attached(pid, tracer)
        act()
    finally:
        with contextlib.suppress(ProcessLookupError):
            tracer.send_signal(signal.SIGINT)
        tracer.communicate(timeout=PATIENCE)
    return len(_CALL.findall(output.read_text())) if has_attached else None


def _await_attached(pid: int, tracer: subprocess.Popen[bytes]) -> bool:
    """Whether the tracer looks; it may not be allowed to."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and tracer.poll() is None:
        status = Path(f"/proc/{pid}/status").read_text()
        if f"TracerPid:\t{tracer.pid}\n" in status:
            return True
        time.sleep(0.02)
    return False
