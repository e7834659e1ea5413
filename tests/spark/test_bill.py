"""The bill on Spark is the bill of the plain reference, on the same records, however they come in."""

import csv
import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import pairbus.spark
from pairbus.cli.main import main
from pairbus.cost.bill import BillTerms, make_bill
from pairbus.cost.outages import merge_outages
from pairbus.cost.report import Report, report_of
from pairbus.cost.sheet import PriceSheet, PriceStep, Tiers, default_sheet
from pairbus.cost.system import System
from pairbus.errors import PairbusError
from pairbus.ledger.operations import KIND, find_gaps, read_operations, sight_outages
from pairbus.ledger.segment import SegmentWriter, closed_segments
from pairbus.spark.bill import bill_ledger
from pairbus.spark.ledger_table import LedgerTable
from pairbus.spark.operations import day_directories, take_segments
from pairbus.stages import Stage
from pairbus.stores.places import RecordPlace
from pairbus.stores.store import open_store
from tests.object_places import make_s3_bucket, place_of

# Each is some jobs, the first of which Java runs uncompiled: seconds alone, a minute beside other work.
pytestmark = pytest.mark.timeout(240)
# Tiers that a test reaches: the first thousand free, then two steps.
SHEET: PriceSheet = replace(
    default_sheet(),
    standard_operations=Tiers(
        (
            PriceStep(Decimal("0.001"), Decimal(0)),
            PriceStep(Decimal("0.02"), Decimal("0.80")),
            PriceStep(None, Decimal("0.50")),
        )
    ),
)
TERMS = BillTerms(copies={"orders": 3})
SYSTEM = System(rate=0.01, outages=2, outage_hours=1)
FIRST = int(datetime(2026, 10, 30, tzinfo=UTC).timestamp())
NOW = FIRST + 10 * 86400.0
PATIENCE = 1800.0


def make_rows(seed: int = 7, operations: int = 600) -> Iterator[dict[str, Any]]:
    """Two pairs over the end of a month, an outage of each seen by two clients, one of them killed in it."""
    dice = random.Random(seed)
    outages = {}
    numbers = Counter[str]()
    for pair in ("contoso", "fabrikam"):
        for client in range(2):
            writer = f"{pair}-client-{client}"
            about = {"writer": writer, "pair": pair}
            begins = FIRST + 86400.0 + client * 300
            outages[writer] = f"{writer}/orders"
            mark = {"entity": "orders", "outage": outages[writer], **about}
            yield {"row": "outage", "id": f"{writer}:b", "begins": True, "at": begins, **mark}
            last = begins + 7200.0
            if client == 0:
                yield {"row": "outage", "id": f"{writer}:e", "begins": False, "at": begins + 3600, **mark}
            for phase, at in (("begin", FIRST), ("interval", last), *([("end", last + 60)] * (client == 0))):
                yield {
                    "row": "writer", "id": f"{writer}:{phase}", "role": "client",
                    "phase": phase, "at": float(at), "every": 60.0, **about,
                }  # fmt: skip
    for _ in range(operations):
        pair = dice.choice(["contoso", "fabrikam"])
        role = dice.choice(["client", "pump"])
        writer = f"{pair}-{role}-{dice.randrange(2)}"
        stage = dice.choice(list(Stage))
        number, numbers[writer] = numbers[writer], numbers[writer] + 1
        yield {
            "row": "operation",
            "id": f"{writer}:{number:09d}",
            "writer": writer,
            "role": role,
            "pair": pair,
            "namespace": pair,
            "entity": dice.choice(["orders", "Orders", "invoices", "contoso/x-servicebus-transfer/0"]),
            "stage": stage,
            "kind": dice.choice(["send", "send_refused"]) if stage == "send" else stage,
            "size_class": dice.choice([1, 1, 1, 2, 4]),
            "minute": FIRST + dice.randrange(4 * 1440) * 60,
            "outage": outages.get(writer) if dice.random() < 0.3 else None,
            "count": dice.randrange(200),
            "unknown": dice.choice([0, 0, 0, 3]),
            "bytes": dice.randrange(1 << 24),
        }


BAD = (
    {"row": "operation", "id": "x", "count": 5},
    {"row": "nothing", "id": "y"},
    {**next(row for row in make_rows() if row["row"] == "operation"), "id": "z", "count": -1},
    {**next(row for row in make_rows() if row["row"] == "operation"), "id": "w", "stage": "theft"},
    {**next(row for row in make_rows() if row["row"] == "operation"), "id": "v", "minute": 10**15},
    {**next(row for row in make_rows() if row["row"] == "outage"), "id": "u", "at": 1e300},
    # Clocks that were wrong: these would make months of their own.
    {**next(row for row in make_rows() if row["row"] == "operation"), "id": "t", "minute": 60},
    {**next(row for row in make_rows() if row["row"] == "operation"), "id": "s", "minute": 2_082_758_400},
    {**next(row for row in make_rows() if row["row"] == "outage"), "id": "r", "at": 60.0},
)


def contradict(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows that have the ids of others of their day, and say something else; which came first is not told."""
    operations = [row for row in rows if row["row"] == "operation"]
    writers = [row for row in rows if row["row"] == "writer"]
    return [
        {**operations[0], "count": operations[0]["count"] + 1},
        {**operations[1], "outage": "unheard of", "entity": "ORDERS"},
        {**operations[2], "bytes": 0},
        {**writers[0], "every": 61.0},
    ]


CONTRADICTIONS = contradict([*make_rows()])
ROWS = [*make_rows(), *CONTRADICTIONS]


def write(records: Path, rows: Sequence[dict[str, Any]], torn: bool = False) -> None:
    writer = SegmentWriter(records, KIND)
    writer.append(rows)
    path = writer.close()
    assert path is not None
    if torn:
        with path.open("a", encoding="ascii") as file:
            file.write('\n  \n{"row":"operation","id":"to')


def reference(records: Path) -> Report:
    """The same in plain Python."""
    ledger = read_operations(closed_segments(records, KIND), now=NOW)
    spans = sight_outages(ledger.outages, ledger.writers, now=NOW, patience=PATIENCE)
    outages = merge_outages(spans)
    return report_of(
        make_bill(ledger.operations, outages, SHEET, TERMS),
        ledger.operations,
        outages,
        SHEET,
        gaps=find_gaps(ledger.writers, now=NOW, patience=PATIENCE),
        bad_rows=ledger.bad,
        system=SYSTEM,
    )


def on_spark(spark: Any, records: Path, **options: Any) -> Report:
    return bill_ledger(lambda: spark, records, SHEET, now=NOW, terms=TERMS, system=SYSTEM, **options).report


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Report:
    records = tmp_path_factory.mktemp("reference")
    write(records, [*ROWS, *BAD], torn=True)
    return reference(records)


def test_spark_bills_what_the_reference_does(spark: Any, expected: Report, tmp_path: Path) -> None:
    records, out = tmp_path / "records", tmp_path / "out"
    rows = [*ROWS, *BAD]
    write(records, rows[::2])
    write(records, rows[1::2], torn=True)
    write(records, rows[100:140])  # told twice, and taken in together
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Auckland")  # somebody's own session
    try:
        found = on_spark(spark, records, out=out)
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert found.to_dict() == expected.to_dict()
    assert list(found.timeline) == list(expected.timeline)
    assert found.used == expected.used
    assert found.bad_rows == len(BAD) + len(CONTRADICTIONS) + 1
    assert [month.month for month in found.months] == ["2026-10", "2026-11"]
    assert [gap.writer for gap in found.gaps] == ["contoso-client-1", "fabrikam-client-1"]
    with (out / "lines.csv").open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert "0.000000000000000000" in {line["cost"] for line in lines}  # and not 0E-18
    assert not any("E" in line["cost"] for line in lines)
    assert sum(Decimal(line["cost"]) for line in lines) == found.used
    assert spark.read.parquet(str(out / "lines.parquet")).count() == len(lines)
    for brief in records.glob("operations-*.parquet/_*"):  # as version 0.1.0 has left it
        brief.unlink()
    assert on_spark(spark, records).to_dict() == expected.to_dict()


@pytest.mark.long
def test_objects_of_a_store_are_billed_the_same(spark: Any, expected: Report, moto: str) -> None:
    """They have no sums, and are read each time; what stands in two of them counts once."""
    place = place_of(make_s3_bucket(moto))
    rows = [*ROWS, *BAD]
    for number, some in enumerate((rows[::2], rows[1::2], rows[100:140])):
        lines = "".join(json.dumps(row) + "\n" for row in some) + ("torn" if number == 1 else "")
        open_store(place).put(f"{KIND}-{int(FIRST * 1000):013d}-{number:032x}.jsonl", lines.encode())
    for _ in range(2):
        found = bill_ledger(lambda: spark, place, SHEET, now=NOW, terms=TERMS, system=SYSTEM).report
        assert found.to_dict() == expected.to_dict()


@pytest.mark.long
def test_what_comes_late_or_twice_is_counted_once(spark: Any, expected: Report, tmp_path: Path) -> None:
    records, kept = tmp_path / "records", tmp_path / "kept"
    rows = [*ROWS, *BAD]
    late = [row for row in rows if row.get("minute", 0) >= FIRST + 3 * 86400]
    early = [row for row in rows if row not in late]
    write(records, early, torn=True)
    shutil.copytree(records, kept)
    assert take_segments(lambda: spark, records, now=NOW).segments == 1
    assert closed_segments(records, KIND) == []
    write(records, late)
    for path in kept.iterdir():  # a backup that somebody put back
        shutil.copy(path, records / path.name)
    assert on_spark(spark, records).to_dict() == expected.to_dict()
    alone = on_spark(spark, records, month="2026-11")
    assert list(alone.months) == [expected.months[1]]
    assert alone.used < expected.used
    # Segments of lines that cannot be read are of another month; what contradicts others has its own time.
    before = [row for row in CONTRADICTIONS if row.get("minute", 0) < FIRST + 2 * 86400]
    assert on_spark(spark, records, month="2026-10").bad_rows == len(before) > 0


def test_a_report_beside_one_that_takes_segments_in_misses_no_day(
    spark: Any, expected: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The days that it is about to read are written anew and removed."""
    records = tmp_path / "records"
    rows = [*ROWS, *BAD]
    write(records, rows[::2], torn=True)
    take_segments(lambda: spark, records, now=NOW)
    late = iter([rows[1::2]])
    opened = LedgerTable.open

    def open_beside_another(*given: Any, **options: Any) -> LedgerTable:
        ledger = opened(*given, **options)
        for some in late:
            write(records, some)
            take_segments(lambda: spark, records, now=NOW)
        return ledger

    monkeypatch.setattr(LedgerTable, "open", open_beside_another)
    assert on_spark(spark, records).to_dict() == expected.to_dict()


def test_days_that_are_written_anew_when_they_have_just_been_listed_are_read_anew(
    spark: Any, expected: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have no brief any more, nor anything else, and are no days of version 0.1.0."""
    records = tmp_path / "records"
    write(records, [*ROWS, *BAD], torn=True)
    take_segments(lambda: spark, records, now=NOW)

    def list_beside_another(place: RecordPlace) -> list[Path]:
        found = day_directories(place)
        for day in found:
            if "000001" in day.name:
                day.rename(day.with_name(day.name.replace("000001", "000002")))
        return found

    monkeypatch.setattr("pairbus.spark.ledger_table.day_directories", list_beside_another)
    assert on_spark(spark, records).to_dict() == expected.to_dict()


class Borrowed:
    """A session that the command may stop as often as it likes."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def stop(self) -> None:
        """Others need it."""


def test_the_command_writes_a_page_and_prints_the_sums(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairbus.spark, "open_session", lambda **_: Borrowed(spark))
    records, out = tmp_path / "state" / "records", tmp_path / "out"
    write(records, list(make_rows(operations=40)))
    arguments = ["cost", "report", "--state", str(tmp_path / "state"), "--out", str(out), "--json"]
    assert main(arguments) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["taken_in"]["segments"] == 1
    assert shown["units"] > 0
    assert Decimal(shown["total"]) == Decimal(shown["base"]) + Decimal(shown["used"])
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "Billed operations over time" in page
    assert (out / "lines.csv").exists()

    def start_none(**_: Any) -> Any:
        raise AssertionError("there is nothing for Spark to do")

    monkeypatch.setattr(pairbus.spark, "open_session", start_none)
    assert main(arguments) == 0
    again = json.loads(capsys.readouterr().out)
    assert again == {**shown, "taken_in": {"segments": 0, "adopted": 0, "days": []}}
    assert (out / "report.html").exists()
    # A month that was mistyped looks like one that cost nothing.
    assert main([*arguments[:-1], "--month", "2020-01"]) == 0
    assert capsys.readouterr().out.startswith("nothing is on record of this time\n")


def test_a_file_of_the_ledger_that_was_removed_makes_the_bill_incomplete(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment, or a day that was taken in; what comes back is not missing any more."""
    monkeypatch.setattr(pairbus.spark, "open_session", lambda **_: Borrowed(spark))
    records, out = tmp_path / "records", tmp_path / "out"
    rows = [row for row in make_rows(operations=400) if row["row"] == "operation"]
    in_order = sorted(rows, key=lambda row: row["id"][-9:])
    for first in range(0, 400, 100):
        write(records, in_order[first : first + 100])
    removed = closed_segments(records, KIND)[1]
    kept = tmp_path / removed.name
    removed.rename(kept)
    arguments = ["cost", "report", "--records", str(records), "--out", str(out)]
    assert main(arguments) == 4
    assert "The bill is incomplete. Rows of contoso-client-" in capsys.readouterr().out
    assert "The bill is incomplete." in (out / "report.html").read_text(encoding="utf-8")
    assert sum(one.rows for one in on_spark(spark, records).missing) == 100
    kept.rename(removed)
    assert main(arguments) == 0
    capsys.readouterr()
    day = day_directories(records)[1]
    day.rename(tmp_path / day.name)
    assert main([*arguments, "--json"]) == 4
    missing = {one["writer"]: one["rows"] for one in json.loads(capsys.readouterr().out)["missing"]}
    begins = FIRST + 86_400
    left = {row["writer"]: row["id"] for row in in_order if not begins <= row["minute"] < begins + 86_400}
    assert missing == Counter(
        row["writer"]
        for row in in_order
        if begins <= row["minute"] < begins + 86_400 and row["id"] < left[row["writer"]]
    )
    (tmp_path / day.name).rename(day)
    assert main(arguments) == 0


@pytest.mark.parametrize("times", [1, 2])
def test_late_rows_go_to_none_that_were_edited_or_removed(spark: Any, tmp_path: Path, times: int) -> None:
    """Nor to what was written when such had come before; what they have come to is not lost by it."""
    rows = [row for row in make_rows(operations=90) if row["row"] == "operation"]
    for number in range(times):
        write(tmp_path, rows[number:80:times])
        on_spark(spark, tmp_path)
    write(tmp_path, rows[80:])
    day = day_directories(tmp_path)[1]
    (file,) = day.glob("*.parquet")
    data = file.read_bytes()
    file.write_bytes(data.replace(b"contoso", b"kontoso"))
    (day / f".{file.name}.crc").unlink(missing_ok=True)
    with pytest.raises(PairbusError, match=f"{file} was edited"):
        on_spark(spark, tmp_path)
    file.unlink()
    with pytest.raises(PairbusError, match=f"{file} is gone"):
        on_spark(spark, tmp_path)
    file.write_bytes(data)
    write(tmp_path / "reference", rows)
    assert on_spark(spark, tmp_path).to_dict() == reference(tmp_path / "reference").to_dict()


def test_what_is_damaged_in_a_day_changes_no_bill_or_is_named(spark: Any, tmp_path: Path) -> None:
    write(tmp_path, [*make_rows(operations=40)])
    whole = on_spark(spark, tmp_path).to_dict()
    day, other = day_directories(tmp_path)[:2]
    for brief in (day / "_sums-00000", other / "_told-00000"):
        os.truncate(brief, 100)
    assert on_spark(spark, tmp_path).to_dict() == whole, "the rows are there"
    (rows,) = day.glob("*.parquet")
    data = rows.read_bytes()
    rows.write_bytes(data.replace(b"contoso-client-0", b"contoso-client-9"))
    (day / "_sums-00000").unlink()
    with pytest.raises(PairbusError, match=f"{rows} was edited"):
        on_spark(spark, tmp_path)
    rows.write_bytes(data)
    assert on_spark(spark, tmp_path).to_dict() == whole
    os.truncate(rows, 100)
    (day / "_told-00000").unlink()
    with pytest.raises(PairbusError, match=f"{rows} cannot be read"):
        on_spark(spark, tmp_path)
    rows.unlink()
    assert on_spark(spark, tmp_path).missing


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--records", "nowhere"], "/nowhere: clients with a state_dir write one"),
        (["--records", ".", "--copies", "orders"], "ENTITY=N"),
        (["--records", ".", "--copies", "orders=99999"], "0 to 10,000"),
        (["--records", ".", "--copies", "orders=1", "--copies", "Orders=2"], "named twice"),
        (["--records", ".", "--month", "November"], "written as 2026-11"),
        (["--records", ".", "--month", "0000-01"], "written as 2026-11"),
        (["--records", ".", "--month", "9999-12"], "written as 2026-11"),
    ],
)
def test_a_mistake_is_told_before_spark_starts(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cost", "report", *arguments]) == 2
    assert complaint in capsys.readouterr().err


def test_a_ledger_without_records_costs_nothing(spark: Any, tmp_path: Path) -> None:
    found = on_spark(spark, tmp_path / "none")
    assert (found.total, found.units, found.bad_rows) == (Decimal(0), 0, 0)
    assert not found.by_stage
    assert json.dumps(found.to_dict())
