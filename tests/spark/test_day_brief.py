"""Briefs say of rows what a bill asks for, however rows are cut into parts, and whoever reads them when."""

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.cost.bill import hour_of, make_bill
from pairbus.cost.outages import OutageBook, merge_outages
from pairbus.cost.sheet import default_sheet
from pairbus.errors import PairbusError
from pairbus.ledger.operations import (
    EARLIEST,
    Operation,
    OutageSpan,
    WriterMark,
    find_gaps,
    is_dated,
    parse_row,
)
from pairbus.spark.day_brief import (
    Brief,
    DayDraft,
    attribute,
    brief_of,
    has_brief,
    has_copies,
    join_briefs,
    judge_marks,
    read_marks,
    read_sums,
    refuse_edited,
    uses_of,
    write_brief,
)
from pairbus.spark.segment_rows import parse_segment
from pairbus.stages import Stage

from .test_segment_rows import OPERATION

NOW = 1_800_000_000.0
SHEET = default_sheet()
# About the boundaries: before there was a ledger, of late, and a day ahead of the clock.
MINUTES = st.builds(
    lambda near, minutes: int(near) // 60 * 60 + 60 * minutes,
    st.sampled_from([EARLIEST, NOW - 7200, NOW + 86_400]),
    st.integers(-90, 90),
)
OPERATIONS = st.builds(
    Operation,
    id=st.uuids().map(str),
    writer=st.just("w"),
    role=st.sampled_from(["client", "pump"]),
    pair=st.sampled_from(["contoso", "fabrikam"]),
    namespace=st.just("here"),
    entity=st.sampled_from(["orders", "Orders"]),
    stage=st.sampled_from([Stage.SEND, Stage.BACKLOG_RECEIVE, Stage.IDLE]),
    kind=st.sampled_from(["send", "other"]),
    size_class=st.integers(1, 4),
    minute=MINUTES,
    outage=st.sampled_from([None, None, "seen", "unheard of"]),
    count=st.integers(0, 9),
    unknown=st.integers(0, 2),
    bytes=st.integers(0, 99),
)
WRITERS = st.builds(
    WriterMark,
    id=st.uuids().map(str),
    writer=st.sampled_from(["a", "b"]),
    role=st.just("client"),
    pair=st.just("contoso"),
    phase=st.sampled_from(["begin", "interval", "end"]),
    at=MINUTES.map(float),
    every=st.just(60.0),
)
ROWS = st.lists(st.one_of(OPERATIONS, WRITERS, st.none()), max_size=12)
BOOK = OutageBook(
    merge_outages(
        [
            OutageSpan("seen", "contoso", NOW - 7000, NOW - 3600),
            OutageSpan("later", "contoso", NOW - 1800, None),
            OutageSpan("other", "fabrikam", NOW + 86_400, None),
        ]
    )
)


def table_of(rows: list[Any]) -> pa.Table:
    """As it comes from a segment; a line that is none for None."""
    names = {Operation: "operation", WriterMark: "writer"}
    lines = [
        "no row"
        if row is None
        else json.dumps({"row": names[type(row)], **{name: getattr(row, name) for name in row.__slots__}})
        for row in rows
    ]
    return parse_segment("".join(f"{line}\n" for line in lines).encode(), "operations-1800000000000-0a.jsonl")


def moment_of(row: Operation | WriterMark) -> float:
    return row.minute if isinstance(row, Operation) else row.at


def usage(operations: list[Operation], *, now: float) -> Counter[tuple[Any, ...]]:
    """The sums by the hour, as the plain rules have them."""
    found: Counter[tuple[Any, ...]] = Counter()
    for one in operations:
        if is_dated(one.minute, now=now):
            place = (one.pair, one.entity, one.stage, one.kind, BOOK.name(one), hour_of(one.minute))
            for name in ("count", "units", "unknown", "bytes"):
                found[*place, name] += getattr(one, name)
    return +found


def told_usage(sums: pa.Table, *, now: float) -> Counter[tuple[Any, ...]]:
    known = sums.filter(pa.array([is_dated(slot, now=now) for slot in sums["slot"].to_pylist()], pa.bool_()))
    found: Counter[tuple[Any, ...]] = Counter()
    for row in attribute(known, BOOK).to_pylist():
        place = tuple(row[name] for name in ("pair", "entity", "stage", "kind", "outage", "hour"))
        for name in ("count", "units", "unknown", "bytes"):
            found[*place, name] += row[name]
    return +found


@given(ROWS, st.integers(1, 5), st.sampled_from([0, 60, 5400, 90_000]))
def test_a_brief_is_what_its_rows_come_to(rows: list[Any], step: int, later: int) -> None:
    """In parts of any size, and for whoever reads it later, when the time of some rows has come."""
    table, now = table_of(rows), NOW + later
    parts = [brief_of(table.slice(begin, step), now=NOW) for begin in range(0, table.num_rows, step)]
    found = join_briefs(parts, now=NOW) if parts else brief_of(table, now=NOW)
    operations = [one for one in rows if isinstance(one, Operation)]
    assert told_usage(found.sums, now=now) == usage(operations, now=now)

    marks = found.marks.to_pylist()
    bad = sum(one["number"] for one in marks if one["row"] == "bad" or not is_dated(one["at"], now=now))
    moments = [
        None if one is None else getattr(one, "minute", None) or getattr(one, "at", None) for one in rows
    ]
    assert bad == sum(moment is None or not is_dated(moment, now=now) for moment in moments)

    writers = [one for one in rows if isinstance(one, WriterMark) and is_dated(one.at, now=now)]
    told = [
        WriterMark(**{name: one[name] for name in WriterMark.__slots__})
        for one in marks
        if one["row"] == "writer" and is_dated(one["at"], now=now)
    ]
    assert set(told) <= set(writers)
    assert find_gaps(told, now=now, patience=60.0) == find_gaps(writers, now=now, patience=60.0)


def test_a_brief_lies_beside_its_rows_and_is_read_again(tmp_path: Path) -> None:
    row = parse_row({**OPERATION, "minute": int(NOW) // 60 * 60})
    brief = brief_of(table_of([row, None]), now=NOW)
    assert not has_brief(tmp_path)
    for part in range(2):
        write_brief(brief, tmp_path, part=part, rows={})
    assert has_brief(tmp_path)
    assert not list(tmp_path.glob("*.parquet")), "whoever reads rows does not meet it"
    found = Brief(read_sums(tmp_path), read_marks(tmp_path))
    assert [one["count"] for one in found.sums.to_pylist()] == [3, 3]
    assert join_briefs([found], now=NOW).sums["count"].to_pylist() == [6]
    assert [one["row"] for one in found.marks.to_pylist()] == ["bad", "bad"]


@pytest.mark.parametrize("name", ["_sums-00001", "_told-00001"])
@pytest.mark.parametrize("deed", [Path.unlink, lambda file: os.truncate(file, 100)])
def test_a_brief_of_which_a_part_is_gone_or_damaged_is_none(
    name: str, deed: Callable[[Path], None], tmp_path: Path
) -> None:
    """Its sums would be less than those of the rows."""
    brief = brief_of(table_of([parse_row({**OPERATION, "minute": int(NOW) // 60 * 60})]), now=NOW)
    for part in range(2):
        write_brief(brief, tmp_path, part=part, rows={})
    deed(tmp_path / name)
    assert not has_brief(tmp_path)
    for file in tmp_path.glob("*-00001"):
        file.unlink()
    assert has_brief(tmp_path)
    (tmp_path / "part-00001.parquet").touch()
    assert not has_brief(tmp_path), "of these rows there are no sums"


@pytest.mark.parametrize("name", ["_sums-00000", "_told-00000"])
def test_a_brief_of_which_a_bit_was_changed_is_none(name: str, tmp_path: Path) -> None:
    """Wherever it is: Parquet has checksums of its pages, and none of what tells where those are."""
    rows = [
        parse_row({**OPERATION, "id": f"w:{n}", "minute": int(NOW) // 60 * 60, "count": n}) for n in (1, 2)
    ]
    write_brief(brief_of(table_of([*rows, None]), now=NOW), tmp_path, part=0, rows={})
    file = tmp_path / name
    data = file.read_bytes()
    for place in range(0, len(data), 7):
        file.write_bytes(data[:place] + bytes([data[place] ^ 16]) + data[place + 1 :])
        assert not has_brief(tmp_path), place
    for cut in (b"", data[:-1], data + b"0"):
        file.write_bytes(cut)
        assert not has_brief(tmp_path), len(cut)
    file.write_bytes(data)
    assert has_brief(tmp_path)


def test_rows_of_which_a_bit_was_changed_are_refused_by_name(tmp_path: Path) -> None:
    """Most are read as they are: what they say is another thing."""
    rows = table_of([parse_row({**OPERATION, "id": f"w:{n}"}) for n in (1, 2)]).drop_columns(["day"])
    with DayDraft.open(tmp_path, rows.schema, part=0, now=NOW) as draft:
        draft.add(rows)
    file = tmp_path / "part-00000.parquet"
    data = file.read_bytes()
    for place in range(0, len(data), 7):
        file.write_bytes(data[:place] + bytes([data[place] ^ 16]) + data[place + 1 :])
        with pytest.raises(PairbusError, match=f"{file} was edited"):
            refuse_edited(tmp_path)
    file.write_bytes(data)
    refuse_edited(tmp_path)
    file.unlink()
    with pytest.raises(PairbusError, match=f"{file} is gone: .* or remove {tmp_path}, and"):
        refuse_edited(tmp_path)
    (tmp_path / "_told-00000").unlink()
    refuse_edited(tmp_path)  # as version 0.1.0 has left it


def test_sums_that_cannot_be_true_are_refused_and_do_not_wrap_around() -> None:
    row = parse_row({**OPERATION, "minute": int(NOW) // 60 * 60, "count": 10**9, "bytes": 10**13})
    brief = brief_of(table_of([row]), now=NOW)
    large = brief.sums.set_column(
        brief.sums.column_names.index("bytes"), "bytes", pa.chunked_array([pa.array([2**62], pa.int64())])
    )
    once = join_briefs([Brief(large, brief.marks), brief], now=NOW)
    assert once.sums["bytes"].to_pylist() == [2**62 + 10**13]
    with pytest.raises(PairbusError, match="bytes comes to more than 9,223,372,036,854,775,807"):
        join_briefs([Brief(large, brief.marks)] * 2, now=NOW)


def test_a_brief_can_be_billed_in_memory() -> None:
    rows = [
        parse_row({**OPERATION, "id": f"w:{number}", "minute": int(NOW) // 60 * 60, "size_class": number})
        for number in (1, 2, 3)
    ]
    found = uses_of(brief_of(table_of(rows), now=NOW).sums)
    operations = [row for row in rows if isinstance(row, Operation)]
    assert make_bill(found, [], SHEET) == make_bill(operations, [], SHEET)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9)), max_size=20), st.integers(0, 20))
def test_the_numbers_of_rows_are_told_however_they_are_cut(rows: list[tuple[str, int]], cut: int) -> None:
    """Also those that are there twice; an id that is no number of its writer is none."""
    ids = [{"writer": writer, "id": f"{writer}:{number:09d}"} for writer, number in rows]
    others = [{"id": one} for one in ("w:1", "a:000000001", "w:0000000001", "w:00000000x", "000000001")]
    made = [parse_row({**OPERATION, **told}) for told in [*ids, *others]]
    parts = [brief_of(table_of(some), now=NOW) for some in (made[:cut], made[cut:])]
    for whole in (brief_of(table_of(made), now=NOW), join_briefs(parts, now=NOW)):
        runs = judge_marks(whole.marks, now=NOW).runs
        assert sum(run.rows for run in runs) == len(rows)
        told = [(run.writer, number) for run in runs for number in range(run.first, run.last + 1)]
        assert sorted(told) == sorted(set(rows))
        assert {run.pair for run in runs} <= {"contoso"}


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (["w:000000000", "w:000000001", "w:000000003"], False),
        (["w:000000000", "w:000000001", "w:000000000"], True),
        (["w:000000000", "other"], False),
        (["w:000000000", "other", "other"], True),
        (["w:000000000", "other", "w:000000000"], True),
    ],
)
def test_a_day_tells_whether_a_row_may_be_there_twice(ids: list[str], expected: bool, tmp_path: Path) -> None:
    """In one part, or in several."""
    rows = [parse_row({**OPERATION, "id": one}) for one in ids]
    for directory, parts in ((tmp_path / "one", [rows]), (tmp_path / "more", [rows[:2], rows[2:]])):
        for part, some in enumerate(filter(None, parts)):
            table = table_of(some).drop_columns(["day"])
            with DayDraft.open(directory, table.schema, part=part, now=NOW) as draft:
                draft.add(table)
        assert has_copies(directory) is expected
