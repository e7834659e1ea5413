"""What an exact accountant asks of a bill: sums, cuts, months, and that every form of it says the same."""

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.cost.bill import BillTerms, make_bill, month_of
from pairbus.cost.estimate import ENVELOPE_BYTES, estimate
from pairbus.cost.outages import Outage, merge_outages
from pairbus.cost.page import render_page
from pairbus.cost.report import Report, report_of
from pairbus.cost.sheet import PriceStep, Tiers
from pairbus.cost.system import System
from pairbus.ledger.operations import Operation, OutageSpan
from pairbus.metering import units
from pairbus.stages import ROLES, Stage

from .test_bill import DAY, HOUR, NOON, SHEET, used

FLAT = replace(SHEET, standard_operations=Tiers((PriceStep(None, Decimal("0.80")),)))
OUTAGES = merge_outages([OutageSpan("seen", "contoso", NOON + 90.0, NOON + 10 * DAY)])
_CLOSE = Decimal("1e-7")

usages = st.lists(
    st.builds(
        used,
        pair=st.sampled_from(["contoso", "fabrikam"]),
        entity=st.sampled_from(["orders", "Orders", "invoices"]),
        role=st.sampled_from(ROLES),
        stage=st.sampled_from(Stage),
        kind=st.sampled_from(["send", "send_refused"]),
        outage=st.sampled_from([None, "seen", "unheard of"]),
        minute=st.integers(-50_000, 50_000).map(lambda minutes: NOON + minutes * 60),
        count=st.integers(0, 10**8),
        size_class=st.integers(1, 1600),
        unknown=st.integers(0, 9),
        bytes=st.integers(0, 10**13),
    ),
    max_size=20,
)


def report(some: Sequence[Operation], **terms: Any) -> Report:
    bill = make_bill(some, OUTAGES, SHEET, BillTerms(copies={"orders": 3}, **terms))
    return report_of(bill, some, OUTAGES, SHEET)


@given(usages, st.booleans())
def test_lines_shares_months_and_the_total_are_the_same_money(
    some: list[Operation], same_region: bool
) -> None:
    bill = make_bill(some, OUTAGES, SHEET, BillTerms(same_region=same_region))
    for month in bill.months:
        of_lines = sum((line.cost for line in bill.lines if month_of(line.hour) == month.month), Decimal(0))
        assert abs(of_lines + month.base - month.total) <= _CLOSE * (1 + abs(month.total))
        assert month.units == sum(
            line.units
            for line in bill.lines
            if month_of(line.hour) == month.month and line.stage is not Stage.STORE_WRITE
        )
    found = report_of(bill, some, OUTAGES, SHEET)
    assert abs(found.total - sum((month.total for month in bill.months), Decimal(0))) <= _CLOSE * (
        1 + found.total
    )
    for shares in (found.by_pair, found.by_entity, found.by_stage):
        for name in ("cost", "units", "count", "bytes"):
            assert sum(getattr(share, name) for share in shares) == sum(
                getattr(line, name) for line in bill.lines
            )
    assert sum(share.cost for share in found.by_outage) == sum(
        line.cost for line in bill.lines if line.outage is not None
    )


@given(usages, st.randoms(use_true_random=False))
def test_the_order_of_rows_and_their_cuts_change_nothing(some: list[Operation], dice: random.Random) -> None:
    pieces = []
    for one in some:
        part = dice.randint(0, one.count)
        carried = dice.randint(0, one.bytes)
        pieces.append(replace(one, count=part, bytes=carried))
        pieces.append(
            replace(one, id=f"{one.id}'", count=one.count - part, bytes=one.bytes - carried, unknown=0)
        )
    dice.shuffle(pieces)
    whole, cut = report(some), report(pieces)
    assert cut.to_dict() == whole.to_dict()
    assert list(cut.timeline) == list(whole.timeline)


@given(usages, usages)
def test_two_bills_come_to_the_bill_of_both_but_for_steps_and_the_base(
    some: list[Operation], more: list[Operation]
) -> None:
    """So does what other ways would have cost."""
    apart = [make_bill(each, OUTAGES, FLAT).months for each in (some, more)]
    together = make_bill(some + more, OUTAGES, FLAT).months
    for name in ("units", "operations_cost", "transfer_cost", "store_cost", "writes"):
        assert sum(getattr(month, name) for one in apart for month in one) == sum(
            getattr(month, name) for month in together
        )
    without = [sum((month.without_pair - month.base for month in one), Decimal(0)) for one in apart]
    assert sum(without) == sum((month.without_pair - month.base for month in together), Decimal(0))


@given(usages)
def test_without_a_pair_there_is_what_clients_do_at_the_primary(some: list[Operation]) -> None:
    """No pump, no ping, no backlog, no lease; scheduling is the application's own."""
    plain = [one for one in some if one.role == "client" and one.stage in (Stage.SEND, Stage.SCHEDULE)] + [
        one for one in some if one.role == "client" and one.stage in (Stage.RECEIVE, Stage.COMPLETE)
    ]
    alone = make_bill(plain, [], FLAT).months
    cost = sum((month.without_pair - month.base for month in make_bill(some, [], FLAT).months), Decimal(0))
    assert cost == sum((month.operations_cost for month in alone), Decimal(0))


def test_writes_to_a_store_are_no_operations_and_have_a_price_of_their_own() -> None:
    writes = used(stage=Stage.STORE_WRITE, kind="put", count=20_000, entity="$records")
    bill = make_bill([used(count=13_000_000), writes], [], SHEET)
    (month,) = bill.months
    assert (month.units, month.writes) == (13_000_000, 20_000)
    assert month.operations_cost == 0
    assert month.store_cost == Decimal("0.13")
    assert sum(line.cost for line in bill.lines) == Decimal("0.13")
    assert month.total == Decimal("0.13") + month.base


def test_a_month_costs_its_transfer_too() -> None:
    bill = make_bill([used(stage=Stage.BACKLOG_SEND, kind="send", bytes=50 * 10**9)], [], SHEET)
    assert bill.months[0].total == Decimal("1.00") + Decimal("0.013441")


@pytest.mark.parametrize(
    ("moment", "month"),
    [
        ((2028, 2, 29, 23, 59), "2028-02"),
        ((2028, 3, 1, 0, 0), "2028-03"),
        ((2027, 12, 31, 23, 59), "2027-12"),
        ((2028, 1, 1, 0, 0), "2028-01"),
        # Where a summer begins or ends, in places that have one.
        ((2026, 3, 29, 1, 59), "2026-03"),
        ((2026, 10, 25, 1, 0), "2026-10"),
    ],
)
def test_a_minute_is_of_its_month_and_hour_in_utc(
    moment: tuple[int, int, int, int, int], month: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    at = datetime(*moment, tzinfo=UTC)
    bill = make_bill([used(minute=int(at.timestamp()))], [], SHEET)
    assert [one.month for one in bill.months] == [month]
    assert datetime.fromtimestamp(bill.lines[0].hour, UTC) == at.replace(minute=0)


def test_a_whole_month_is_billed_for_all_its_hours() -> None:
    for year, month, days in ((2028, 2, 29), (2027, 2, 28), (2026, 10, 31)):
        first = int(datetime(year, month, 1, tzinfo=UTC).timestamp())
        bill = make_bill([used(minute=first), used(minute=first + days * DAY - 60)], [], SHEET)
        assert [one.hours for one in bill.months] == [days * 24]


def test_outages_of_one_second_are_told_apart() -> None:
    spans = [OutageSpan(str(part), "contoso", NOON + part, NOON + part + 0.1) for part in (0.1, 0.4, 0.7)]
    names = [one.name for one in merge_outages([*spans, OutageSpan("x", "contoso", NOON + 1, NOON + 2)])]
    assert len(set(names)) == 4
    assert names[1] == f"{names[0]} (2)"
    moves = used(role="pump", stage=Stage.BACKLOG_RECEIVE, kind="delivery", minute=NOON + HOUR)
    outages = merge_outages(spans)
    bill = make_bill([moves], outages, SHEET)
    assert [line.outage for line in bill.lines] == [outages[-1].name]


# -- the forms of a bill


class Tables(HTMLParser):
    """The cells of each table, by its caption."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, list[list[str]]] = {}
        self._tag = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._tag = tag
        if tag == "tr":
            self.found[self._caption].append([])
        elif tag in ("td", "th"):
            self.found[self._caption][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._tag = ""

    def handle_data(self, data: str) -> None:
        if self._tag == "caption":
            self._caption = data
            self.found[data] = []
        elif self._tag in ("td", "th"):
            self.found[self._caption][-1][-1] += data


def tables(page: str) -> dict[str, list[list[str]]]:
    """Without the heads."""
    parser = Tables()
    parser.feed(page)
    return {caption: rows[1:] for caption, rows in parser.found.items()}


def is_shown(shown: str, told: str) -> bool:
    """Whether the page's money is that of JSON, to the digits that the page has."""
    if shown.startswith("< "):
        return 0 <= Decimal(told) <= Decimal(shown[2:])  # which JSON rounds
    text = shown.replace(",", "")
    digits = len(text.partition(".")[2])
    return abs(Decimal(text) - Decimal(told)) <= Decimal(1).scaleb(-digits) / 2 + Decimal("1e-6")


@given(usages)
def test_page_and_json_show_the_same_numbers(some: list[Operation]) -> None:
    found = report(some)
    told, shown = found.to_dict(), tables(render_page(found, now=NOON))
    if not some:
        return
    for row, share in zip(shown["figures by stage"], told["by_stage"], strict=True):
        assert row[0] == share["name"] + (" (derived)" if share["derived"] else "")
        assert is_shown(row[1], share["cost"])
        assert row[2:5] == [f"{share[name]:,}" for name in ("operations", "units", "unknown")]
    for row, month in zip(shown["cost by month"], told["months"], strict=True):
        assert row[0] == month["month"]
        for cell, name in ((1, "total"), (2, "operations_cost"), (3, "transfer_cost"), (5, "base")):
            assert is_shown(row[cell], month[name])
        assert row[7] == f"{month['units']:,}"
    for row, other in zip(shown["cost of other ways"][1:], told["alternatives"], strict=True):
        assert is_shown(row[1], other["cost"])
    assert is_shown(shown["cost of other ways"][0][1], told["total"])


def test_every_stage_that_is_used_is_a_share_and_every_byte_has_its_way() -> None:
    """Each stage of a message's way, pings, idle receives, requests and writes."""
    some = [
        used(id=f"{number}", stage=stage, kind="send", bytes=10**number)
        for number, stage in enumerate(Stage)
        if not stage.is_derived
    ]
    found = report(some)
    assert {share.name for share in found.by_stage} == {stage.words for stage in Stage}
    carried = sum(one.bytes for one in found.transfer)
    silent = sum(share.bytes for share in found.by_stage if _direction(share.name) is None)
    assert carried + silent == sum(share.bytes for share in found.by_stage)
    assert {one.region for one in found.transfer} == {"primary", "secondary"}


def _direction(name: str) -> str | None:
    return next(stage.traits.direction for stage in Stage if stage.words == name)


def test_an_outage_that_is_not_of_this_bill_is_not_charged() -> None:
    other = Outage(name="other", pair="fabrikam", begins=NOON, ends=None, ids=frozenset({"b"}))
    bill = make_bill([used(outage="a")], [other], SHEET)
    assert [line.outage for line in bill.lines] == [None]


# -- forecast and bill


@given(
    st.integers(1, 50),
    st.sampled_from([0, 1024, 65_336, 65_537, 200_000]),
    st.integers(0, 3),
    st.integers(1, 3),
    st.integers(0, 24),
)
def test_a_month_that_goes_as_it_was_forecast_is_billed_so(
    rate: int, size: int, copies: int, days: int, down: int
) -> None:
    """Message by message: each is sent and received, and what is sent in the outage goes the long way."""
    system = System(
        rate=rate, size=size, subscriptions=copies, days=days, outages=1, outage_hours=down, clients=1
    )
    sent, redirected = rate * days * DAY, rate * down * HOUR
    wrapped = size + ENVELOPE_BYTES

    def rows(stage: Stage, count: int, carried: int = 0, **values: Any) -> list[Operation]:
        about = {"kind": "send", "size_class": units(carried), **values}
        each = [count // days] * (days - 1)
        counts = [*each, count - sum(each)]
        return [
            used(stage=stage, count=some, bytes=some * carried, minute=NOON + day * DAY, **about)
            for day, some in enumerate(counts)
        ]

    usages = [
        *rows(Stage.SEND, sent - redirected, size),
        *rows(Stage.SEND, redirected, size, role="pump"),
        *rows(Stage.BACKLOG_SEND, redirected, wrapped, outage="seen"),
        *rows(Stage.BACKLOG_RECEIVE, redirected, wrapped, role="pump", kind="delivery"),
        *rows(Stage.BACKLOG_COMPLETE, redirected, role="pump", kind="complete"),
        *rows(Stage.PING, down * 60, kind="ping"),
        *rows(Stage.IDLE, 960 * days, role="pump", kind="empty_receive"),
        *rows(Stage.LEASE, 2880 * days, role="lease", kind="management"),
        *rows(Stage.MANAGEMENT, (960 + 44 * 24) * days, role="pump", kind="management"),
    ]
    bill = make_bill(usages, OUTAGES, SHEET, BillTerms(copies={"orders": copies}))
    found = report_of(bill, usages, OUTAGES, SHEET, system=system)
    assert {row.stage: row.billed for row in found.forecast} == {
        row.stage: row.expected for row in found.forecast
    }
    # Whoever made the forecast made the bill, and what other ways would have cost.
    forecast = estimate(system, SHEET)
    assert found.units == forecast.operations
    assert found.months[0].transfer_cost == forecast.bandwidth_cost
    plain = found.alternatives[0].cost - found.base
    assert plain == forecast.alternatives[0].cost - forecast.base
