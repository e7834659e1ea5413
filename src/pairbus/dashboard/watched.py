"""What a dashboard looks at: pairs, and the embedded namespaces of a broker."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

from pairbus.backlog.backlog import Backlog
from pairbus.cost.sheet import PriceSheet, default_sheet
from pairbus.errors import ConfigurationError
from pairbus.pump.options import PumpOptions
from pairbus.stores.places import RecordPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedPair:
    """A pair. Without a backlog only what its clients leave in the state directory is known."""

    name: str
    state_dir: Path
    #: Where records of all hosts come together, if that is not the state directory.
    shared_records: RecordPlace | None = None
    backlog: Backlog | None = None
    options: PumpOptions = field(default_factory=PumpOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookPace:
    """How often things are looked at, in seconds. Only a peek into a backlog queue is billed."""

    glance: float = 1.0
    count: float = 5.0
    peek: float = 30.0
    list_store: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """All of it. `budget` is for a month, in the currency of the sheet."""

    pairs: Sequence[WatchedPair]
    ready_file: Path | None = None
    sheet: PriceSheet = field(default_factory=default_sheet)
    budget: Decimal | None = None
    pace: LookPace = field(default_factory=LookPace)

    def __post_init__(self) -> None:
        names = [pair.name for pair in self.pairs]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ConfigurationError(f"two pairs have one name: {', '.join(sorted(twice))}")
