"""Documents of a leash: small files of JSON in a directory, or objects in a store, that replace each other.

In a store a document is seen empty while it is replaced; who reads it then has nothing new.
"""

import json
import os
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from pairbus.plumbing.files import make_directory, publish, read_file
from pairbus.plumbing.json_text import parse_json
from pairbus.stores.places import RecordPlace, StoreUri
from pairbus.stores.store import RecordStore, open_store, put_anew

# A directory that was not touched for so long is forgotten, however much clocks differ.
_FORGOTTEN = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeashPace:
    """How often both ends write and look, and after how long without a change the other one is dead."""

    beat: float
    quickest_look: float
    slowest_look: float
    stale: float
    #: Whether news are worth a write of their own.
    is_quick: bool


#: Shared directories may show a change seconds late.
DIRECTORY_PACE = LeashPace(beat=1.0, quickest_look=0.1, slowest_look=0.5, stale=15.0, is_quick=True)
#: Each read and write of a store is billed.
STORE_PACE = LeashPace(beat=10.0, quickest_look=1.0, slowest_look=5.0, stale=60.0, is_quick=False)


def pace_of(place: RecordPlace) -> LeashPace:
    """How fast a leash at this place goes."""
    return STORE_PACE if isinstance(place, StoreUri) else DIRECTORY_PACE


def write_document(place: RecordPlace, document: Mapping[str, Any]) -> None:
    """Put a document there, whole. Not durably: the next heartbeat replaces it."""
    text = json.dumps(document)
    if isinstance(place, StoreUri):
        store, name = _find(place)
        put_anew(store, name, text.encode())
    else:
        publish(place, text, durable=False)


def read_document(place: RecordPlace) -> dict[str, Any] | None:
    """What a document says; None if it is not there, or cannot be read now."""
    try:
        if isinstance(place, StoreUri):
            store, name = _find(place)
            found = parse_json(store.read(name))
        else:
            found = parse_json(read_file(place))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def list_documents(place: RecordPlace, begin: str, end: str) -> list[str]:
    """The names of documents that begin and end like this; they begin with a word and a dash."""
    if isinstance(place, StoreUri):
        names = open_store(place).list(begin.partition("-")[0])
        return [name for name in names if name.startswith(begin) and name.endswith(end)]
    return sorted(path.name for path in place.glob(f"{begin}*{end}"))


def remove_document(place: RecordPlace) -> bool:
    """Delete it; whether it was there."""
    if isinstance(place, StoreUri):
        store, name = _find(place)
        try:
            store.read(name)
        except FileNotFoundError:
            return False
        store.delete(name)
        return True
    try:
        place.unlink()
    except FileNotFoundError:
        return False
    return True


def prepare_leash(place: RecordPlace, prefix: str) -> None:
    """Make the directory of a leash, and remove those that killed drivers have left beside it."""
    if isinstance(place, StoreUri):
        return
    make_directory(place.parent, follows=True)
    for left in place.parent.glob(f"{prefix}*"):
        with suppress(OSError):
            if left.stat().st_mtime < time.time() - _FORGOTTEN:
                shutil.rmtree(left)
    make_directory(place, follows=True)


def show_use(place: RecordPlace) -> None:
    """Touch the directory, so that no later driver removes it as forgotten."""
    if not isinstance(place, StoreUri):
        os.utime(place)


def clear_leash(place: RecordPlace, names: list[str]) -> None:
    """Remove the leash; in a store, the objects of these names."""
    if isinstance(place, StoreUri):
        for name in names:
            with suppress(OSError):
                remove_document(place / name)
    else:
        shutil.rmtree(place, ignore_errors=True)


def is_marked(place: RecordPlace) -> bool:
    """Whether the directory that a driver makes, and removes, is there; in a store this cannot be seen."""
    return isinstance(place, StoreUri) or place.is_dir()


def _find(place: StoreUri) -> tuple[RecordStore, str]:
    folder, _, name = place.path.rpartition("/")
    return open_store(replace(place, path=folder)), name
