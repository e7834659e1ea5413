"""What a pump has done, while it runs and when it has ended."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class PathSummary:
    """What became of the messages of one path."""

    moved: int = 0
    dead_lettered: int = 0
    waiting: int = 0
    bytes: int = 0
    first: float | None = None  # when the first transfer began and the last one ended, Unix seconds
    last: float | None = None
    trouble: str | None = None

    def note_transfer(self, begun: float, ended: float) -> None:
        """Messages were on the way from then to then."""
        self.first = begun if self.first is None else min(self.first, begun)
        self.last = ended if self.last is None else max(self.last, ended)

    @property
    def rate(self) -> float:
        """Messages a second, from the first to the last; 0 if that is no time."""
        first, last = self.first, self.last
        return self.moved / (last - first) if first is not None and last is not None and last > first else 0.0


def slowest_of(paths: Mapping[str, PathSummary]) -> str | None:
    """The path with the lowest rate, of those that anything was moved to."""
    rates = {path: found.rate for path, found in paths.items() if found.rate > 0}
    return min(rates, key=lambda path: rates[path]) if rates else None


@dataclass(slots=True)
class PathTally(PathSummary):
    """The same while it is counted."""

    #: When the oldest of those that wait was enqueued, of all that have waited since none did.
    oldest: float | None = None

    def note_waiting(self, enqueued: float) -> None:
        """A message that was enqueued then has to wait."""
        self.oldest = enqueued if self.oldest is None else min(self.oldest, enqueued)


@dataclass(frozen=True, slots=True, kw_only=True)
class PumpSummary:
    """The sum of it. `waiting` are put aside because their path is down; `unknown` were sent without an
    answer, and may arrive twice; `retries` were refused and are sent again; `lost_locks` were in hand when
    their lock ended; `queue_errors` names queues that could not be drained, with the reason.
    """

    moved: int
    dead_lettered: int
    waiting: int
    bytes: int
    seconds: float
    unknown: int
    retries: int
    lost_locks: int
    paths: dict[str, PathTally]
    slowest_path: str | None
    queue_errors: dict[str, str]
    #: Why nothing was moved for a while though there is something to move; None if that is not so.
    stall: str | None = None


@dataclass(slots=True)
class PumpTally:
    """Counts, while a pump runs."""

    begun: float
    paths: dict[str, PathTally] = field(default_factory=dict)
    unknown: int = 0
    retries: int = 0
    lost_locks: int = 0
    queue_errors: dict[str, str] = field(default_factory=dict)

    def of(self, path: str) -> PathTally:
        """The counts of one path."""
        found = self.paths.get(path)
        if found is None:
            found = self.paths[path] = PathTally()
        return found

    def summary(self, now: float, waiting: dict[str, int]) -> PumpSummary:
        """The sum at this moment; `waiting` by path."""
        for path, tally in self.paths.items():
            tally.waiting = waiting.get(path, 0)
            if not tally.waiting:
                tally.oldest = None
        for path in waiting.keys() - self.paths.keys():
            self.of(path).waiting = waiting[path]
        return PumpSummary(
            moved=sum(tally.moved for tally in self.paths.values()),
            dead_lettered=sum(tally.dead_lettered for tally in self.paths.values()),
            waiting=sum(waiting.values()),
            bytes=sum(tally.bytes for tally in self.paths.values()),
            seconds=now - self.begun,
            unknown=self.unknown,
            retries=self.retries,
            lost_locks=self.lost_locks,
            paths=dict(self.paths),
            slowest_path=slowest_of(self.paths),
            queue_errors=dict(self.queue_errors),
        )
