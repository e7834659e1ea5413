"""Connections that have been read, and for which nothing has been done yet.

1. All that are ready are read before anything is done for one of them. So they share a turn, and a hundred
   that say little each cost hardly more than one that says much: the same code runs for all of them in a row.
2. They are served at the end of the turn of the event loop in which the first of them was read, in the order
   in which they were read. By then a connection has been read once, or twice with TLS. What all of them have
   said is bounded too: with `MOST_UNHEARD` bytes their shares begin at once, and reading goes on after that.
3. Whatever happens to one meanwhile (a fault, a goodbye, a reset, a black hole) is as if its bytes had come
   after that.
4. Each is served for itself: one that fails ends alone, and is told of.
"""

import logging
from collections.abc import Callable
from typing import Protocol

from .pace import MOST_UNHEARD

log = logging.getLogger(__name__)


class Speaker(Protocol):
    """A connection that has said something."""

    name: str

    def work(self) -> None:
        """Do what has come, as far as the share of one turn goes."""

    def reset(self) -> None: ...


class Arrivals:
    """Who has been read in a namespace and waits for its share of the turn."""

    def __init__(self, await_turn: Callable[[], None]) -> None:
        """`await_turn` sees to it that they are served when all that are ready have been read."""
        self._await_turn = await_turn
        self._waiting: dict[Speaker, None] = {}
        self._size = 0

    def add(self, speaker: Speaker, size: int) -> None:
        """A connection has said so many bytes."""
        self._waiting[speaker] = None
        self._size += size
        self._await_turn()
        if self._size > MOST_UNHEARD:
            self.serve()

    def serve(self) -> None:
        """Let each of them have its share now."""
        waiting, self._waiting, self._size = self._waiting, {}, 0
        for speaker in waiting:
            try:
                speaker.work()
            except Exception:  # others have been read too, and it is no fault of theirs
                log.exception("a connection cannot be served", extra={"fields": {"connection": speaker.name}})
                speaker.reset()
