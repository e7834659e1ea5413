"""Counts of billable operations, by entity, connection and kind.

An operation is what Azure bills: a message sent (accepted or refused), a delivery, a settlement, a management
request, and a credit grant that ended without a delivery (an empty receive). Up to 64 KB is one billed unit,
above it one for each started 64 KB. The broker counts what crossed the wire, so that whatever a client
records about itself can be compared with it.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum

__all__ = ["UNIT_BYTES", "Counters", "Kind", "Tally"]

# Azure's metering unit: an operation on a message of up to 64 KB is billed once.
UNIT_BYTES = 64 * 1024


class Kind(StrEnum):
    """The kinds of billable operations."""

    SEND = "send"
    SEND_REFUSED = "send_refused"
    PING = "ping"
    DELIVERY = "delivery"
    EMPTY_RECEIVE = "empty_receive"
    COMPLETE = "complete"
    ABANDON = "abandon"
    DEFER = "defer"
    DEAD_LETTER = "dead_letter"
    RELEASE = "release"
    MANAGEMENT = "management"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Tally:
    """How often one kind of operation happened to one entity on one connection."""

    entity: str
    connection: str
    kind: Kind
    count: int
    units: int
    bytes: int


class Counters:
    """The counters of one namespace. They start at zero with the broker and only grow."""

    __slots__ = ("_cells",)

    def __init__(self) -> None:
        self._cells: dict[tuple[str, str, Kind], list[int]] = {}

    def count(self, entity: str, connection: str, *, kind: Kind, size: int = 0) -> None:
        """Count one operation on `entity` that carried `size` bytes."""
        cell = self._cells.get((entity, connection, kind))
        if cell is None:
            cell = self._cells[(entity, connection, kind)] = [0, 0, 0]
        cell[0] += 1
        cell[1] += 1 if size <= UNIT_BYTES else -(-size // UNIT_BYTES)
        cell[2] += size

    def __iter__(self) -> Iterator[Tally]:
        for (entity, connection, kind), (count, units, size) in sorted(self._cells.items()):
            yield Tally(entity, connection, kind, count, units, size)

    def total(self, kind: Kind, *, entity: str | None = None, connection: str | None = None) -> int:
        """How many operations of `kind` there were, over all entities and connections or on those named."""
        wanted = entity.lower() if entity is not None else None
        return sum(
            cell[0]
            for (at, on, of), cell in self._cells.items()
            if of == kind and wanted in (None, at.lower()) and connection in (None, on)
        )

    def rows(self) -> list[dict[str, str | int]]:
        """The counters as plain rows, for JSON."""
        return [asdict(tally) for tally in self]
