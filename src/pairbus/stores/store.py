"""A store of records: whole objects with names, put once and then read by whoever knows the place.

1. An object is durable when `put` returns, and there as a whole or not at all.
2. To put the same content under the same name again changes nothing: so may whoever has heard no answer.
3. Names are flat. Their first word, up to a dash, is their *kind*, by which they are listed.
4. Nothing is appended, renamed or locked. What is gone raises FileNotFoundError when it is read; a place that
   cannot be reached raises an OSError.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Protocol

from pairbus.plumbing.files import make_directory, publish, sync_directory

from .errors import CallHungError
from .places import RecordPlace, StoreUri


class RecordStore(Protocol):
    """A place with objects in it."""

    @property
    def place(self) -> RecordPlace:
        """Where it is."""
        ...

    def put(self, name: str, data: bytes) -> None:
        """Keep an object; it is durable when this returns."""
        ...

    def is_being_put(self, name: str) -> bool:
        """Whether a put of this process has not ended, though it was left behind as unanswered."""
        ...

    def read(self, name: str) -> bytes:
        """All that is in an object."""
        ...

    def list(self, kind: str) -> Mapping[str, int]:
        """The objects of a kind with their sizes, by name and in the order of names."""
        ...

    def delete(self, name: str) -> None:
        """Have it no more; it may be gone already."""
        ...


class DirectoryStore:
    """Objects are the files of a directory; those that begin with a dot and a draft's name are not listed."""

    def __init__(self, directory: Path) -> None:
        """Does no I/O; the directory is made with the first object."""
        self.place = directory

    def put(self, name: str, data: bytes) -> None:
        make_directory(self.place, follows=True)
        publish(self.place / name, data)

    def is_being_put(self, name: str) -> bool:
        return False

    def read(self, name: str) -> bytes:
        return (self.place / name).read_bytes()

    def list(self, kind: str) -> Mapping[str, int]:
        found = {}
        for path in sorted(self.place.glob(f"{kind}-*")):
            try:
                if path.is_file():
                    found[path.name] = path.stat().st_size
            except FileNotFoundError:  # it has just been deleted
                continue
        return found

    def delete(self, name: str) -> None:
        try:
            (self.place / name).unlink()
        except FileNotFoundError:
            return
        sync_directory(self.place)


def put_anew(store: RecordStore, name: str, data: bytes) -> None:
    """Put under a name that was put before. A put that was left behind without an answer is not overtaken: it
    would take the place of this one some time.
    """
    if store.is_being_put(name):
        raise CallHungError(f"cannot put {name} in {store.place}: an earlier put has not ended")
    store.put(name, data)


@cache
def open_store(place: RecordPlace) -> RecordStore:
    """The store at a place, one for each process. Does no I/O."""
    if isinstance(place, StoreUri):
        from .object_store import ObjectStore  # what it needs is dear to import, and not everywhere

        return ObjectStore(place)
    return DirectoryStore(place)
