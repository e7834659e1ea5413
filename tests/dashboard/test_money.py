"""Money of this month: by the rules of the bill, whether or not a report has taken the records in."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pairbus.cost.sheet import default_sheet
from pairbus.dashboard.money import MoneySum
from pairbus.ledger.operations import KIND
from pairbus.ledger.segment import SegmentWriter, closed_segments
from pairbus.spark import day_brief
from pairbus.spark.day_brief import DayDraft
from pairbus.spark.segment_rows import parse_segment, split_days

NOW = datetime(2026, 11, 2, 12, tzinfo=UTC).timestamp()
NOVEMBER = int(datetime(2026, 11, 1, tzinfo=UTC).timestamp())
OUTAGE = {"row": "outage", "writer": "w", "pair": "shop", "entity": "orders", "outage": "w/orders"}
WRITER = {"row": "writer", "writer": "w", "role": "client", "pair": "shop", "every": 60.0}


def operation(number: int, minute: int, **values: Any) -> dict[str, Any]:
    return {
        "row": "operation", "id": f"w:{number}", "writer": "w", "role": "client", "pair": "shop",
        "namespace": "shop", "entity": "orders", "stage": "ping", "kind": "ping", "size_class": 1,
        "minute": minute, "outage": None, "count": 10_000_000, "unknown": 0, "bytes": 0, **values,
    }  # fmt: skip


ROWS = [
    operation(1, NOVEMBER - 60),
    operation(2, NOVEMBER, outage="w/orders"),
    operation(3, NOVEMBER + 86_400, size_class=2, outage="w/orders"),
    operation(4, NOVEMBER + 86_460, count=-1),
    {**OUTAGE, "id": "w:5", "begins": True, "at": NOVEMBER - 30.0},
    {**WRITER, "id": "w:6", "phase": "interval", "at": NOW - 60},
]


def write(records: Path, rows: list[dict[str, Any]]) -> None:
    writer = SegmentWriter(records, KIND)
    writer.append(rows)
    writer.close()


def take_in(records: Path, *, is_killed: bool = False) -> None:
    """As `pairbus cost report` does, without Spark. One that is killed leaves the segments."""
    for path in closed_segments(records, KIND):
        for day, rows in split_days(parse_segment(path.read_bytes(), path.name)):
            directory = records / f"{KIND}-{day}-000001.parquet"
            with DayDraft.open(directory, rows.schema, part=0, now=NOW) as draft:
                draft.add(rows)
        if not is_killed:
            path.unlink()


@pytest.fixture
def records(tmp_path: Path) -> Path:
    write(tmp_path, ROWS)
    return tmp_path


def test_money_is_that_of_this_month(records: Path) -> None:
    """A budget is for a month: 30 million operations, of which 17 cost 0.80, and 25 hours."""
    found = MoneySum(records, default_sheet()).read(now=NOW)
    assert found["units"] == 30_000_000
    assert found["used"] == "13.600000"
    assert found["since"] == NOVEMBER
    assert found["is_outage"]
    assert found["in_outages"] == "13.600000"


def test_what_a_report_has_taken_in_is_not_forgotten(records: Path) -> None:
    money = MoneySum(records, default_sheet())
    before = money.read(now=NOW)
    take_in(records)
    assert not closed_segments(records, KIND)
    for again in (money, money, MoneySum(records, default_sheet())):
        assert {**again.read(now=NOW), "bad_rows": 0} == {**before, "bad_rows": 0}
    more = operation(7, int(NOW) // 60 * 60)
    write(records, [more])
    assert money.read(now=NOW)["units"] == 40_000_000


def test_what_a_report_has_taken_in_and_not_yet_removed_counts_once(records: Path) -> None:
    """While one runs, and after one that was killed, both are there."""
    money = MoneySum(records, default_sheet())
    before = money.read(now=NOW)
    take_in(records, is_killed=True)
    assert money.read(now=NOW)["units"] == before["units"]
    write(records, [operation(7, int(NOW) // 60 * 60)])
    assert money.read(now=NOW)["units"] == before["units"] + 10_000_000


def test_days_that_a_report_writes_anew_are_read_anew(records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it had listed is gone when it is read, and nothing is missing from the sum for that."""
    take_in(records)
    before = MoneySum(records, default_sheet()).read(now=NOW)
    listed = day_brief.newest_days

    def list_beside_a_report(directory: Path) -> dict[str, tuple[Path, int]]:
        found = listed(directory)
        for path, number in found.values():
            if number == 1:
                path.rename(path.with_name(path.name.replace("000001", "000002")))
        return found

    monkeypatch.setattr(day_brief, "newest_days", list_beside_a_report)
    assert MoneySum(records, default_sheet()).read(now=NOW) == before


def test_days_of_a_month_that_is_over_are_not_kept(records: Path) -> None:
    """Also where nothing has come since: a dashboard runs for months."""
    take_in(records)
    money = MoneySum(records, default_sheet())
    assert money.read(now=NOW)["bad_rows"] == 1
    later = NOW + 62 * 86_400
    assert money.read(now=later) == MoneySum(records, default_sheet()).read(now=later)


@pytest.mark.parametrize("name", ["_sums-00000", "_told-00000"])
@pytest.mark.parametrize("is_gone", [True, False])
def test_of_a_day_whose_sums_are_damaged_the_rows_are_read(records: Path, name: str, is_gone: bool) -> None:
    take_in(records)
    before = MoneySum(records, default_sheet()).read(now=NOW)
    for day, _ in day_brief.newest_days(records).values():
        data = (day / name).read_bytes()
        (day / name).write_bytes(data[:-70] + bytes([data[-70] ^ 1]) + data[-69:])
        if is_gone:
            (day / name).unlink()
    assert MoneySum(records, default_sheet()).read(now=NOW) == before


def test_a_day_whose_file_is_gone_is_told_and_no_older_sum_passed_off(records: Path) -> None:
    take_in(records)
    day = next(path for path, _ in day_brief.newest_days(records).values())
    next(day.glob("*sums*")).unlink()
    rows = next(day.glob("*.parquet"))
    rows.rename(records / "elsewhere")
    rows.symlink_to(records / "nowhere")
    money = MoneySum(records, default_sheet())
    with pytest.raises(FileNotFoundError):
        money.read(now=NOW)
    (records / "elsewhere").replace(rows)
    assert money.read(now=NOW) == MoneySum(records, default_sheet()).read(now=NOW)
