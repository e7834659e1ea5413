"""Connections that have something to be done: what was read of them, or what was left of that.

1. All that are ready are read before anything is done for one of them. So they share a turn, and a hundred
   that say little each cost hardly more than one that says much: the same code runs for all of them in a row.
2. They are served in rounds. A round is all that wait when it begins, in the order in which they came; who
   comes meanwhile, or has more to be done, belongs to the next. It begins at the end of the turn of the event
   loop in which the first of them was read: by then a connection has been read once, or twice with TLS.
3. A round takes no more than `ARRIVALS_SLICE` of a turn of the event loop, which other namespaces share. What
   is left of it goes on in the next turn, and the namespace commits when all of the round have been served.
4. Whatever happens to one meanwhile (a fault, a goodbye, a reset, a black hole) is as if its bytes had come
   after that.
5. Each is served for itself: one that fails ends alone, and is told of.
"""

import logging
import time
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Protocol

from pairbus.amqp.performatives import AmqpError

from .pace import ARRIVALS_SLICE

log = logging.getLogger(__name__)


class Speaker(Protocol):
    """A connection that has said something."""

    name: str

    def work(self) -> None:
        """Do what has come, as far as the share of one turn goes."""

    def close(self, error: AmqpError | None) -> None: ...

    def reset(self) -> None: ...


class Arrivals:
    """Who in a namespace waits for a share of the turn."""

    def __init__(self, await_turn: Callable[[], None], *, may_go_on: Callable[[], bool]) -> None:
        """`await_turn` sees to it that they are served when all that are ready have been read. `may_go_on`:
        whether the next one can be.
        """
        self._await_turn = await_turn
        self._may_go_on = may_go_on
        self._waiting: dict[Speaker, None] = {}
        self._round: dict[Speaker, None] = {}

    def add(self, speaker: Speaker) -> None:
        """A connection has something to be done."""
        self._waiting[speaker] = None
        self._await_turn()

    def __len__(self) -> int:
        return len(self._round) + len(self._waiting)

    def __iter__(self) -> Iterator[Speaker]:
        """All who wait."""
        return chain(self._round, self._waiting)

    def serve(self) -> bool:
        """Let each of the round have its share, as far as the time goes; whether the round has ended."""
        if not self._round:
            self._round, self._waiting = self._waiting, {}
        until = time.monotonic() + ARRIVALS_SLICE
        while self._round and self._may_go_on():
            speaker = next(iter(self._round))
            del self._round[speaker]
            try:
                speaker.work()
            except Exception:  # others have been read too, and it is no fault of theirs
                log.exception("a connection cannot be served", extra={"fields": {"connection": speaker.name}})
                speaker.reset()
            if time.monotonic() >= until:
                break
        return not self._round
