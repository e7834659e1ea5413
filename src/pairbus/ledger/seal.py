"""Sealed files: an object of JSON that carries the hash of the rest of itself, so that an edit shows.

Everything counts, spaces too: what is not written in the one way to write an object is no sealed file.

Rows that are in no chain are sealed as well, those of each write by a line behind them: how many bytes they
are, and their hash. It begins like a link, and who leaves out links leaves it out. Rows without one are taken
as they are: their writer died at that moment, or version 0.1.0 has written them.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pairbus.errors import ConfigurationError
from pairbus.plumbing.json_text import parse_json

#: The version of all files that are sealed or linked.
VERSION = 1
_SEAL = ',"seal":"'
_TAIL = len(_SEAL) + 64 + len('"}')
_OF_ROWS = b'\n{"chain":{"bytes":'


class Sealed(NamedTuple):
    """The bytes of a sealed file, and its seal."""

    data: bytes
    seal: str


def seal(content: Mapping[str, Any]) -> Sealed:
    """Seal an object."""
    text = json.dumps({"version": VERSION, **content}, separators=(",", ":"))
    own = seal_of(text.encode())
    return Sealed(f'{text[:-1]}{_SEAL}{own}"}}'.encode(), own)


def seal_of(first: bytes, *others: bytes | memoryview) -> str:
    """The hash that seals go by, of these one after the other."""
    own = hashlib.sha256(first)
    for part in others:
        own.update(part)
    return own.hexdigest()


def seal_of_file(path: Path) -> str:
    """The same for all that is in a file, however large."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def open_sealed(data: bytes, place: str) -> dict[str, Any]:
    """What a sealed file says, its `seal` included; ValueError if damaged, ConfigurationError if too new."""
    found = parse_json(data)
    if not isinstance(found, dict):
        raise ValueError(f"{place} is no object")
    check_version(found.pop("version", None), place)
    if seal_of(data[:-_TAIL] + b"}") != found.get("seal"):
        raise ValueError(f"{place} was edited")
    return found


def seal_rows(rows: bytes) -> bytes:
    """The line that follows these rows."""
    return b"%s%s\n" % (_OF_ROWS[1:], _tell_rows(rows))


def _tell_rows(rows: bytes) -> bytes:
    return b'%d,"seal":"%s"}}' % (len(rows), seal_of(rows).encode())


def open_rows(data: bytes) -> tuple[bytes, bytes]:
    """The lines of a file, without its seals: what is as it was written, or has none; and what is not."""
    first, *sealed = (b"\n" + data).split(_OF_ROWS)
    rows = first[1:]
    whole: list[bytes] = []
    edited: list[bytes] = []
    for part in sealed:
        told, _, following = part.partition(b"\n")
        rows += b"\n"
        size = told.partition(b",")[0]
        is_whole = len(size) < _TAIL and size.isdigit() and told == _tell_rows(rows[-int(size) :])
        if is_whole:
            whole.append(rows)
        else:  # where all of them are gone, the seal alone tells of it
            edited.append(rows if rows.strip() else b"%s%s\n" % (_OF_ROWS[1:], told))
        rows = following
    return b"".join((*whole, rows)), b"".join(edited)


def check_version(version: object, place: str) -> None:
    """ConfigurationError if it is newer than this program, ValueError if it is not a version."""
    if not isinstance(version, int) or version < VERSION:
        raise ValueError(f"{place} has no version")
    if version > VERSION:
        newer = f"{place} was written by a newer version of pairbus ({version})"
        raise ConfigurationError(f"{newer}; use that one")
