"""Counts of billable operations, by entity, connection and kind.

An operation is what Azure bills: a message sent (accepted or refused), a delivery, a settlement, a management
request, and a credit grant that ended without a delivery (an empty receive). Up to 64 KB is one billed unit,
above it one for each started 64 KB. The broker counts what crossed the wire, so that whatever a client
records about itself can be compared with it.

Counters only grow, and no number is ever lost. What a connection did is kept apart from the rest for as long
as the connection is remembered; after that it is counted under `FORMER`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from pairbus.metering import UNIT_BYTES, units

from .engine.breath import breathe

# Stands for the connection where it has been forgotten.
FORMER = "former"


class OperationKind(StrEnum):
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
class OperationTally:
    """How often one kind of operation happened to one entity on one connection."""

    entity: str
    connection: str
    kind: OperationKind
    count: int
    units: int
    bytes: int


_NOTHING = (0, 0, 0)
_Cells = dict[tuple[str, OperationKind], list[int]]


class Counters:
    """The counters of one namespace. They start at zero with the broker."""

    __slots__ = ("_cells", "spend")

    def __init__(self) -> None:
        self._cells: dict[str, _Cells] = {}
        #: Told of every operation, where the namespace has credits.
        self.spend: Callable[[str, OperationKind], None] | None = None

    def count(self, entity: str, connection: str, *, kind: OperationKind, size: int = 0) -> None:
        """Count one operation on `entity`, in its canonical spelling, that carried `size` bytes."""
        cell = self._cell(entity, connection, kind)
        cell[0] += 1
        cell[1] += units(size)
        cell[2] += size
        if self.spend is not None:
            self.spend(entity, kind)

    def count_all(self, entity: str, connection: str, *, kind: OperationKind, sizes: Sequence[int]) -> None:
        """Count one operation for each of these sizes."""
        if not sizes:
            return
        cell = self._cell(entity, connection, kind)
        cell[0] += len(sizes)
        cell[1] += len(sizes) if max(sizes) <= UNIT_BYTES else sum(map(units, sizes))
        cell[2] += sum(sizes)
        if self.spend is not None:
            for _ in sizes:
                self.spend(entity, kind)

    def forget(self, connection: str) -> None:
        """Count what a connection did under `FORMER` from now on."""
        for (entity, kind), numbers in self._cells.pop(connection, {}).items():
            former = self._cell(entity, FORMER, kind)
            former[:] = [old + new for old, new in zip(former, numbers, strict=True)]

    def __iter__(self) -> Iterator[OperationTally]:
        rows = (
            OperationTally(entity, connection, kind, *numbers)
            for connection, cells in self._cells.items()
            for (entity, kind), numbers in cells.items()
        )
        return iter(sorted(rows, key=lambda tally: (tally.entity, tally.connection, tally.kind)))

    def sums(self) -> dict[tuple[str, OperationKind], list[int]]:
        """Count, units and bytes of each kind for each entity, over all connections: more may be counted, and
        some forgotten, meanwhile.
        """
        # All at once those that are forgotten: what joins them from now on is among the others here.
        sums = {key: list(numbers) for key, numbers in self._cells.get(FORMER, {}).items()}
        for cells in [cells for connection, cells in self._cells.items() if connection != FORMER]:
            for key, numbers in list(cells.items()):
                sums[key] = [old + new for old, new in zip(sums.get(key, _NOTHING), numbers, strict=True)]
                breathe()
        return sums

    def total(self, kind: OperationKind, *, entity: str | None = None, connection: str | None = None) -> int:
        """How many operations of `kind` there were, over all entities and connections or on those named."""
        wanted = entity.strip("/").lower() if entity is not None else None
        chosen = self._cells.values() if connection is None else [self._cells.get(connection, {})]
        return sum(
            numbers[0]
            for cells in chosen
            for (at, of), numbers in cells.items()
            if of == kind and wanted in (None, at.lower())
        )

    def rows(self) -> list[dict[str, str | int]]:
        """The counters as plain rows, for JSON."""
        return [asdict(tally) for tally in self]

    def _cell(self, entity: str, connection: str, kind: OperationKind) -> list[int]:
        cells = self._cells.get(connection)
        if cells is None:
            cells = self._cells[connection] = {}
        cell = cells.get((entity, kind))
        if cell is None:
            cell = cells[entity, kind] = [0, 0, 0]
        return cell
