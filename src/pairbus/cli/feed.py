"""Lines read on a thread, taken on the event loop as they come.

Reading blocks, and while nothing comes the paired client must go on pinging. `take` returns what is there, at
least one and at most `limit`: full batches from a file, and from a slow source each line at once.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pairbus.errors import ConfigurationError

_CHUNK = 64 * 1024
# The largest message, 100 MB, in base64 or with escapes.
_LONGEST_LINE = 256 * 1024**2
# How far reading may run ahead of sending.
_AHEAD = 10_000

FedMessage = dict[str, Any]


class LineMessage(FedMessage):
    """A message that knows the line which it came from."""

    __slots__ = ("line",)

    def __init__(self, line: int, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        self.line = line


def lines_of(descriptor: int) -> Iterator[bytes]:
    """The lines of a file, without Python's buffer: a thread that waits in it breaks the program's end."""
    rest = bytearray()
    while chunk := os.read(descriptor, _CHUNK):
        *lines, last = chunk.split(b"\n")
        for line in lines:
            yield b"".join((rest, line, b"\n"))
            rest.clear()
        rest += last
        if len(rest) > _LONGEST_LINE:  # a device may have no end
            raise ConfigurationError(f"a line has more than {_LONGEST_LINE // 1024**2} MB: is this a text?")
    if rest:
        yield bytes(rest)


class Feed:
    """Messages that are read and parsed on a thread of their own."""

    def __init__(self, messages: Iterable[FedMessage]) -> None:
        """Must be made on the event loop that takes from it."""
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        self._messages: deque[FedMessage] = deque()
        self._room = threading.Semaphore(_AHEAD)
        self._ended = False
        self._error: Exception | None = None
        thread = threading.Thread(target=self._read, args=(messages,), daemon=True)
        thread.start()

    async def take(self, limit: int) -> list[FedMessage]:
        """What has been read, at least one and at most `limit`; nothing at the end. Mistakes come last."""
        while not self._messages:
            if self._ended:
                if self._error is not None:
                    raise self._error
                return []
            self._ready.clear()
            if not self._messages and not self._ended:
                await self._ready.wait()
        taken = [self._messages.popleft() for _ in range(min(limit, len(self._messages)))]
        self._room.release(len(taken))
        return taken

    def _read(self, messages: Iterable[FedMessage]) -> None:
        try:
            for message in messages:
                self._room.acquire()
                self._messages.append(message)
                if len(self._messages) == 1:  # otherwise somebody has been woken already
                    self._wake()
        except Exception as error:  # noqa: BLE001  (raised where it is taken)
            self._error = error
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ready.set)
