"""Where the name of a file leads, without a look at the file's times.

Where somebody has asked for the times of a file, its next write keeps a new one (Linux, from 6.13 on), and
whoever syncs that write waits for the journal: a quarter of the time that a sync takes. Python asks for all
that is known of a file, `statx` for what is wanted.
"""

import ctypes
import os
from collections.abc import Callable
from functools import cache, partial
from struct import Struct

# Of `struct statx`: the file's number, its size, and the two parts of its device.
_FIELDS = Struct("=32xQQ88xII112x")
# From where a name begins, and what is asked for: number and size. The device is told in any case.
_HERE, _WANTED = -100, 0x300


class Signpost:
    """The name by which a file was opened. For one thread at a time."""

    __slots__ = ("_ask", "_device", "_found", "_name", "_number")

    def __init__(self, name: str, descriptor: int) -> None:
        opened = os.fstat(descriptor)
        self._name = name
        self._device, self._number = opened.st_dev, opened.st_ino
        self._found = bytearray(_FIELDS.size)
        place = (ctypes.c_char * _FIELDS.size).from_buffer(self._found)
        self._ask = partial(_statx() or _unknown, _HERE, os.fsencode(name), 0, _WANTED, place)

    def leads_to(self, size: int) -> bool:
        """Whether the name still leads to the file, and that is so long; OSError if nobody knows."""
        if self._ask() == 0:
            number, found, major, minor = _FIELDS.unpack(self._found)
            return (number, found, os.makedev(major, minor)) == (self._number, size, self._device)
        status = os.stat(self._name)  # which also tells what is wrong
        return (status.st_ino, status.st_size, status.st_dev) == (self._number, size, self._device)


@cache
def _statx() -> Callable[..., int] | None:
    found: Callable[..., int] | None = getattr(ctypes.CDLL(None), "statx", None)
    return found


def _unknown(*asked: object) -> int:
    return -1
