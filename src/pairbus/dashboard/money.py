"""Money of this month so far: a plain sum over the ledger, by the same rules as the full bill.

1. Segments that are open are read too, so that the sum is seconds old and not minutes.
2. A closed segment never changes: it is read once.
3. What goes on as in the last hour comes to so much in a day: by that an outage is known to pass a budget
   before it does.
4. Of what `pairbus cost report` has taken in, the sums that lie beside it are read. Segments beyond the
   newest ones are left to it; the sum says since when it counts.
   A segment that it has taken in and not yet removed counts once: a writer numbers its rows, and the mark
   behind them comes last.
5. A budget is for a month: what is older counts for outages alone, which may go on.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from pairbus.cost.bill import Bill, hour_of, make_bill
from pairbus.cost.outages import Usage, merge_outages
from pairbus.cost.report import Share, money, report_of
from pairbus.cost.sheet import PriceSheet
from pairbus.ledger.operations import (
    KIND,
    Ledger,
    Operation,
    OutageMark,
    WriterMark,
    latest_at,
    ledger_of,
    sight_outages,
)
from pairbus.ledger.segment import SegmentRead, closed_segments, parse_lines, read_open_segments, read_segment
from pairbus.ledger.store_files import day_at, read_side_by_side
from pairbus.stores.places import RecordPlace, StoreUri
from pairbus.stores.store import RecordStore, open_store

# A day of ten writers, each with a segment every ten minutes.
_MOST_SEGMENTS = 1500
# A writer that was not heard of for so long is gone.
_PATIENCE = 180.0


class _Taken(NamedTuple):
    """What `cost report` has taken in."""

    uses: Sequence[Usage] = ()
    outages: Sequence[OutageMark] = ()
    writers: Sequence[WriterMark] = ()
    bad: int = 0


class MoneySum:
    """Sums up the ledger of one place of records."""

    def __init__(self, records: RecordPlace, sheet: PriceSheet) -> None:
        self._records = records
        self._sheet = sheet
        self._read: dict[str, SegmentRead] = {}
        self._days: dict[Path, _Taken] = {}

    def read(self, *, now: float) -> dict[str, Any]:
        """The sum as it stands."""
        month = datetime.fromtimestamp(now, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        since = month.timestamp()
        ledger, taken = self._ledger(now), self._taken(since, now)
        sighted = sight_outages(
            [*taken.outages, *ledger.outages], [*taken.writers, *ledger.writers], now=now, patience=_PATIENCE
        )
        outages = merge_outages(sighted)
        usages = [one for one in (*taken.uses, *_beyond(taken, ledger)) if one.minute >= since]
        bill = make_bill(usages, outages, self._sheet)
        report = report_of(bill, usages, outages, self._sheet, bad_rows=taken.bad + ledger.bad)
        per_hour = _cost_per_hour(bill, now)
        return {
            "currency": report.currency,
            "prices_as_of": report.prices_as_of,
            "since": min((one.minute for one in usages), default=None),
            "base": money(report.base),
            "used": money(report.used),
            "total": money(report.total),
            "per_hour": money(per_hour),
            "in_a_day": money(report.total + 24 * per_hour),
            "is_outage": any(one.ends is None for one in outages),
            "in_outages": money(sum((share.cost for share in report.by_outage), Decimal(0))),
            "units": report.units,
            "unknown": report.unknown,
            "bad_rows": report.bad_rows,
            "stages": [_described(share) for share in report.by_stage],
            "outages": [
                {"name": one.name, "begins": one.begins, "ends": one.ends} for one in report.outages[-20:]
            ],
        }

    def _taken(self, since: float, now: float) -> _Taken:
        """Rule 4: the days of this month, and the last one before it, whose outages may go on."""
        records = self._records
        if isinstance(records, StoreUri) or not any(records.glob(f"{KIND}-*.parquet")):
            return _Taken()
        try:
            from pairbus.spark.day_brief import newest_days  # late: Arrow is slow to import
        except ModuleNotFoundError:  # the dashboard can do without it, and says since when it counts
            return _Taken()
        first = day_at(since - 1)
        kept: dict[Path, _Taken] = self._days
        newest: list[Path] | None = None
        gone: FileNotFoundError | None = None
        # Again, if a report has written days anew meanwhile: of what it removes a part may have been read.
        while newest != (again := [one for day, (one, _) in newest_days(records).items() if day >= first]):
            newest, gone = again, None
            try:
                kept = {path: self._days.get(path) or _read_day(path, now=now) for path in newest}
            except FileNotFoundError as error:
                gone = error
        if gone is not None:  # it was no report: what is older would pass for the sum as it stands
            raise gone
        self._days = kept
        return _Taken(
            uses=[one for day in kept.values() for one in day.uses if one.minute <= latest_at(now)],
            outages=[one for day in kept.values() for one in day.outages],
            writers=[one for day in kept.values() for one in day.writers],
            bad=sum(day.bad for path, day in kept.items() if first not in path.name),
        )

    def _ledger(self, now: float) -> Ledger:
        if isinstance(self._records, StoreUri):
            return self._ledger_of_store(open_store(self._records), now)
        still_open = read_open_segments(self._records, KIND)
        closed = closed_segments(self._records, KIND)[-_MOST_SEGMENTS:]
        kept: dict[str, SegmentRead] = {}
        for path in closed:
            try:
                kept[path.name] = self._read.get(path.name) or read_segment(path)
            except FileNotFoundError:  # taken in by `cost report` this moment
                continue
        self._read = kept
        return ledger_of([*({**still_open, **kept}).values()], now=now)

    def _ledger_of_store(self, store: RecordStore, now: float) -> Ledger:
        names = [name for name in store.list(KIND) if name.endswith(".jsonl")][-_MOST_SEGMENTS:]
        read = read_side_by_side(store, [name for name in names if name not in self._read])
        known = {**self._read, **{name: parse_lines(data) for name, data in read.items()}}
        self._read = {name: known[name] for name in names}
        return ledger_of([*self._read.values()], now=now)


def _beyond(taken: _Taken, ledger: Ledger) -> list[Operation]:
    """What `cost report` has not taken in yet; rule 4."""
    last: dict[str, str] = {}
    for mark in taken.writers:
        last[mark.writer] = max(mark.id, last.get(mark.writer, ""))
    return [one for one in ledger.operations if one.id > last.get(one.writer, "")]


def _read_day(path: Path, *, now: float) -> _Taken:
    """A day that has no sums, as version 0.1.0 has left it, is left to the report; of one whose sums are
    damaged the rows are read.
    """
    from pairbus.spark.day_brief import (
        Brief,
        brief_directory,
        has_brief,
        judge_marks,
        read_marks,
        read_sums,
        uses_of,
    )

    if not any(path.glob("_*")):
        return _Taken()
    is_whole = has_brief(path)
    brief = Brief(read_sums(path), read_marks(path)) if is_whole else brief_directory(path, now=now)
    outages, writers, _, bad = judge_marks(brief.marks, now=now)
    return _Taken(uses_of(brief.sums), outages, writers, bad)


def _cost_per_hour(bill: Bill, now: float) -> Decimal:
    """What the last hour costs, as far as it is recorded, and the base charge of one."""
    since = hour_of(int(now)) - 3600
    recent = sum((line.cost for line in bill.lines if line.hour >= since), Decimal(0))
    base = sum((month.base / month.hours for month in bill.months[-1:]), Decimal(0))
    return recent * 3600 / Decimal(int(now) - since) + base


def _described(share: Share) -> dict[str, Any]:
    return {
        "stage": share.name,
        "derived": share.derived,
        "operations": share.count,
        "units": share.units,
        "unknown": share.unknown,
        "cost": money(share.cost),
    }
