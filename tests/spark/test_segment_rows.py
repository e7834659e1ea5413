"""Segments parsed by columns: every line is what it is when it is read by itself, whatever stands there."""

import json
import random
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pairbus.ledger.operations import parse_row
from pairbus.ledger.seal import seal_rows
from pairbus.ledger.segment import parse_lines
from pairbus.plumbing.json_text import parse_json
from pairbus.spark.segment_rows import SCHEMA, parse_segment, split_days

FILE = "operations-1767225600123-0a1b.jsonl"
BEGUN = 1767225600.123
OPERATION = {
    "row": "operation", "id": "w:1", "writer": "w", "role": "client", "pair": "contoso", "namespace": "here",
    "entity": "orders", "stage": "send", "kind": "send", "size_class": 1, "minute": 1767225600,
    "outage": None, "count": 3, "unknown": 0, "bytes": 900,
}  # fmt: skip
OUTAGE = {
    "row": "outage", "id": "w:b", "writer": "w", "pair": "contoso", "entity": "orders", "outage": "w/orders",
    "begins": True, "at": 1767312000.5,
}  # fmt: skip
WRITER = {
    "row": "writer", "id": "w:e", "writer": "w", "role": "client", "pair": "contoso", "phase": "end",
    "at": 1767398400, "every": 60.0,
}  # fmt: skip
ODD = st.sampled_from(
    [None, True, -1, 0, 2**62, 2**63 - 1, 2**63, 10**400, 1.5, 1e15, 1e300, -0.0, "", "send", "pump",
     "ü\x00\n", "\ud800", "\x1b[2J", [], {}, [1], {"a": 1}]
)  # fmt: skip


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    row: dict[str, Any] = dict(draw(st.sampled_from([OPERATION, OUTAGE, WRITER])))
    if draw(st.booleans()):
        row[draw(st.sampled_from([*OPERATION, *WRITER, "begins", "new"]))] = draw(ODD)
    if draw(st.integers(0, 4)) == 0:
        del row[draw(st.sampled_from(sorted(row)))]
    is_ascii = draw(st.booleans()) or "\ud800" in row.values()
    text = json.dumps(row, ensure_ascii=is_ascii)
    damage = draw(st.integers(0, 19))
    if damage == 0:
        return text.encode()[: draw(st.integers(0, len(text)))]
    if damage == 1:
        return draw(
            st.sampled_from(
                [b"", b"  ", b"\xff\xfe", b"[]", b"7", b"{}{}", b"nonsense", b"NaN", text.encode() * 2]
            )
        )
    if damage == 2:
        return text.replace('"id"', '"pair": "twice", "id"').encode()
    return text.encode()


def expected(line: bytes) -> dict[str, Any]:
    """By the rules of one row."""
    empty = dict.fromkeys(SCHEMA.names)
    try:
        found = parse_json(line)
    except ValueError:
        found = None
    row = parse_row(found) if isinstance(found, dict) else None
    if row is None:
        return {**empty, "row": "bad", "at": BEGUN, "raw": line.decode("utf-8", "replace")}
    return {**empty, "row": found["row"], **asdict(row)}


def told(row: dict[str, Any]) -> str:
    """Without what the tables add: the id of a bad row, and the day."""
    left = {"day", "id"} if row["row"] == "bad" else {"day"}
    plain = {name: str(value) if isinstance(value, str) else value for name, value in row.items()}
    return repr({name: value for name, value in plain.items() if name not in left})


@given(st.lists(lines(), max_size=6), st.booleans())
def test_each_line_is_what_it_is_by_itself(given_lines: list[bytes], is_torn: bool) -> None:
    data = b"\n".join(given_lines) + (b"" if is_torn else b"\n")
    table = parse_segment(data, FILE)
    assert table.schema.names == SCHEMA.names
    wanted = [expected(line) for line in data.splitlines() if line.strip()]
    rows = table.to_pylist()
    assert sorted(map(told, rows)) == sorted(map(told, wanted))
    for row in rows:
        moment = row["minute"] if row["minute"] is not None else row["at"]
        assert row["day"] == datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d")


def test_of_a_segment_in_which_a_bit_was_changed_no_row_says_something_else() -> None:
    """Wherever it is: rows and seals, of three writes, one of which was torn and has no seal."""
    dice = random.Random(4711)
    written = [
        b"".join(json.dumps({**row, "id": f"w:{number:09d}"}).encode() + b"\n" for number in numbers)
        for row, numbers in ((OPERATION, range(3)), (OUTAGE, range(3, 5)), (WRITER, range(5, 6)))
    ]
    loose = len(written[1])
    data = written[0] + seal_rows(written[0]) + written[1] + written[2] + seal_rows(written[2])
    whole = parse_segment(data, FILE).to_pylist()
    known = {told(row) for row in whole}
    assert [row["row"] for row in whole] == ["operation"] * 3 + ["outage"] * 2 + ["writer"]
    unsealed = range(data.index(written[1]), data.index(written[1]) + loose)
    for place in set(range(len(data))) - set(unsealed):
        changed = bytes([data[place] ^ 1 << dice.randrange(8)])
        edited = data[:place] + changed + data[place + 1 :]
        for rows in (parse_segment(edited, FILE).to_pylist(), plainly(edited)):
            assert {told(row) for row in rows if row["row"] != "bad"} <= known, (place, changed)
            is_told = any(row["row"] == "bad" for row in rows)
            assert is_told or len(rows) == len(known), (place, changed)


def test_a_write_of_which_all_rows_were_removed_is_told() -> None:
    """By its seal, which is no row, and stands at the beginning of the file or behind another one."""
    line = json.dumps({**OPERATION, "id": "w:000000001"}).encode() + b"\n"
    left = line + seal_rows(line)
    for edited in (seal_rows(b"gone\n") + left, left + seal_rows(b"gone\n"), seal_rows(b"gone\n")):
        for rows in (parse_segment(edited, FILE).to_pylist(), plainly(edited)):
            told_of = [row["row"] for row in rows]
            assert sorted(told_of) == ["bad", *["operation"] * edited.count(line)], edited


def plainly(data: bytes) -> list[dict[str, Any]]:
    """The same without Arrow."""
    read = parse_lines(data)
    return [expected(json.dumps(row).encode()) for row in read.rows] + [expected(b"no row")] * read.bad


def test_a_file_of_good_lines_is_taken_whole_and_split_by_its_days() -> None:
    rows = [{**OPERATION, "id": f"w:{number}", "minute": 1767225600 + number * 3600} for number in range(50)]
    table = parse_segment(b"".join(json.dumps(row).encode() + b"\n" for row in rows), FILE)
    assert {day: some.num_rows for day, some in split_days(table)} == {
        "2026-01-01": 24,
        "2026-01-02": 24,
        "2026-01-03": 2,
    }


def test_a_bad_line_of_a_file_with_any_name_is_kept() -> None:
    for name in ("operations-foo.jsonl", f"operations-{'9' * 20}-a.jsonl", f"operations-{'9' * 400}-a.jsonl"):
        (row,) = parse_segment(b"no\n", name).to_pylist()
        assert (row["row"], row["at"], row["day"]) == ("bad", None, "1970-01-01")


def test_a_line_of_null_ends_nothing() -> None:
    """Arrow would end the process, without a word."""
    good = json.dumps(OPERATION).encode() + b"\n"
    for odd in (b"null\n", b" null\n", b"\xef\xbb\xbfnull\n", b"\rnull\n"):
        for data in (odd, odd + good, good + odd):
            rows = parse_segment(data, FILE).to_pylist()
            assert [row["row"] for row in rows if row["row"] != "operation"] == ["bad"], data
            assert len(rows) == 1 + data.count(good)


def test_bad_lines_have_ids_of_their_own() -> None:
    """The same line twice in a file is one row, be it good or bad; in two files it is two bad ones."""
    table = parse_segment(b"no\nno\nnone\n", FILE)
    ids = table["id"].to_pylist()
    assert (len(ids), len(set(ids))) == (3, 2)
    assert parse_segment(b"no\n", "operations-1-b.jsonl")["id"].to_pylist()[0] not in ids
