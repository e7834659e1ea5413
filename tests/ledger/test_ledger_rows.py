"""A ledger is what its rows say, however they are cut into segments, and in whatever order these are read."""

import json
import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pairbus.ledger.operations import OutageMark, ledger_of, sight_outages
from pairbus.ledger.segment import parse_lines

NOW = 1_800_000_000.0
OPERATION: dict[str, Any] = {
    "row": "operation", "id": "w:1", "writer": "w", "role": "client", "pair": "contoso", "namespace": "here",
    "entity": "orders", "stage": "send", "kind": "send", "size_class": 1, "minute": 1_799_971_200,
    "outage": None, "count": 3, "unknown": 0, "bytes": 900,
}  # fmt: skip
OUTAGE: dict[str, Any] = {
    "row": "outage", "id": "w:b", "writer": "w", "pair": "contoso", "entity": "orders", "outage": "w/orders",
    "begins": True, "at": 1_799_971_300.5,
}  # fmt: skip
ROWS = st.builds(
    lambda row, changes: {**row, **{name: value for name, value in changes.items() if name in row}},
    st.sampled_from([OPERATION, OUTAGE]),
    st.fixed_dictionaries(
        {},
        optional={
            "id": st.sampled_from(["w:1", "w:2"]),
            "count": st.integers(-1, 3),
            "outage": st.sampled_from([None, "w/orders", 7]),
            "minute": st.sampled_from([0, 1_799_971_200, 1_799_971_260, 1_799_884_800, 2_000_000_040]),
            "begins": st.booleans(),
            "at": st.sampled_from([0.0, 1_799_971_300.5, 1_799_971_400.0, 2e9]),
        },
    ),
)


def segment(rows: list[dict[str, Any]]) -> Any:
    return parse_lines(b"".join(json.dumps(row).encode() + b"\n" for row in rows))


@given(st.lists(ROWS, max_size=8), st.randoms(use_true_random=False))
def test_the_order_of_rows_and_rows_told_again_change_nothing(
    rows: list[dict[str, Any]], dice: random.Random
) -> None:
    """Also where rows of one id say different things."""
    again = [*rows, *dice.choices(rows, k=3)] if rows else []
    dice.shuffle(again)
    found, expected = (ledger_of([segment(some)], now=NOW) for some in (again, rows))
    assert found == expected
    spans = [sight_outages(one.outages, one.writers, now=NOW, patience=60.0) for one in (found, expected)]
    assert spans[0] == spans[1]


@given(st.lists(ROWS, max_size=8), st.randoms(use_true_random=False))
def test_cuts_between_segments_change_no_row_that_counts(
    rows: list[dict[str, Any]], dice: random.Random
) -> None:
    place = dice.randint(0, len(rows))
    parts = [segment(rows[:place]), segment(rows[place:])]
    dice.shuffle(parts)
    found, expected = ledger_of(parts, now=NOW), ledger_of([segment(rows)], now=NOW)
    assert (found.operations, found.outages, found.writers) == (
        expected.operations,
        expected.outages,
        expected.writers,
    )
    # A line that is bad is told for each segment that has it.
    assert found.bad >= expected.bad


def test_of_rows_that_contradict_each_other_one_counts_and_one_is_bad() -> None:
    more = {**OPERATION, "count": 4}
    for rows in ([OPERATION, more], [more, OPERATION], [OPERATION, more, more, OPERATION]):
        found = ledger_of([segment([row]) for row in rows], now=NOW)
        assert ([one.count for one in found.operations], found.bad) == ([4], 1)


def test_a_bad_line_is_counted_once_in_its_segment() -> None:
    lines = b'no\nno\n{"row": "operation"}\n{"row": "operation"}\nnone\n\n  \n'
    assert ledger_of([parse_lines(lines)], now=NOW).bad == 3
    assert ledger_of([parse_lines(lines), parse_lines(b"no\n")], now=NOW).bad == 4


def test_an_outage_ends_when_it_was_last_over_and_not_before_it_began() -> None:
    def mark(identity: str, begins: bool, at: float) -> OutageMark:
        return OutageMark(
            id=identity, writer="w", pair="contoso", entity="orders", outage="a", begins=begins, at=at
        )

    marks = [mark("1", True, 200.0), mark("2", True, 100.0), mark("3", False, 300.0), mark("4", False, 250.0)]
    for some in (marks, marks[::-1]):
        (span,) = sight_outages(some, [], now=NOW, patience=60.0)
        assert (span.begins, span.ends) == (100.0, 300.0)
    (span,) = sight_outages([mark("1", True, 200.0), mark("2", False, 150.0)], [], now=NOW, patience=60.0)
    assert (span.begins, span.ends) == (200.0, 200.0)
