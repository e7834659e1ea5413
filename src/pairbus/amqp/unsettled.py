"""Deliveries that one side has not settled yet.

Those of a link that is over are forgotten together with those of others: a walk over all for each detach
would let a peer with a hundred thousand deliveries and a thousand links stop everybody else for seconds.
Until then they do no harm, since nobody stands behind their link.
"""

from typing import Protocol, TypeVar

from .serials import MASK, serial_gap


class _Mortal(Protocol):
    @property
    def is_alive(self) -> bool: ...


_Link = TypeVar("_Link", bound=_Mortal)
# A walk is made when there is a link that is over for so many deliveries.
_WALK_SHARE = 64


class Unsettled(dict[int, _Link]):
    """Delivery id to link, oldest first. A plain dict where it is hot, so that nothing stands in the way."""

    __slots__ = ("_links_over",)

    def __init__(self) -> None:
        super().__init__()
        self._links_over = 0

    def effort(self, first: int, last: int) -> int:
        """How many ids `pick` looks at."""
        return min(max(serial_gap(last, first), 0), len(self))

    def pick(self, first: int, last: int) -> list[int]:
        """Known ids from first to last; the work is bounded by what is known, not by what a peer names."""
        span = serial_gap(last, first)
        if span < 0:
            return []
        if span < len(self):
            if first <= last:
                return [number for number in range(first, last + 1) if number in self]
            return [number & MASK for number in range(first, first + span + 1) if number & MASK in self]
        return [number for number in self if 0 <= serial_gap(number, first) <= span]

    def forget(self, first: int, last: int) -> None:
        for delivery_id in self.pick(first, last):
            del self[delivery_id]

    def note_end_of_link(self) -> None:
        """A link is over; forget what belongs to such links, if it is worth the walk."""
        self._links_over += 1
        if self._links_over * _WALK_SHARE >= len(self):
            self._links_over = 0
            for delivery_id in [key for key, owner in self.items() if not owner.is_alive]:
                del self[delivery_id]

    def trim(self, limit: int) -> None:
        """Forget the oldest beyond `limit`: their peer has had its time."""
        surplus = len(self) - limit
        if surplus > 0:
            for delivery_id in list(self)[:surplus]:
                del self[delivery_id]
