"""What a run of the syphon has done."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pairbus.plumbing.json_text import parse_json
from pairbus.pump.summary import PathSummary, slowest_of


class ReceiptCounts(NamedTuple):
    """Of messages, and the bytes of those that were moved."""

    moved: int
    dead_lettered: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SyphonSummary:
    """The sum of it. `receipts` are those that this run wrote, for messages moved and dead-lettered;
    `unknown` were sent without an answer and may arrive twice; `waiting` are put aside: their path is down.
    `seconds` is the time of the whole run, `moving_seconds` that of the pumps.
    """

    moved: int
    dead_lettered: int
    waiting: int
    bytes: int
    unknown: int
    seconds: float
    receipts: int
    slowest_path: str | None
    paths: Mapping[str, PathSummary] = field(default_factory=dict)
    queue_errors: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    #: Where receipts lie, a table for each directory of records.
    tables: tuple[str, ...] = ()
    #: A drain that was told to stop before its end.
    stopped: bool = False
    #: What lies in the backlog after that, if it is known.
    left: int | None = None
    moving_seconds: float = 0.0

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left that should have been moved."""
        return self.waiting == 0 and not self.queue_errors

    @property
    def rate(self) -> float:
        """Messages moved a second, while pumps ran."""
        seconds = self.moving_seconds or self.seconds
        return self.moved / seconds if seconds > 0 else 0.0


@dataclass(slots=True)
class RunTally:
    """The rows of tasks, added up as they come."""

    paths: dict[str, PathSummary] = field(default_factory=dict)
    queue_errors: dict[str, str] = field(default_factory=dict)
    unknown: int = 0
    waiting: int = 0
    _epoch: int = -1

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add the rows of one epoch. What waits, or cannot be read, is what the last epoch says."""
        for row in rows:
            if row["epoch"] != self._epoch:
                self._epoch, self.waiting, self.queue_errors = row["epoch"], 0, {}
                for path in self.paths.values():
                    path.waiting = 0
            self.unknown += row["unknown"]
            self.waiting += row["waiting"]
            self.queue_errors |= parse_json(row["queue_errors"])
            for path, tallies in parse_json(row["paths"]).items():
                _add(self.paths.setdefault(path, PathSummary()), tallies)

    def counts(self) -> ReceiptCounts:
        """Over all paths."""
        paths = self.paths.values()
        return ReceiptCounts(
            sum(one.moved for one in paths),
            sum(one.dead_lettered for one in paths),
            sum(one.bytes for one in paths),
        )

    @property
    def slowest_path(self) -> str | None:
        return slowest_of(self.paths)


def _add(found: PathSummary, tallies: Sequence[Mapping[str, Any]]) -> None:
    for tally in tallies:
        found.moved += tally["moved"]
        found.dead_lettered += tally["dead_lettered"]
        found.bytes += tally["bytes"]
        if tally["first"] is not None:
            found.note_transfer(tally["first"], tally["last"])
        found.trouble = tally["trouble"] or found.trouble
        found.waiting += tally["waiting"]
