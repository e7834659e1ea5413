"""The records of the spool as bytes: what one is, how a file of them is read, and how far it has been sent.

1. A record is its length, its checksum and its bytes: whose it is, how many messages, and the messages.
2. A file is read as *pieces*: records, and what is damaged. Where no record fits its checksum the next place
   is looked for where one does, so that damage hides nothing that is whole behind it.
3. A *place* says how far a file has been dealt with: up to a record, and so many messages of that one. It is
   kept with a checksum of its own. Version 0.1.0 kept a plain number, which is believed if a record begins
   there. What cannot be believed counts as nothing: messages are sent twice rather than not at all.
4. A process that was killed leaves a file that ends with *blanks*: bytes that it had put there in advance, so
   that the next records would not make the file longer. They are at most as many as the bytes before them,
   and none begins a record. A version that does not know them takes them for a record that was cut short.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

#: What is written in advance, and how much of it at most: some two hundred small messages.
BLANK = b"\xff"
AHEAD = 256 * 1024
_FRAME = struct.Struct(">II")
_HEAD = struct.Struct(">HI")
_LEAST = _HEAD.size + 1
# How every map of messages begins behind its constructor, size and count.
_MARK = b"\xa1\x08messages"
_MAP_HEADS = {b"\xc1": 3, b"\xd1": 9}
# Two numbers of 64 bits, the checksum, and the word before them.
_LONGEST_CURSOR = 64
# Longer than the longest path.
_LONGEST_PATH = 2048


class SpoolRecord(NamedTuple):
    """What one call wanted sent: the path, how many messages, and the messages."""

    path: str
    messages: int
    packed: bytes

    @classmethod
    def from_bytes(cls, data: bytes) -> SpoolRecord | None:
        """What was framed; None if it is no record."""
        length, messages = _HEAD.unpack_from(data)
        start = _HEAD.size + length
        try:
            path = data[_HEAD.size : start].decode()
        except UnicodeDecodeError:
            return None
        return cls(path, messages, data[start:]) if path and messages else None


class Piece(NamedTuple):
    """From `begin` to `end` of a file: a record, or damage."""

    begin: int
    end: int
    record: SpoolRecord | None


class SpoolCursor(NamedTuple):
    """How far a file has been dealt with: up to `offset`, and so many `messages` of the record there."""

    offset: int = 0
    messages: int = 0

    def to_text(self) -> str:
        """As it is kept."""
        text = f"at {self.offset} {self.messages}"
        return f"{text} {zlib.crc32(text.encode()):08x}"

    @classmethod
    def from_text(cls, text: str, begins: set[int]) -> SpoolCursor | None:
        """What was kept; None if it cannot be believed. In `begins` records begin or end."""
        if len(text) > _LONGEST_CURSOR:
            return None
        if text.isascii() and text.isdecimal():
            return cls(int(text)) if int(text) in begins else None
        words = text.split(" ")
        if len(words) != 4 or not (words[1].isdecimal() and words[2].isdecimal()):
            return None
        found = cls(int(words[1]), int(words[2]))
        return found if found.to_text() == text else None


def framed(record: SpoolRecord) -> bytes:
    """A record with its length and checksum."""
    path = record.path.encode()
    data = b"%b%b%b" % (_HEAD.pack(len(path), record.messages), path, record.packed)
    return _FRAME.pack(len(data), zlib.crc32(data)) + data


def pieces_of(data: bytes) -> Iterator[Piece]:
    """All of a file; pieces of damage are as long as can be."""
    at = begin = 0
    while at < len(data):
        piece = _piece_at(data, at)
        if piece is None:
            at = _next_record(data, at + 1)
        elif piece.record is None:
            at = piece.end
        else:
            if begin < at:
                yield Piece(begin, at, None)
            yield piece
            begin = at = piece.end
    if begin < len(data):
        yield Piece(begin, len(data), None)


def pieces_left(data: bytes) -> list[Piece]:
    """The same, of a file whose writer is gone or at work: without its blanks, rule 4."""
    pieces = list(pieces_of(data))
    if pieces and pieces[-1].record is None:
        begin = pieces.pop().begin
        end = begin + len(data[begin:].rstrip(BLANK))
        if len(data) - end > min(end, AHEAD):
            end = len(data)
        if begin < end:
            pieces.append(Piece(begin, end, None))
    return pieces


def _piece_at(data: bytes, at: int) -> Piece | None:
    """The record that begins here, or what is framed like one and is none; None if nothing is framed here."""
    if at + _FRAME.size > len(data):
        return None
    length, checksum = _FRAME.unpack_from(data, at)
    begin, end = at + _FRAME.size, at + _FRAME.size + length
    if length < _LEAST or end > len(data) or zlib.crc32(data[begin:end]) != checksum:
        return None
    return Piece(at, end, SpoolRecord.from_bytes(data[begin:end]))


def _next_record(data: bytes, start: int) -> int:
    """Where the next record begins, from `start` on; the end if there is none."""
    mark = data.find(_MARK, start)
    while mark >= 0:
        for constructor, size in _MAP_HEADS.items():
            if data[mark - size : mark - size + 1] == constructor:
                begin = _begin_before(data, mark - size, start)
                if begin is not None:
                    return begin
        mark = data.find(_MARK, mark + 1)
    return len(data)


def _begin_before(data: bytes, path_end: int, start: int) -> int | None:
    """Where the record begins whose path ends here."""
    for length in range(1, _LONGEST_PATH):
        head = path_end - length - _HEAD.size
        at = head - _FRAME.size
        if at < start:
            return None
        if int.from_bytes(data[head : head + 2], "big") == length:
            piece = _piece_at(data, at)
            if piece is not None and piece.record is not None:
                return at
    return None
