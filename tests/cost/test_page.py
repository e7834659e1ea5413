"""The page: it needs nothing but itself, and shows what the report says."""

import re
from dataclasses import replace
from decimal import Decimal
from html import escape

import pytest

from pairbus.cost.bill import make_bill
from pairbus.cost.outages import merge_outages
from pairbus.cost.page import render_page
from pairbus.cost.report import Report, report_of
from pairbus.cost.system import System
from pairbus.ledger.operations import Gap, OutageSpan
from pairbus.stages import Stage
from tests.charts.pages import read_page

from .test_bill import NOON, SHEET, used


@pytest.fixture
def report() -> Report:
    usages = [
        used(stage=Stage.SEND, kind="send", count=20_000_000, entity="orders & <co>"),
        used(stage=Stage.BACKLOG_SEND, kind="send", outage="a", minute=NOON + 600, count=500),
        used(stage=Stage.PING, outage="a", minute=NOON + 660, unknown=3),
    ]
    outages = merge_outages([OutageSpan(outage="a", pair="contoso", begins=NOON + 590, ends=NOON + 1190)])
    return report_of(
        make_bill(usages, outages, SHEET),
        usages,
        outages,
        SHEET,
        gaps=[Gap("host-7", "contoso", NOON + 900, NOON + 960)],
        bad_rows=4,
        system=System(rate=1),
    )


def test_it_opens_offline(report: Report) -> None:
    page = render_page(report, now=NOON)
    read = read_page(page)
    assert read.open == []
    assert "svg" in read.seen
    assert not {"script", "link", "img", "iframe"} & read.seen
    assert set(re.findall(r"https?://[^\"' <]+", page)) == {"http://www.w3.org/2000/svg"}
    assert "url(" not in page


def test_it_shows_stages_entities_the_outage_and_what_is_missing(report: Report) -> None:
    page = render_page(report, now=NOON)
    assert (page.count('<ul class="bars"'), page.count('class="plot"')) == (3, 1)
    for text in (
        "send to the backlog",
        "receive from the primary (derived)",
        "orders &amp; &lt;co&gt;",
        "<td>10 min</td>",
        "outage: contoso 2026-11-12 12:09:50",
        "host-7 (contoso) ended without a word",
        "could not be read, and are not billed: 4.",
        "Operations of unknown outcome: 3.",
        "Forecast against bill",
    ):
        assert text in page, text


def test_it_can_be_read_on_a_phone_in_the_dark_and_aloud(report: Report) -> None:
    page = render_page(report, now=NOON)
    assert 'name="viewport" content="width=device-width' in page
    assert "prefers-color-scheme: dark" in page
    # Whatever is as wide as it has to be can be scrolled by itself, by keyboard too, and says what it is.
    for tag in (
        '<table class="numbers"><caption>',
        '<table class="told"><caption>',
        '<div class="plot"><svg',
    ):
        assert page.count(tag) == len(
            re.findall(rf'tabindex="0" role="region" aria-label="[^"]+">{tag}', page)
        )
    assert 'role="img" aria-label="operations over time"' in page
    for name in ("cost by stage", "cost by entity", "forecast against bill"):
        assert f'<ul class="bars" aria-label="{name}">' in page


def test_without_records_it_says_so(report: Report) -> None:
    empty = replace(
        report,
        months=(),
        by_pair=(),
        by_entity=(),
        by_stage=(),
        by_outage=(),
        outages=(),
        timeline=(),
        forecast=(),
    )
    assert "There are no records." in render_page(empty, now=NOON)


def test_slots_tell_what_was_billed_in_them_and_what_is_not_recorded_is_not_drawn(report: Report) -> None:
    titles = re.findall(r'<rect class="slot"[^>]*><title>([^<]+)</title>', render_page(report, now=NOON))
    assert titles == [
        "2026-11-12 12:00: sends to the primary 20,000,000",
        "2026-11-12 12:10: through the backlog 500",
        "2026-11-12 12:11: pings 1",
    ]


def test_entities_of_several_pairs_are_told_apart(report: Report) -> None:
    share = report.by_entity[0]
    others = [replace(share, pair=pair) for pair in ("contoso", "fabrikam")]
    pairs = [replace(share, name=pair) for pair in ("contoso", "fabrikam")]
    page = render_page(replace(report, by_entity=others, by_pair=pairs), now=NOON)
    for pair in ("contoso", "fabrikam"):
        assert f"{pair}: {escape(share.name)}" in page
    assert ": orders" not in render_page(replace(report, by_pair=pairs[:1]), now=NOON)


def test_what_is_little_is_not_shown_as_nothing(report: Report) -> None:
    little = [replace(share, cost=Decimal("0.0000004")) for share in report.by_stage]
    brief = [replace(one, ends=one.begins + 8.0) for one in report.outages]
    page = render_page(replace(report, by_stage=little, outages=brief), now=NOON)
    assert "&lt; 0.000001" in page
    assert "0.000000<" not in page
    assert "<td>8 s</td>" in page


def test_operations_that_are_billed_and_cost_nothing_are_explained(report: Report) -> None:
    included = "So few operations are included in the base charge of a namespace."
    assert included not in render_page(report, now=NOON)
    usages = [used(stage=Stage.SEND, kind="send", count=20)]
    few = report_of(make_bill(usages, [], SHEET), usages, [], SHEET)
    assert included in render_page(few, now=NOON)
