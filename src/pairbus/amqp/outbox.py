"""Messages that need more than one frame, or a session window that is open.

Nothing overtakes: while a message waits here, all later ones of its session wait behind it, and so does the
word that there are no more. The frames of one message may be written in several goes, as the window allows,
and as whoever takes the bytes out wants them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .pieces import Pieces
from .types import Blob

if TYPE_CHECKING:
    from .link import Link
    from .session import Session

# Bytes that a message takes beside its own while it waits: many small ones are as heavy as few large ones.
_OVERHEAD = 300


@dataclass(slots=True)
class Outgoing:
    """A message on its way out; `written` bytes of its payload are in frames already."""

    link: Link
    delivery_id: int
    tag: bytes
    payload: bytes | Pieces
    settled: bool
    message_format: int
    written: int = 0

    def cut(self, size: int) -> Iterator[Blob]:
        """The next bytes, which count as written."""
        start, payload = self.written, self.payload
        self.written = stop = start + size
        return payload.cut(start, stop) if isinstance(payload, Pieces) else iter((payload[start:stop],))


@dataclass(slots=True)
class DrainedWord:
    """What tells the other side that a link has no more to send; it has come to `count`."""

    link: Link
    count: int


class Outbox:
    """The waiting messages of one session, in the order of their delivery ids."""

    __slots__ = ("_session", "_was_clogged", "_words", "bytes", "items")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._was_clogged = False
        self.items: deque[Outgoing | DrainedWord] = deque()
        # The last word of each link behind which no message of it waits: a peer that drains over and over is
        # told once.
        self._words: dict[Link, DrainedWord] = {}
        self.bytes = 0

    @property
    def is_clogged(self) -> bool:
        """So much waits that no more should be sent; `take_relief` tells when that is over."""
        if self.bytes > self._session.limits.max_held_bytes:
            self._was_clogged = True
            return True
        return False

    def take_relief(self) -> bool:
        """Whether somebody was told of a clog that is gone now."""
        if not self._was_clogged or self.is_clogged:
            return False
        self._was_clogged = False
        return True

    def add(self, item: Outgoing) -> None:
        self.items.append(item)
        self._words.pop(item.link, None)
        self._count(len(item.payload), 1)
        self.flush()

    def tell_drained(self, link: Link) -> None:
        """Tell that a link is drained, when all that waits has been written."""
        word = self._words.get(link)
        if word is None:
            word = self._words[link] = DrainedWord(link, 0)
            self.items.append(word)
        word.count = link.delivery_count
        self.flush()

    def flush(self) -> None:
        """Write frames while the window is open and not enough is written for one go; what waits for a link
        that is over is passed over.
        """
        session, items = self._session, self.items
        while items:
            first = items[0]
            if not isinstance(first, Outgoing):
                items.popleft()
                if self._words.get(first.link) is first:
                    del self._words[first.link]
                first.link.say_drained(first.count)
                continue
            if first.link.is_alive:
                if session.remote_window <= 0 or session.connection.has_written_enough(session):
                    return
                if not self._write_frame(first):
                    continue
            items.popleft()
            self._count(-len(first.payload), -1)

    def _write_frame(self, item: Outgoing) -> bool:
        """Write the next frame of a message; true if it was the last."""
        session, left = self._session, len(item.payload) - item.written
        shape = item.link.shape(len(item.tag), item.message_format, settled=item.settled, more=False)
        room = session.frame_limit - shape.overhead
        more = left > room
        if more:
            shape = item.link.shape(len(item.tag), item.message_format, settled=item.settled, more=True)
            left = room
        session.write(shape.write(item.delivery_id, item.tag, left))
        for piece in item.cut(left):
            session.write(piece)
        session.connection.written += left
        session.count_sent_frame()
        return not more

    def clear(self) -> None:
        self._count(-self.bytes, -sum(isinstance(item, Outgoing) for item in self.items))
        self.items.clear()
        self._words.clear()

    def _count(self, size: int, messages: int) -> None:
        self.bytes += size
        self._session.connection.waiting_bytes += size + messages * _OVERHEAD
