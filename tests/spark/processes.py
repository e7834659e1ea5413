"""The processes below one that a test has started, found by their parents and never by name alone."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

__all__ = [
    "command_of",
    "cpu_seconds",
    "executors_below",
    "kill_tree",
    "parent_of",
    "processes_below",
    "pumps_below",
]

_TICKS = os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name; the first is the state."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:  # it has ended
        return ["X", "0", *["0"] * 20]


def parent_of(pid: int) -> int:
    return int(_stat(pid)[1])


def cpu_seconds(pid: int) -> float:
    """What a process has used so far."""
    user, system = _stat(pid)[11:13]
    return (int(user) + int(system)) / _TICKS


def processes_below(root: int) -> Iterator[int]:
    """All that it has started, and what those have."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _stat(int(entry.name))[0] not in "XZ":
            children.setdefault(parent_of(int(entry.name)), []).append(int(entry.name))
    found = list(children.get(root, ()))
    while found:
        pid = found.pop()
        yield pid
        found += children.get(pid, ())


def _writes_receipts(pid: int) -> bool:
    try:
        files = [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return False
    return any(Path(file).name.startswith(".receipts-") for file in files)


def pumps_below(root: int) -> list[int]:
    """The Python workers that pump: they are the ones that write receipts."""
    return [pid for pid in processes_below(root) if _writes_receipts(pid)]


def executors_below(root: int) -> list[int]:
    """The Java processes that are executors of Spark."""
    return [pid for pid in processes_below(root) if "CoarseGrainedExecutorBackend" in command_of(pid)]


def command_of(pid: int) -> str:
    """Its command line."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def kill_tree(root: subprocess.Popen[bytes]) -> None:
    """Kill a process and all that it has started, as when a machine goes down."""
    if root.poll() is None:  # else its number may be another's
        for pid in [root.pid, *processes_below(root.pid)]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        root.wait()
