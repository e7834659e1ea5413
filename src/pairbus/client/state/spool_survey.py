"""What lies in a spool, for whoever looks at it from outside. It only reads: clients may be at work."""

import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pairbus.client.sending.message import message_id_of, session_of

from .packing import UnreadableMessages, unpack
from .spool_records import Piece, pieces_left
from .spool_store import is_held, read_place, spool_files, store_directories

log = logging.getLogger(__name__)
# Longer than a write takes, also to a busy disk.
_FRESH = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingMessage:
    """A message that waits in a spool for a side to take it."""

    path: str
    message_id: str
    session_id: str | None
    file: Path

    def described(self) -> dict[str, Any]:
        """What is told of it as JSON."""
        return {**asdict(self), "file": str(self.file)}


def list_waiting(spool: Path) -> list[WaitingMessage]:
    """The messages that wait in a spool, those of processes that are gone and of those that run."""
    return [message for file in _files_of(spool) for message in _waiting_in(file)]


def list_unreadable(spool: Path, *, now: float) -> list[tuple[Path, int]]:
    """Files of a spool that hold what cannot be read, with the number of such bytes: whoever sends from them
    next puts these aside. What ends a file that was written to a moment ago may be on its way there.
    """
    sizes = ((file, _unreadable_in(file, now)) for file in _files_of(spool))
    return [(file, size) for file, size in sizes if size]


def list_left(spool: Path) -> list[WaitingMessage]:
    """Those of processes that are gone alone: nobody sends them before the next client begins."""
    return [message for file in _files_left(spool) for message in _waiting_in(file)]


def count_bytes_left(spool: Path) -> int:
    """How large the files of these are: no file is read, and some of it may have been sent, or be blank."""
    return sum(map(_size_of, _files_left(spool)))


def _files_left(spool: Path) -> list[Path]:
    return [file for store in store_directories(spool) if not is_held(store) for file in spool_files(store)]


def _size_of(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:  # all of it has been sent, a moment ago
        return 0


def _files_of(spool: Path) -> list[Path]:
    return [file for store in store_directories(spool) for file in spool_files(store)]


def _unreadable_in(file: Path, now: float) -> int:
    # Of what is written while it is read, the end may be seen and not what is before it; but once.
    found = _unreadable_parts(file, now)
    return sum(end - begin for begin, end in found and found & _unreadable_parts(file, now))


def _unreadable_parts(file: Path, now: float) -> set[tuple[int, int]]:
    try:
        data, is_fresh = file.read_bytes(), now - file.stat().st_mtime < _FRESH
    except FileNotFoundError:  # all of it has been sent, a moment ago
        return set()
    pieces = pieces_left(data)
    begin = read_place(file.with_suffix(".cursor"), pieces).offset
    return {
        (max(piece.begin, begin), piece.end)
        for piece in pieces
        if piece.end > begin and not _is_whole(piece) and not (is_fresh and piece is pieces[-1])
    }


def _is_whole(piece: Piece) -> bool:
    if piece.record is None:
        return False
    try:
        unpack(piece.record.packed)
    except UnreadableMessages:
        return False
    return True


def _waiting_in(file: Path) -> Iterator[WaitingMessage]:
    try:
        pieces = pieces_left(file.read_bytes())
        place = read_place(file.with_suffix(".cursor"), pieces)
    except FileNotFoundError:  # all of it has been sent, a moment ago
        return
    for piece in pieces:
        if piece.record is None or piece.end <= place.offset:
            continue
        sent = place.messages if piece.begin == place.offset else 0
        try:
            messages = unpack(piece.record.packed)[0]
        except UnreadableMessages as error:
            log.warning("%s: %s", file, error)
            continue
        for message in messages[sent:]:
            yield WaitingMessage(
                path=piece.record.path,
                message_id=message_id_of(message),
                session_id=session_of(message),
                file=file,
            )
