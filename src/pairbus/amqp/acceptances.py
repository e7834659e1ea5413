"""The word that a single message was accepted: all that a peer says to who sends one message and waits.

Such a frame differs from the one before it in nothing but the id, which it has once or twice. To see that it
is like the one before takes a quarter of what it takes to read it. What differs in more is read as ever.
"""

from __future__ import annotations

import struct

from .fastframes import DISPOSITION_LIST, PLAIN_FRAME, disposition_tails, read_disposition_ids, read_head
from .inbox import Inbox
from .link import Link
from .performatives import Accepted
from .unsettled import Unsettled

_read = struct.Struct(">16sIBI").unpack_from
"""What is before the id, the id, and behind it, if it is said twice, a code and the id."""

_ONCE, _TWICE = 20, 25
"""Where the tail begins: what is behind the id, or behind the second one."""


_LONGEST = 64


class Acceptances:
    """How the peer of a connection has put it so far."""

    __slots__ = ("_inboxes", "_known")

    def __init__(self, inboxes: dict[int, Inbox]) -> None:
        """`inboxes` are those of the sessions, by the peer's channel."""
        self._inboxes = inboxes
        # By what is before the id: where the tail begins, the tail, and what the session has sent.
        self._known: dict[bytes, tuple[int, bytes, Unsettled[Link]]] = {}

    def take(self, data: bytes) -> tuple[Link, int] | None:
        """The message that was accepted and settled, if all of `data` says that as it was said before."""
        if not _TWICE <= len(data) <= _LONGEST:
            return None
        prefix, first, again, last = _read(data)
        known = self._known.get(prefix)
        if known is None:
            self._learn(prefix, data)
            return None
        start, tail, sent = known
        if data[start:] != tail or (start == _TWICE and (again != 0x70 or first != last)):
            return None
        link = sent.pop(first, None)
        return None if link is None else (link, first)

    def forget(self) -> None:
        """A session is over; how the others' peers put it is soon known again."""
        self._known.clear()

    def _learn(self, prefix: bytes, data: bytes) -> None:
        size, shape, channel, performative, length, count, role, code = read_head(data)
        inbox = self._inboxes.get(channel)
        is_plain = (shape, performative, role, code) == (PLAIN_FRAME, DISPOSITION_LIST, 0x41, 0x70)
        if inbox is None or not is_plain or not size == len(data) == 13 + length:
            return
        _, first, last, rest = read_disposition_ids(data, 0, role, code)
        meaning = disposition_tails.get(data[rest:])
        if first != last or meaning is None or meaning[:2] != (count, True):
            return
        start = {0x40: _ONCE, 0x70: _TWICE}.get(data[_ONCE])
        if start is not None and type(meaning[2]) is Accepted:
            self._known[prefix] = start, data[start:], inbox.session.unsettled_sent
