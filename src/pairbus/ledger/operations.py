"""Records of billable operations: what clients and pumps did that Azure puts on a bill.

1. An operation is what the service counts: a message sent (taken or refused), a delivery, a settlement, a
   request, a receive that ended empty. Records are sums over a minute, not single operations.
2. `count` is what was certainly done. `unknown` is what may have been: it was on its way and no answer came.
   The service has counted `count` at least, and `count + unknown` at most. `bytes` are those of `count`.
3. A size class is how many times one operation of that size is billed: once for each started 64 KB.
4. Writers also tell of themselves. `begin`, then `interval` again and again, then `end`: between the last
   interval of a writer that never ended and the next one that it owed, records may be lost. That is a gap.
5. A row has an id that no other row of its day has. A reader that meets it twice keeps one. Of rows that have
   one id and are not alike, the greatest by its columns counts, whoever comes first; the others are bad.
6. A line is bad once, however often it stands in its segment.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from pairbus.plumbing.json_text import LAST_MOMENT
from pairbus.stages import Role, Stage

from .columns import columns_of
from .segment import SegmentRead, read_segment

#: The kind of segment that holds these records.
KIND = "operations"
#: Nothing was written before 2020, nor more than a day from now: clocks that differ by more are wrong.
EARLIEST = 1_577_836_800
_AHEAD = _DAY = 86_400
#: What numbers of a row may be. What is beyond them no minute of one process can hold, and no sum or calendar
#: could take: a hundred thousand rows add up in 63 bits.
BOUNDS = {
    "count": (0, 10**9),
    "unknown": (0, 10**9),
    "bytes": (0, 10**13),
    "size_class": (1, 10**4),
    "minute": (0, LAST_MOMENT),
    "at": (0, LAST_MOMENT),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """Operations of one kind in one minute (Unix seconds of its beginning)."""

    id: str
    writer: str
    role: Role
    pair: str
    namespace: str
    entity: str
    stage: Stage
    kind: str
    size_class: int
    minute: int
    outage: str | None
    count: int
    unknown: int
    bytes: int

    @property
    def units(self) -> int:
        """What is billed for those that were certainly made."""
        return self.count * self.size_class


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageMark:
    """An entity failed over (`begins`), or was back, as one client saw it."""

    id: str
    writer: str
    pair: str
    entity: str
    outage: str
    begins: bool
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterMark:
    """A writer has begun, has written all it had until `at`, or has ended. `every`: how often it writes."""

    id: str
    writer: str
    role: str
    pair: str
    phase: str
    at: float
    every: float


@dataclass(frozen=True, slots=True)
class Gap:
    """Where records of a writer may be missing."""

    writer: str
    pair: str
    begins: float
    ends: float


@dataclass(frozen=True, slots=True)
class OutageSpan:
    """An outage as one client saw it; `ends` is None while it goes on."""

    outage: str
    pair: str
    begins: float
    ends: float | None


LedgerRow = Operation | OutageMark | WriterMark
#: What the rows of segments are, by what they call themselves.
ROWS: Mapping[str, type[LedgerRow]] = {"operation": Operation, "outage": OutageMark, "writer": WriterMark}
_COLUMNS = {kind: columns_of(made) for kind, made in ROWS.items()}
_NUMBERS = {
    kind: [(name, bound) for name, bound in BOUNDS.items() if name in columns]
    for kind, columns in _COLUMNS.items()
}
# Of others it is known what they can be.
_take_texts = {
    kind: itemgetter(
        *(name for name, column in columns.items() if column.plain is str and not column.choices)
    )
    for kind, columns in _COLUMNS.items()
}
_ALL_COLUMNS = tuple(dict.fromkeys(name for columns in _COLUMNS.values() for name in columns))


def lock_of(directory: Path) -> Path:
    """Its holder alone changes what there is of the ledger in a directory, but for open segments."""
    return directory / f".{KIND}.lock"


def parse_row(row: Mapping[str, Any]) -> LedgerRow | None:
    """Parse a row of a segment; None if it cannot be billed."""
    kind = row.get("row")
    columns = _COLUMNS.get(kind) if isinstance(kind, str) else None
    if columns is None or not isinstance(kind, str):
        return None
    try:
        values = {name: column.take(row.get(name)) for name, column in columns.items()}
    except ValueError:
        return None
    for name, (least, most) in _NUMBERS[kind]:
        if not least <= values[name] <= most:
            return None
    text = "".join(filter(None, _take_texts[kind](values)))
    if not (text.isascii() or _is_text(text)):
        return None
    return ROWS[kind](**values)


def _is_text(value: str) -> bool:
    """Whether tables and pages can hold it: JSON can tell half of a character."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Ledger:
    """What segments hold, each row once; `bad` lines could not be read."""

    operations: tuple[Operation, ...] = ()
    outages: tuple[OutageMark, ...] = ()
    writers: tuple[WriterMark, ...] = ()
    bad: int = 0


def latest_at(now: float) -> float:
    """The latest time that a row can be of."""
    return now + _AHEAD


def is_dated(moment: Any, *, now: float) -> Any:
    """Whether a row, or each of a column of them, is of a time at which it can have been written."""
    return (moment >= EARLIEST) & (moment <= latest_at(now))


def read_operations(segments: Iterable[Path], *, now: float | None = None) -> Ledger:
    """Read segments into memory. With `now`, rows of a clock that was wrong by years are bad ones."""
    return ledger_of(map(read_segment, segments), now=now)


def ledger_of(segments: Iterable[SegmentRead], *, now: float | None = None) -> Ledger:
    """What segments hold that have been read already."""
    rows: dict[tuple[int, str], LedgerRow] = {}
    bad: set[object] = set()
    for number, found in enumerate(segments):
        bad.update((number, line) for line in found.bad_lines)
        for raw in found.rows:
            row = parse_row(raw)
            if row is None:
                bad.add((number, repr(raw)))
            elif now is not None and not is_dated(_moment_of(row), now=now):
                bad.add(row)
            else:
                key = int(_moment_of(row) // _DAY), row.id
                other = rows.setdefault(key, row)
                if other != row:  # rule 5
                    rows[key] = max(other, row, key=_rank)
                    bad.add(min(other, row, key=_rank))
    kept = [rows[key] for key in sorted(rows)]
    return Ledger(
        tuple(row for row in kept if isinstance(row, Operation)),
        tuple(row for row in kept if isinstance(row, OutageMark)),
        tuple(row for row in kept if isinstance(row, WriterMark)),
        len(bad),
    )


def _rank(row: LedgerRow) -> tuple[Any, ...]:
    """By what it calls itself, and then by all columns in their order; nothing is less than anything."""
    kind = next(kind for kind, made in ROWS.items() if isinstance(row, made))
    values = (getattr(row, name, None) for name in _ALL_COLUMNS)
    return kind, *((False, 0) if value is None else (True, value) for value in values)


def _moment_of(row: LedgerRow) -> float:
    return row.minute if isinstance(row, Operation) else row.at


def find_gaps(writers: Iterable[WriterMark], *, now: float, patience: float) -> list[Gap]:
    """Gaps of writers that neither ended nor were heard of for `patience` seconds."""
    found = (
        Gap(mark.writer, mark.pair, mark.at, mark.at + mark.every)
        for mark in _last_marks(writers).values()
        if mark.phase != "end" and now - mark.at > patience
    )
    return sorted(found, key=lambda gap: (gap.begins, gap.writer))


def sight_outages(
    marks: Iterable[OutageMark], writers: Iterable[WriterMark], *, now: float, patience: float
) -> list[OutageSpan]:
    """Beginnings and ends put together. A client that is gone saw its outage until it was last heard of."""
    last = _last_marks(writers)
    begun: dict[str, OutageMark] = {}
    ended: dict[str, float] = {}
    for mark in sorted(marks, key=lambda one: (one.at, one.id)):
        if mark.begins:
            begun.setdefault(mark.outage, mark)
        else:
            ended[mark.outage] = mark.at
    spans = []
    for outage, mark in begun.items():
        ends = ended.get(outage)
        heard = last.get(mark.writer)
        if ends is None and heard is not None and (heard.phase == "end" or now - heard.at > patience):
            ends = heard.at
        if ends is not None:
            ends = max(mark.at, ends)
        spans.append(OutageSpan(outage, mark.pair, mark.at, ends))
    return sorted(spans, key=lambda span: (span.begins, span.outage))


def _last_marks(writers: Iterable[WriterMark]) -> dict[str, WriterMark]:
    """The last mark of each writer; an end is always the last."""
    last: dict[str, WriterMark] = {}
    for mark in writers:
        before = last.get(mark.writer)
        if before is None or (before.phase != "end" and (mark.phase == "end" or mark.at > before.at)):
            last[mark.writer] = mark
    return last
