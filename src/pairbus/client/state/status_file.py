"""The status of a running client as a file, for whoever looks at it from outside: `pairbus status`.

The file appears and changes by rename, so that a reader sees one whole picture. It is written now and then,
with every change at once, and removed when the client is closed. One that a killed process left behind is
told by its age, and by how soon the next one was due, as each says. The age is that of the file: clocks of
clients may differ, but all who look at a directory have its clock.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import re
import socket
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairbus.client.errors import ClientClosedError
from pairbus.client.observers.observer import Observer
from pairbus.client.status import to_json
from pairbus.clock import Clock, SystemClock
from pairbus.options import StateChange
from pairbus.plumbing.files import entries_in, make_directory, publish
from pairbus.plumbing.json_text import MAYBE_MOMENT, MAYBE_TEXT, NUMBER, Shape, fits, parse_json
from pairbus.plumbing.tasks import wait_at_most
from pairbus.threads import THREADS

if TYPE_CHECKING:
    from pairbus.backlog.provisioner import ProvisioningReport
    from pairbus.client.status import PairStatus

log = logging.getLogger(__name__)
#: How often the file is written while nothing changes.
INTERVAL = 2.0
# A change is written at once; what changes all the time is written this often at most. And a picture of very
# many entities takes its time, of which sends are left all but a small part.
_LEAST_PAUSE = 0.1
_PICTURE_SHARE = 20.0
# How many writings may be missed, on a busy machine, before a file is taken for one that was left behind.
_PATIENCE = 3
_CLOSE_WAIT = 1.0
# Files of version 0.1.0 do not say theirs, and are read the same.
_FORMAT = 1
# An escape of JSON: a pair of surrogates, which is a character; a lone one, which is none; any other.
_ESCAPE = re.compile(r"\\(?:ud[89ab]\w\w\\ud[c-f]\w\w|(ud[89a-f][0-9a-f]{2})|.)", re.IGNORECASE)
# Names that a line has room for.
_MOST_NAMES = 3
# What those who read a status rely on, of what version 0.1.0 wrote and all since.
_HEALTH: Shape = {
    "path": str,
    "state": str,
    "since": MAYBE_MOMENT,
    "reason": str,
    "last_failure": MAYBE_TEXT,
    "fails_over_at": MAYBE_MOMENT,
    "next_ping_at": MAYBE_MOMENT,
    "pings": int,
}
_COUNTS: Shape = {"*": {"*": int}}
_STATUS: Shape = {
    "primary": str,
    "secondary": str,
    "primary_name": str,
    "provisioning": str,
    "fault?": str,
    "entities": [{"health": _HEALTH, "without_headroom?": int, "arrived_late?": int, "sent?": _COUNTS}],
    "rotation": [{"usable": bool}],
    "syphon?": {"state": str, "moved": int, "waiting": int, "dead_lettered": int, "last_error": MAYBE_TEXT},
    "sessions?": {"staying": int},
    "spool?": {"messages": int, "bytes": int, "limit": int, "last_failure": MAYBE_TEXT},
    "records_lost?": int,
    "shipping?": {"to": str, "lag": NUMBER, "waiting": int, "last_error": MAYBE_TEXT},
    "warnings?": [str],
}


class StatusFile(Observer):
    """Keeps the status of one client in a file `<pid>.json` of a directory.

    It is an observer: changes of state and of the rotation are written at once. `start` and `close` are
    called on the client's event loop.
    """

    # Names in use by this process, so that two clients of one pair do not write over each other.
    _taken: set[Path] = set()  # noqa: RUF012

    def __init__(
        self,
        directory: Path,
        read: Callable[[], PairStatus],
        *,
        clock: Clock | None = None,
        interval: float = INTERVAL,
    ) -> None:
        """Does no I/O. `read` takes the picture, on the event loop."""
        self._directory = directory
        self._read = read
        self._clock = clock or SystemClock()
        self._interval = interval
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._writing: asyncio.Future[None] | None = None
        self._failed = False
        #: Where the status is, once it has been written.
        self.path: Path | None = None

    # -- observing

    def state_changed(self, change: StateChange) -> None:
        self._changed.set()

    def rotation_changed(self, usable: int, total: int) -> None:
        self._changed.set()

    def provisioned(self, report: ProvisioningReport) -> None:
        self._changed.set()

    # -- life

    def start(self) -> None:
        """Begin to write, on the running event loop."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._keep_writing())

    async def close(self) -> None:
        """Stop, and remove the file."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        try:
            await asyncio.wait({task})
            if self._writing is not None:  # it would put the file back
                await asyncio.wait({self._writing}, timeout=_CLOSE_WAIT)
        finally:
            self._remove()

    def _remove(self) -> None:
        if self.path is not None:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)
            self._taken.discard(self.path)

    async def _keep_writing(self) -> None:
        try:
            while True:
                self._changed.clear()
                began = time.thread_time()
                status = self._read()
                taken = time.thread_time() - began
                pause = max(min(_LEAST_PAUSE, self._interval), _PICTURE_SHARE * taken)
                picture = self._picture(status, pause)
                # On a thread: a disk that hangs must not hold up a send, nor the text of a large picture.
                self._writing = asyncio.get_running_loop().run_in_executor(THREADS, self._write, picture)
                await asyncio.shield(self._writing)
                await asyncio.sleep(pause)
                await wait_at_most(self._changed, self._interval)
        except ClientClosedError:  # just now: the next thing is that this is closed
            return
        except Exception:
            log.exception("cannot tell the status of this client")

    def _picture(self, status: PairStatus, pause: float) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "written_at": self._clock.now(),
            "interval": max(self._interval, pause),
            "status": status,
        }

    def _write(self, picture: dict[str, Any]) -> None:
        try:
            make_directory(self._directory, follows=True)
            if self.path is None:
                self.path = self._take_name()
            publish(self.path, to_json(picture), durable=False)  # the next one follows in seconds
        except OSError as error:
            if not self._failed:  # once, not every few seconds
                log.warning("cannot write the status of this client: %s", error)
            self._failed = True
        else:
            self._failed = False

    def _take_name(self) -> Path:
        """`<pid>.json`, unless another client of this process, or of another container, writes there."""
        for number in itertools.count():
            suffix = f"-{number}" if number else ""
            path = self._directory / f"{os.getpid()}{suffix}.json"
            found = _read_picture(path, time.time())
            is_foreign = found is not None and not found.is_stale and found.host != socket.gethostname()
            if path not in self._taken and not is_foreign:
                break
        self._taken.add(path)
        return path


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPicture:
    """What one client wrote of itself. `is_stale`: it has not for so long that it must be gone."""

    file: str
    pid: int
    host: str
    written_at: float
    is_stale: bool
    status: dict[str, Any]


def read_status_files(directory: Path, *, now: float) -> list[ClientPicture]:
    """The pictures in a directory: those of running clients first, the latest first."""
    pictures = [picture for path in entries_in(directory, "*.json") if (picture := _read_picture(path, now))]
    return sorted(pictures, key=lambda picture: (picture.is_stale, -picture.written_at, picture.pid))


def unreadable_status_files(directory: Path) -> list[str]:
    """Names of status files that are there and cannot be read: damaged, no files, or of a newer version."""
    return [
        _show_name(path)
        for path in entries_in(directory, "*.json")
        if not _read_picture(path, 0.0) and path.exists()
    ]


def describe_unreadable(names: Sequence[str]) -> str:
    """Which status files cannot be read, in a sentence."""
    shown = ", ".join(names[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else "")
    return f"{len(names)} status {'file' if len(names) == 1 else 'files'} cannot be read: {shown}"


def _aged(status: dict[str, Any], seconds: float) -> dict[str, Any]:
    """A status as it is now: what was not shipped then, by one that is gone, has waited since."""
    if shipping := status.get("shipping"):
        status["shipping"] = {**shipping, "lag": shipping["lag"] + max(0.0, seconds)}
    return status


def _as_text(escape: re.Match[str]) -> str:
    return f"\\\\{escape[1]}" if escape[1] else escape[0]


def _show_name(path: Path) -> str:
    return path.name.encode("utf-8", "backslashreplace").decode()


def _read_picture(path: Path, now: float) -> ClientPicture | None:
    try:
        seen = path.stat()
        if not stat.S_ISREG(seen.st_mode):  # a pipe would be waited for
            return None
        # What an application calls its entities may be no text: its escapes are shown, for pages and
        # terminals take nothing else.
        found = parse_json(_ESCAPE.sub(_as_text, path.read_text(encoding="utf-8")))
        if int(found.get("format", _FORMAT)) > _FORMAT:
            log.error("%s was written by a newer version of Pairbus, which alone can read it", path)
            return None
        if not fits(found["status"], _STATUS):
            return None
        written_at = seen.st_mtime
        age_limit = _PATIENCE * max(float(found["interval"]), 1.0)
        return ClientPicture(
            file=_show_name(path),
            pid=int(found["pid"]),
            host=str(found["host"]),
            written_at=written_at,
            is_stale=now - written_at > age_limit,
            status=_aged(dict(found["status"]), now - written_at),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        # Removed this moment by its client, or none of ours.
        return None
