"""Deliveries that one side has not settled yet."""

from __future__ import annotations

from typing import TypeVar

from .serials import MASK, serial_gap

_Link = TypeVar("_Link")


class Unsettled(dict[int, _Link]):
    """Delivery id to link, oldest first. A plain dict where it is hot, so that nothing stands in the way."""

    __slots__ = ()

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

    def forget_link(self, link: _Link) -> None:
        for delivery_id in [key for key, owner in self.items() if owner is link]:
            del self[delivery_id]

    def trim(self, limit: int) -> None:
        """Forget the oldest beyond `limit`: their peer has had its time."""
        surplus = len(self) - limit
        if surplus > 0:
            for delivery_id in list(self)[:surplus]:
                del self[delivery_id]
