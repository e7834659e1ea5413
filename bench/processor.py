"""The processor time that other processes have used, as Linux tells it."""

import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["ended_seconds", "members", "processor_seconds"]

_PROC = Path("/proc")
_CHILDREN_FIELDS = slice(13, 15)
_SESSION_FIELD = 3  # of what follows the name in /proc/PID/stat: state, parent, group, session, ...


def processor_seconds(session: int) -> float:
    """Seconds on a processor of all threads of all processes in a session that are alive.

    A process that was started with `start_new_session` is a session with all that it starts. The
    scheduler's own account is exact to the nanosecond; the one in `stat` counts ticks of 10 ms.
    """
    return sum(
        _thread_seconds(thread) for process in members(session) for thread in _threads(_PROC / f"{process}")
    )


def ended_seconds(session: int) -> float:
    """Seconds on a processor of processes of a session that have ended, and were waited for by one that is
    alive; to a hundredth.
    """
    ticks = 0
    for process in members(session):
        try:
            fields = (_PROC / f"{process}" / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        ticks += sum(map(int, fields[_CHILDREN_FIELDS]))
    return ticks / os.sysconf("SC_CLK_TCK")


def members(session: int) -> Iterator[int]:
    """The processes of a session that are alive."""
    for directory in _PROC.iterdir():
        if directory.name.isdigit():
            try:
                fields = (directory / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended meanwhile
            if int(fields[_SESSION_FIELD]) == session:
                yield int(directory.name)


def _threads(process: Path) -> list[Path]:
    try:
        return [process / "task" / name for name in os.listdir(process / "task")]
    except FileNotFoundError:
        return []


def _thread_seconds(thread: Path) -> float:
    try:
        return int((thread / "schedstat").read_text().split()[0]) / 1e9
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
