"""The pages of a store, read without SQLite, for a store that SQLite cannot read any more.

Rules
1. An image is a copy of the database with every page of the WAL written into it, those behind a damaged place
   too. What SQLite would call the end of a WAL is there only the first of its frames that is not whole.
2. Frames that belong together are told by the salt of the WAL, since it is overwritten from its beginning
   again and again; those of a transaction that was never finished are left out.
3. The header of the first page is known but for a few numbers, so it is written anew.
4. Rows of a table are found leaf by leaf, whether or not the tree above leads to them. Pages that are free
   are passed over: what lies there was deleted. Whether a row is whole its checksum tells, and nothing else.
"""

import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from .file import APPLICATION_ID, PAGE_SIZE
from .statements import load_migrations

_LEAF = 0x0D
_FRAME_HEADER = 24
_WAL_HEADER = 32
# The most of a row that lies on its leaf, and the least, by the format of SQLite's files.
_MOST_LOCAL = PAGE_SIZE - 35
_LEAST_LOCAL = (PAGE_SIZE - 12) * 32 // 255 - 23
# A header that tells of more pages, by as much as this, is damaged itself.
_MOST_GROWTH = 64
_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}


def make_image(store: Path, wal: Path | None, image: Path) -> None:
    """Put the database and its WAL together into one file."""
    image.touch(0o600)
    if store.exists():
        shutil.copyfile(store, image)
    with image.open("r+b") as file:
        if wal is not None:
            for number, page in _committed_pages(wal):
                file.seek((number - 1) * PAGE_SIZE)
                file.write(page)
        size = -(-file.seek(0, os.SEEK_END) // PAGE_SIZE)
        if size:
            _mend_header(file, size)


def read_leaves(image: Path, columns: int) -> Iterator[list[Any]]:
    """The rows of tables with so many columns; the key of a row is at its first place."""
    data = memoryview(image.read_bytes()) if image.stat().st_size else memoryview(b"")
    free = set(_free_pages(data))
    for number in range(1, len(data) // PAGE_SIZE + 1):
        if number not in free and _page(data, number)[0] == _LEAF and number > 1:
            yield from _rows(data, number, columns)


def _committed_pages(wal: Path) -> Iterator[tuple[int, bytes]]:
    salt, unfinished = _salt(wal), {}
    step = _FRAME_HEADER + PAGE_SIZE
    with wal.open("rb") as file:
        file.seek(_WAL_HEADER)
        most = wal.stat().st_size // PAGE_SIZE
        while len(frame := file.read(step)) == step:
            number, size_after = struct.unpack(">II", frame[:8])
            if frame[8:16] != salt or not 0 < number <= most + size_after + (1 << 24):
                continue
            unfinished[number] = frame[_FRAME_HEADER:]
            if size_after:
                yield from unfinished.items()
                unfinished.clear()


def _salt(wal: Path) -> bytes:
    """That of the WAL's header, unless it is that of no frame: then the header is damaged."""
    with wal.open("rb") as file:
        salt = file.read(_WAL_HEADER)[16:24]
        first = file.read(_FRAME_HEADER)[8:16]
        file.seek(PAGE_SIZE, os.SEEK_CUR)
        second = file.read(_FRAME_HEADER)[8:16]
    return salt if salt in (first, second) else first


def _mend_header(file: BinaryIO, size: int) -> None:
    file.seek(0)
    told, free, free_count, cookie = struct.unpack(">IIII", file.read(100).ljust(100, b"\0")[28:44])
    # Of a file that was cut off, SQLite reads no table if it misses the first page of one.
    size = max(size, told if told <= _MOST_GROWTH * size else 0)
    file.truncate(size * PAGE_SIZE)
    if not free <= size or not free_count <= size:
        free = free_count = 0
    file.seek(0)
    # 1, 1: no WAL, since there is none beside the image any more.
    file.write(struct.pack(">16sHBBBBBB", b"SQLite format 3\0", PAGE_SIZE, 1, 1, 0, 64, 32, 32))
    file.write(struct.pack(">IIIIII", 1, size, free, free_count, cookie, 4))
    file.write(struct.pack(">IIIIII", 0, 0, 1, len(load_migrations()), 0, APPLICATION_ID))
    file.write(bytes(20) + struct.pack(">II", 1, 3040001))


def _page(data: memoryview, number: int) -> memoryview:
    return data[(number - 1) * PAGE_SIZE : number * PAGE_SIZE]


def _free_pages(data: memoryview) -> Iterator[int]:
    trunk, seen = (int.from_bytes(data[32:36], "big") if data else 0), set[int]()
    while 0 < trunk <= len(data) // PAGE_SIZE and trunk not in seen:
        seen.add(trunk)
        yield trunk
        page = _page(data, trunk)
        trunk, count = struct.unpack(">II", page[:8])
        count = min(count, PAGE_SIZE // 4 - 2)
        yield from struct.unpack(f">{count}I", page[8 : 8 + 4 * count])


def _rows(data: memoryview, number: int, columns: int) -> Iterator[list[Any]]:
    page = _page(data, number)
    count = min(int.from_bytes(page[3:5], "big"), PAGE_SIZE // 2 - 8)
    for index in range(count):
        at = int.from_bytes(page[8 + 2 * index : 10 + 2 * index], "big")
        try:
            row = _row(data, page, at)
        except (IndexError, ValueError, struct.error):  # not a row, or no longer one
            continue
        if len(row) == columns:
            yield row


def _row(data: memoryview, page: memoryview, at: int) -> list[Any]:
    length, at = _varint(page, at)
    key, at = _varint(page, at)
    payload = _payload(data, page, at, length)
    end, at = _varint(payload, 0)
    kinds = []
    while at < end:
        kind, at = _varint(payload, at)
        kinds.append(kind)
    row: list[Any] = []
    for kind in kinds:
        value, at = _value(payload, at, kind)
        row.append(value)
    if row and row[0] is None:  # the key of a table that is one of its columns
        row[0] = key
    return row


def _payload(data: memoryview, page: memoryview, at: int, length: int) -> memoryview:
    if length <= _MOST_LOCAL:
        return page[at : at + length]
    local = _LEAST_LOCAL + (length - _LEAST_LOCAL) % (PAGE_SIZE - 4)
    local = local if local <= _MOST_LOCAL else _LEAST_LOCAL
    parts, left = [page[at : at + local]], length - local
    number = int.from_bytes(page[at + local : at + local + 4], "big")
    while left > 0:
        if not 0 < number <= len(data) // PAGE_SIZE:
            raise ValueError("a row goes on where there is no page")
        overflow = _page(data, number)
        parts.append(overflow[4 : 4 + left])
        left -= PAGE_SIZE - 4
        number = int.from_bytes(overflow[:4], "big")
    return memoryview(b"".join(parts))


def _value(payload: memoryview, at: int, kind: int) -> tuple[Any, int]:
    if kind in (0, 8, 9):
        return (None if kind == 0 else kind - 8), at
    if kind in _INTEGERS:
        end = at + _INTEGERS[kind]
        return int.from_bytes(payload[at:end], "big", signed=True), end
    if kind == 7:
        return struct.unpack(">d", payload[at : at + 8])[0], at + 8
    if kind < 12:
        raise ValueError("SQLite has no such kind of value")
    end = at + (kind - 12) // 2
    if end > len(payload):
        raise ValueError("a value goes on where its row has ended")
    content = bytes(payload[at:end])
    return (content.decode() if kind % 2 else content), end


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for index in range(8):
        byte = data[at + index]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + index + 1
    return value << 8 | data[at + 8], at + 9
