"""The status of a running syphon, left beside its receipts for `pairbus syphon status`.

Each run has a file, replaced every second and removed at the end. A file that has not changed for a while
belongs to a killed syphon, and is shown with its age. In a store each status is a new object with the time
in its name, put every half minute by a thread, which then deletes the one before.
"""

import json
import logging
import re
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pairbus.plumbing.files import publish, read_file
from pairbus.plumbing.json_text import parse_json
from pairbus.stores.places import RecordPlace, StoreUri
from pairbus.stores.store import open_store

log = logging.getLogger(__name__)
_NAME = ".syphon-{run}.json"
_KIND = "syphon"
_OBJECT = re.compile(rf"^{_KIND}-([0-9a-f]+)\.(\d{{13,}})\.json$")
#: Each object is paid for.
_EVERY = 30.0
# A syphon writes every few seconds; one that has not for so long is dead.
_DEAD_AFTER = 300.0
# The weight of earlier measurements.
_INERTIA = 0.7


class Speed:
    """Messages a second, of late. Pure."""

    def __init__(self) -> None:
        self.rate = 0.0
        self._seen: tuple[float, int] | None = None

    def note(self, handled: int, now: float) -> None:
        """Note how many messages were handled so far."""
        if self._seen is not None and now > self._seen[0]:
            measured = (handled - self._seen[1]) / (now - self._seen[0])
            self.rate = measured if self.rate == 0 else _INERTIA * self.rate + (1 - _INERTIA) * measured
        self._seen = now, handled


def write_status(records: Path, run: str, told: Mapping[str, Any]) -> None:
    """Replace the status. A directory that cannot be written does not stop the syphon."""
    try:
        publish(records / _NAME.format(run=run), json.dumps(told), durable=False)
    except OSError as error:
        log.debug("the status of the syphon cannot be written to %s: %s", records, error)


def remove_status(records: Path, run: str) -> None:
    """Remove the status of this run, and those of runs that died long ago."""
    try:
        (records / _NAME.format(run=run)).unlink(missing_ok=True)
        for path in records.glob(_NAME.format(run="*")):
            if time.time() - path.stat().st_mtime > _DEAD_AFTER:
                path.unlink(missing_ok=True)
    except OSError as error:
        log.debug("the status of the syphon cannot be removed from %s: %s", records, error)


class StoreStatus:
    """Puts the status of one run into a store, on a thread, so that the syphon never waits for it."""

    def __init__(self, place: StoreUri, run: str) -> None:
        self._store = open_store(place)
        self._run = run
        self._name: str | None = None
        self._told_at: float | None = None
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Put a first object, to find out early whether the store can be written; OSError if not."""
        self._store.list(_KIND)
        self._told_at = None
        self._name = self._new_name()
        self._store.put(self._name, b"{}")

    def tell(self, told: Mapping[str, Any], *, now: float) -> None:
        """Put a status, if one is due and the last put has ended."""
        is_due = self._told_at is None or now - self._told_at >= _EVERY
        if is_due and (self._thread is None or not self._thread.is_alive()):
            self._told_at = now
            self._thread = threading.Thread(
                target=self._put, args=(dict(told),), name="pairbus-status", daemon=True
            )
            self._thread.start()

    def end(self) -> None:
        """Remove the status of this run, and those of runs that died long ago."""
        if self._thread is not None:
            self._thread.join(_EVERY)
        try:
            for name in self._store.list(_KIND):
                found = _OBJECT.match(name)
                if found and (found[1] == self._run or time.time() - int(found[2]) / 1000 > _DEAD_AFTER):
                    self._store.delete(name)
        except OSError as error:
            log.debug("the status of the syphon cannot be removed from %s: %s", self._store.place, error)

    def _new_name(self) -> str:
        return f"{_KIND}-{self._run}.{int(time.time() * 1000):013d}.json"

    def _put(self, told: Mapping[str, Any]) -> None:
        name = self._new_name()
        try:
            self._store.put(name, json.dumps(told).encode())
            if self._name is not None:
                self._store.delete(self._name)
            self._name = name
        except OSError as error:
            log.debug("the status of the syphon cannot be put in %s: %s", self._store.place, error)


def read_statuses(records: RecordPlace) -> list[dict[str, Any]]:
    """The statuses of syphons, the latest first; OSError if the store cannot be read."""
    found = []
    for text in _read_texts(records):
        try:
            told = parse_json(text)
        except ValueError:
            continue
        if isinstance(told, dict) and isinstance(told.get("at"), int | float):
            found.append(told)
    return sorted(found, key=lambda one: -float(one["at"]))


def _read_texts(records: RecordPlace) -> Iterator[bytes]:
    if isinstance(records, StoreUri):
        store = open_store(records)
        for name in [name for name in store.list(_KIND) if _OBJECT.match(name)]:
            try:
                yield store.read(name)
            except FileNotFoundError:  # the next one has been put
                continue
        return
    for path in records.glob(_NAME.format(run="*")):
        try:
            yield read_file(path)
        except OSError:  # it has just been replaced or removed
            continue
