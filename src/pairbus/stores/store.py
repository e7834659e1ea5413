"""A store of records: named objects that are put once and then only read.

1. An object is durable when `put` returns, and there as a whole or not at all.
2. Putting the same content under the same name again changes nothing, so an unanswered put may be repeated.
3. Names are flat. Their first word, up to a dash, is their *kind*, by which they are listed.
4. What is named `.zst` is compressed on its way, and read as it was put; its size is that of what is kept.
5. Nothing is appended, renamed or locked. What is gone raises FileNotFoundError when it is read; a place that
   cannot be reached raises an OSError.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Protocol

from pairbus.plumbing.files import entries_in, make_directory, publish, sync_directory

from .errors import CallHungError
from .packing import pack, unpack
from .places import RecordPlace, StoreUri


class RecordStore(Protocol):
    """A place with objects in it."""

    @property
    def place(self) -> RecordPlace:
        """Where it is."""

    def put(self, name: str, data: bytes) -> None:
        """Keep an object; it is durable when this returns."""

    def is_being_put(self, name: str) -> bool:
        """Whether an abandoned put of this process has not ended."""

    def read(self, name: str) -> bytes:
        """The content of an object."""

    def list(self, kind: str) -> Mapping[str, int]:
        """The objects of a kind with their sizes, by name and in the order of names."""

    def delete(self, name: str) -> None:
        """Delete it; it may be gone already."""


class DirectoryStore:
    """Objects are the files of a directory; drafts, which begin with a dot, are not listed."""

    def __init__(self, directory: Path) -> None:
        """Does no I/O; the directory is made with the first object."""
        self.place = directory

    def put(self, name: str, data: bytes) -> None:
        make_directory(self.place, follows=True)
        publish(self.place / name, pack(name, data))

    def is_being_put(self, name: str) -> bool:
        return False

    def read(self, name: str) -> bytes:
        return unpack(name, (self.place / name).read_bytes())

    def list(self, kind: str) -> Mapping[str, int]:
        found = {}
        for path in entries_in(self.place, f"{kind}-*"):
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
    """Replace an object. CallHungError while an abandoned put is under way, which could replace this one."""
    if store.is_being_put(name):
        raise CallHungError(f"cannot put {name} in {store.place}: an earlier put has not ended")
    store.put(name, data)


@cache
def open_store(place: RecordPlace) -> RecordStore:
    """The store at a place, one for each process. Does no I/O."""
    if isinstance(place, StoreUri):
        from .object_store import ObjectStore  # late: pyarrow is slow to import, and optional

        return ObjectStore(place)
    return DirectoryStore(place)
