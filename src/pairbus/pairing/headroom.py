"""Sizes: whether a message that fits the primary also fits a backlog queue, envelope included.

1. The envelope adds bytes: `envelope_overhead` says how many, from AMQP's own encodings. With the longest
   path and session id, every alias and the marks of a compressed body it is about 550. What clearing the
   native properties saves is not subtracted, since encoders write cleared fields in different ways: the
   figure is never too low.
2. Whether a message fits is asked while all is well, so that an outage is not the first to find one that does
   not. `HeadroomWatch` gives one notice an entity.
3. What does not fit is compressed if that is allowed and enough, and refused by name and size otherwise.
4. A batch grows by one envelope a message, so a full one must be split. `split_batch` plans that before
   anything is sent: each message stands in one group, in order, or is named as too large.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from .envelope import Aliases, Natives, compress_body, wrap
from .errors import MessageTooLargeForBacklog

# A descriptor of 3 bytes and the 9 of a large map, for a message that had no application properties before.
_SECTION_BYTES = 12
_FIXED_BYTES = 9  # a long or a timestamp: the constructor and 8 bytes
#: What a batch needs besides its messages: its envelope repeats id, session and partition key of the first.
BATCH_RESERVE = 1024
#: A message whose body leaves this much room fits whatever its properties are, and need not be measured: all
#: headers together end at 64 KB.
CERTAIN_ROOM = 68 * 1024
# Each message of a batch is one data section: 5 bytes around a short one, 8 around a long one.
_SHORT_MESSAGE = 256


def _string_bytes(text: str) -> int:
    length = len(text.encode("utf-8"))
    return length + (2 if length < 256 else 5)


def _alias_bytes(aliases: Aliases) -> int:
    return sum(
        _string_bytes(name) + (_string_bytes(value) if isinstance(value, str) else _FIXED_BYTES)
        for name, value in aliases.items()
    )


def envelope_overhead(path: str, natives: Natives) -> int:
    """How many bytes the envelope of this message adds at most."""
    return _SECTION_BYTES + _alias_bytes(wrap(path, natives).aliases)


#: What a compressed body adds besides: its two marks.
MARKER_BYTES = _alias_bytes(compress_body(b"").markers)

#: The envelope of a message with the longest path and session id, every alias and a compressed body.
MAX_OVERHEAD = MARKER_BYTES + envelope_overhead(
    "p" * 260, Natives(session_id="s" * 128, ttl_ms=1, expires_ms=1, scheduled_ms=1)
)


def check_fit(path: str, *, message_id: str | None, size: int, overhead: int, backlog_limit: int) -> None:
    """Raise `MessageTooLargeForBacklog` for a message that does not fit as it is."""
    if size + overhead > backlog_limit:
        raise MessageTooLargeForBacklog(
            path, message_id=message_id, size=size + overhead, limit=backlog_limit
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadroomNotice:
    """The first message of an entity that would not fit a backlog queue as it is."""

    path: str
    size: int
    overhead: int
    backlog_limit: int

    def __str__(self) -> str:
        return (
            f"a message of {self.size} bytes for {self.path!r} needs {self.size + self.overhead} in the "
            f"backlog, where {self.backlog_limit} fit: in an outage it would have to be compressed, or be "
            "refused"
        )


class HeadroomWatch:
    """Watches the sizes of healthy sends; one notice an entity, and a count for the metrics."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def observe(self, path: str, *, size: int, overhead: int, backlog_limit: int) -> HeadroomNotice | None:
        """A message was sent: a notice if it is the first of its entity that lacks headroom."""
        if size + overhead <= backlog_limit:
            return None
        self._counts[path] = self._counts.get(path, 0) + 1
        if self._counts[path] > 1:
            return None
        return HeadroomNotice(path=path, size=size, overhead=overhead, backlog_limit=backlog_limit)

    def count(self, path: str) -> int:
        """How many messages of the entity lacked headroom."""
        return self._counts.get(path, 0)


def batch_limit(requested: int | None, *, primary_limit: int, backlog_limit: int) -> int:
    """How large a batch may grow: what the caller asks for, or what leaves room for one envelope."""
    if requested is not None:
        return requested
    return max(min(primary_limit, backlog_limit - BATCH_RESERVE - MAX_OVERHEAD), 1)


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """How a batch goes to the backlog: the groups of indices, in order, and what fits in none."""

    groups: tuple[range, ...]
    oversized: tuple[int, ...]


def split_batch(sizes: Sequence[int], *, limit: int) -> SplitPlan:
    """Split messages of these sizes, envelopes included, into as few groups as keep the order.

    A group of one is sent as a message of its own. A message above the limit is in no group: compress it and
    plan again, or refuse the whole batch before anything of it is sent.
    """
    groups: list[range] = []
    oversized: list[int] = []
    start, used = 0, BATCH_RESERVE
    for index, size in enumerate(sizes):
        cost = size + (5 if size < _SHORT_MESSAGE else 8)
        if index > start and (size > limit or used + cost > limit):
            groups.append(range(start, index))
            start, used = index, BATCH_RESERVE
        if size > limit:
            oversized.append(index)
            start = index + 1
        else:
            used += cost
    if start < len(sizes):
        groups.append(range(start, len(sizes)))
    return SplitPlan(tuple(groups), tuple(oversized))
