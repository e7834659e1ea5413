"""The bill against examples worked by hand, and against its own laws."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.cost.bill import Bill, BillTerms, make_bill, month_of
from pairbus.cost.outages import Outage, OutageBook, merge_outages
from pairbus.cost.report import Share, forecast_stages, report_of, step_for, summarize
from pairbus.cost.sheet import PriceStep, Tiers, default_sheet
from pairbus.cost.system import System
from pairbus.ledger.operations import Operation, OutageSpan
from pairbus.spark.ledger_table import BillSpan
from pairbus.stages import Stage

SHEET = default_sheet()
NOON = int(datetime(2026, 11, 12, 12, tzinfo=UTC).timestamp())
HOUR, DAY = 3600, 86400


def used(**values: Any) -> Operation:
    given = {
        "id": "1", "writer": "w", "pair": "contoso", "role": "client",
        "namespace": "contoso", "entity": "orders",
        "stage": Stage.PING, "kind": "ping", "minute": NOON, "outage": None,
        "count": 1, "size_class": 1, "unknown": 0, "bytes": 0, **values,
    }  # fmt: skip
    return Operation(**given)


def pings(count: int, **values: Any) -> Operation:
    """Operations that nothing is derived from."""
    return used(count=count, **values)


def costs(bill: Bill) -> Decimal:
    return sum((line.cost for line in bill.lines), Decimal(0))


@pytest.mark.parametrize(
    ("operations", "cost"),
    [
        (13_000_000, "0"),
        (13_000_001, "0.0000008"),
        (14_000_000, "0.80"),
        (100_000_000, "69.60"),
        (101_000_000, "70.10"),
    ],
)
def test_a_month_is_priced_by_its_steps(operations: int, cost: str) -> None:
    bill = make_bill([pings(operations)], [], SHEET)
    assert bill.months[0].operations_cost == Decimal(cost)
    assert abs(costs(bill) - Decimal(cost)) < Decimal("1e-9")


def test_the_free_operations_of_a_month_are_shared_by_all_its_lines() -> None:
    # 26 million: 13 of them at 0.80, so that each line of 13 million costs half of 10.40.
    bill = make_bill([pings(13_000_000), pings(13_000_000, entity="invoices")], [], SHEET)
    assert [line.cost for line in bill.lines] == [Decimal("5.20"), Decimal("5.20")]


def test_each_month_has_its_own_free_operations() -> None:
    next_month = NOON + 30 * DAY
    bill = make_bill([pings(13_000_000), pings(14_000_000, minute=next_month)], [], SHEET)
    assert [(one.month, one.operations_cost) for one in bill.months] == [
        ("2026-11", Decimal(0)),
        ("2026-12", Decimal("0.80")),
    ]


@pytest.mark.parametrize(
    ("month", "days"), [("2026-11", 30), ("2026-12", 31), ("2028-02", 29), ("2100-02", 28), ("8999-12", 31)]
)
def test_a_month_is_whole_and_has_nothing_of_others(month: str, days: int) -> None:
    since, before = BillSpan.of_month(month)
    assert before - since == days * DAY
    assert month_of(since) == month_of(before - 1) == month
    assert month_of(since - 1) < month < month_of(before)


def test_the_base_is_paid_from_the_first_hour_to_the_last() -> None:
    bill = make_bill([pings(1), pings(1, minute=NOON + 23 * HOUR + 59 * 60)], [], SHEET)
    assert bill.months[0].hours == 24
    assert bill.months[0].base == 24 * Decimal("0.013441")


def test_what_receivers_do_is_derived_from_what_was_taken_and_marked() -> None:
    sent = used(stage=Stage.SEND, kind="send", count=10, size_class=3, bytes=1_500_000, unknown=2)
    refused = used(stage=Stage.SEND, kind="send_refused", count=5)
    bill = make_bill([sent, refused], [], SHEET, BillTerms(copies={"orders": 2}))
    found = {line.stage: (line.count, line.units, line.unknown, line.derived) for line in bill.lines}
    assert found == {
        Stage.SEND: (15, 35, 2, False),
        Stage.RECEIVE: (20, 60, 0, True),
        Stage.COMPLETE: (20, 20, 0, True),
    }


def test_what_crosses_between_the_regions_costs_by_the_byte() -> None:
    there = used(stage=Stage.BACKLOG_SEND, kind="send", bytes=36 * 10**9)
    back = used(stage=Stage.BACKLOG_RECEIVE, kind="delivery", bytes=36 * 10**9)
    stays = used(stage=Stage.SEND, kind="send_refused", bytes=36 * 10**9)
    assert costs(make_bill([there, back, stays], [], SHEET)) == Decimal("1.44")
    assert costs(make_bill([there, back, stays], [], SHEET, BillTerms(same_region=True))) == 0


# -- outages


def seen(identity: str, begins: float, ends: float | None, pair: str = "contoso") -> OutageSpan:
    return OutageSpan(outage=identity, pair=pair, begins=begins, ends=ends)


def test_what_several_clients_saw_of_one_outage_is_one() -> None:
    outages = merge_outages(
        [
            seen("a", NOON, NOON + 600),
            seen("b", NOON + 300, NOON + 900),
            seen("c", NOON + 5000, None),
            seen("d", NOON + 100, NOON + 200, pair="fabrikam"),
        ]
    )
    assert [(one.pair, one.begins - NOON, one.ends and one.ends - NOON, set(one.ids)) for one in outages] == [
        ("contoso", 0, 900, {"a", "b"}),
        ("contoso", 5000, None, {"c"}),
        ("fabrikam", 100, 200, {"d"}),
    ]


def test_what_a_pump_moves_belongs_to_the_last_outage_that_had_begun() -> None:
    outages = merge_outages([seen("a", NOON + 30, NOON + 600), seen("b", NOON + 7200, NOON + 7300)])
    book = OutageBook(outages)
    moved = used(role="pump", stage=Stage.BACKLOG_RECEIVE, kind="delivery")
    names = [book.name(replace(moved, minute=NOON + after)) for after in (-60, 0, 6000, 7200, 90000)]
    first, second = (one.name for one in outages)
    assert names == [None, first, first, second, second]
    assert book.name(replace(moved, stage=Stage.IDLE)) is None
    assert book.name(replace(moved, pair="fabrikam")) is None
    assert book.name(used(outage="b")) == second


# -- laws

usages = st.lists(
    st.builds(
        used,
        pair=st.sampled_from(["contoso", "fabrikam"]),
        entity=st.sampled_from(["orders", "invoices"]),
        stage=st.sampled_from(Stage),
        kind=st.sampled_from(["send", "other"]),
        minute=st.integers(0, 100_000).map(lambda minutes: NOON + minutes * 60),
        count=st.integers(0, 10**7),
        size_class=st.integers(1, 16),
        bytes=st.integers(0, 10**12),
    ),
    max_size=30,
)


@given(usages)
def test_lines_add_up_to_what_their_months_cost(some: list[Operation]) -> None:
    bill = make_bill(some, [], SHEET, BillTerms(same_region=True))
    months = sum((month.operations_cost + month.store_cost for month in bill.months), Decimal(0))
    assert abs(costs(bill) - months) < Decimal("1e-8")
    for shares in (summarize(bill.lines)[way] for way in ("pair", "entity", "stage")):
        assert sum((share.cost for share in shares), Decimal(0)) == costs(bill)


@given(usages, usages)
def test_more_never_costs_less_and_order_does_not_matter(
    some: list[Operation], more: list[Operation]
) -> None:
    fewer, all_of_it = (make_bill(each, [], SHEET) for each in (some, some + more))
    assert costs(all_of_it) >= costs(fewer) - Decimal("1e-8")
    assert make_bill(list(reversed(some + more)), [], SHEET) == all_of_it


@given(usages)
def test_entities_add_up_whether_they_are_billed_apart_or_together(some: list[Operation]) -> None:
    """Operations always; money where there are no steps, which are the subscription's and not an entity's."""
    flat = replace(SHEET, standard_operations=Tiers((PriceStep(None, Decimal("0.80")),)))
    apart = [make_bill([u for u in some if u.entity == name], [], flat) for name in ("orders", "invoices")]
    together = make_bill(some, [], flat)
    assert sum(line.units for bill in apart for line in bill.lines) == sum(
        one.units for one in together.lines
    )
    assert sum(map(costs, apart), Decimal(0)) == costs(together)


# -- reports


def shares_of(rows: Iterable[tuple[Stage, int]]) -> list[Share]:
    return [Share(name=stage.words, units=units) for stage, units in rows]


def test_a_forecast_is_for_the_days_that_have_records() -> None:
    hours = [NOON, NOON + HOUR, NOON + DAY]
    rows = forecast_stages(System(), SHEET, by_stage=shares_of([(Stage.IDLE, 2000)]), hours=hours)
    assert [(row.stage, row.expected, row.billed) for row in rows] == [
        (Stage.IDLE, 2 * 960, 2000),
        (Stage.LEASE, 2 * 2880, 0),
        (Stage.MANAGEMENT, 2 * (960 + 44 * 24), 0),
    ]


def test_a_forecast_expects_of_the_outages_of_a_month_what_its_days_have_of_it() -> None:
    """Three days, of which one is of another month: a tenth of the month's outage, and not two of them."""
    hours = [NOON - 12 * DAY, NOON, NOON + DAY]
    system = System(rate=1, outages=1, outage_hours=10)
    rows = forecast_stages(system, SHEET, by_stage=[], hours=hours)
    assert {row.stage: row.expected for row in rows}[Stage.BACKLOG_SEND] == 3600


def test_the_alternatives_stand_beside_the_bill_too() -> None:
    """100 million messages were sent and 20 million of them moved: without a pair 80 million had been."""
    sends = used(stage=Stage.SEND, kind="send", count=80_000_000, bytes=80 * 10**9)
    moved = used(stage=Stage.SEND, kind="send", role="pump", count=20_000_000, bytes=20 * 10**9)
    taken = used(stage=Stage.BACKLOG_RECEIVE, kind="delivery", count=20_000_000, bytes=20 * 10**9)
    bill = make_bill([sends, moved, taken], [], SHEET)
    report = report_of(bill, [sends, moved, taken], [], SHEET)
    plain, premium = report.alternatives
    # 240 million operations: 87 at 0.80, 140 at 0.50; and an hour of the base charge.
    assert plain.cost == Decimal("69.60") + Decimal("70.00") + Decimal("0.013441")
    assert premium.cost == 2 * Decimal("0.9275") + 100 * Decimal("0.09")
    assert {(one.region, one.direction, one.bytes) for one in report.transfer} == {
        ("primary", "in", 100 * 10**9),
        ("primary", "out", 100 * 10**9),
        ("secondary", "out", 20 * 10**9),
    }
    assert report.to_dict()["alternatives"][0]["name"] == "no pairing"


def test_a_time_line_has_minutes_hours_or_days() -> None:
    assert [step_for([NOON, NOON + seconds]) for seconds in (HOUR, DAY, 30 * DAY)] == [60, HOUR, DAY]


def test_an_outage_that_goes_on_has_no_end() -> None:
    (outage,) = merge_outages([seen("a", NOON, NOON + 60), seen("b", NOON + 30, None)])
    assert outage == Outage(
        name="contoso 2026-11-12 12:00:00",
        pair="contoso",
        begins=NOON,
        ends=None,
        ids=frozenset({"a", "b"}),
    )
