"""Bytes that are too many to be copied in one go.

A copy of a hundred megabytes takes a tenth of a second, in which nothing else is done. So a large message is
kept where it was put together, and whoever wants to write it cuts it into frames from there.
"""

import struct
from collections.abc import Iterator
from typing import Any

from .encoding import encode
from .types import Blob

_binary32 = struct.Struct(">BI").pack
_compound32 = struct.Struct(">BII").pack
_BINARY, _LIST, _MAP = 0xB0, 0xD0, 0xD1


class Pieces:
    """Bytes in several places, one behind the other."""

    __slots__ = ("_parts", "_size")

    def __init__(self, *parts: Blob) -> None:
        self._parts = parts
        self._size = sum(map(len, parts))

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        return b"".join(self._parts)

    def __iter__(self) -> Iterator[Blob]:
        return iter(self._parts)

    def cut(self, start: int, stop: int) -> Iterator[Blob]:
        """The bytes from `start` to `stop`, piece by piece and not copied."""
        at = 0
        for part in self._parts:
            if at >= stop:
                return
            end = at + len(part)
            if end > start:
                yield memoryview(part)[max(0, start - at) : stop - at]
            at = end


def encode_in_pieces(value: Any) -> list[Blob]:
    """A value whose lists and maps may hold `Pieces`, which are binaries; these alone are not copied."""
    if isinstance(value, Pieces):
        return [_binary32(_BINARY, len(value)), *value]
    if isinstance(value, dict):
        content = [part for pair in value.items() for one in pair for part in encode_in_pieces(one)]
        return _compound(_MAP, 2 * len(value), content)
    if isinstance(value, list):
        return _compound(_LIST, len(value), [part for one in value for part in encode_in_pieces(one)])
    return [encode(value)]


def _compound(code: int, count: int, content: list[Blob]) -> list[Blob]:
    return [_compound32(code, 4 + sum(map(len, content)), count), *content]
