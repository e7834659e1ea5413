"""A report as one HTML page that needs nothing else: no network, no script, no other file."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from html import escape
from importlib import resources

from pairbus.charts.areas import Layer, Shade, Slots, draw_areas
from pairbus.charts.bars import Bar, draw_bars, draw_pairs
from pairbus.charts.document import draw_legend, draw_table, write_document
from pairbus.charts.time_axis import TimeAxis, draw_axis, pick_dates
from pairbus.plumbing.wording import time_span, write_moment, write_money
from pairbus.stages import Stage, StageLook

from .report import INCLUDED, Report, Share

_MOST_ENTITIES = 15
# A chart of less would have slots as wide as a hand.
_FEWEST_SLOTS = 12
_HEIGHT = 224
_LOOKS = {stage.words: stage.traits.look for stage in Stage}


def render_page(report: Report, *, now: float) -> str:
    style = resources.files(__package__).joinpath("page.css").read_text(encoding="utf-8")
    sections = [
        _head(report, now),
        _warnings(report),
        _stages(report),
        _entities(report),
        _timeline(report),
        _outages(report),
        _alternatives(report),
        _transfer(report),
        _forecast(report),
        _months(report),
    ]
    return write_document("Pairbus: what it cost", style=style, body="\n".join(filter(None, sections)))


def _head(report: Report, now: float) -> str:
    cards = [
        ("in all", report.total),
        ("operations, transfer, store", report.used),
        ("base charge", report.base),
        ("in outages", sum((share.cost for share in report.by_outage), Decimal(0))),
    ]
    told = [(name, f"{write_money(cost)} {escape(report.currency)}") for name, cost in cards]
    told.append(("billed operations", f"{report.units:,}"))
    shown = "".join(
        f'<div class="card"><b>{value}</b><span class="dim">{name}</span></div>' for name, value in told
    )
    return (
        "<h1>What it cost</h1>"
        f'<p class="dim">{escape(", ".join(share.name for share in report.by_pair) or "no records")} · made '
        f"{_moment(now)} UTC · prices of {escape(report.prices_as_of)}</p>"
        f'<div class="cards">{shown}</div>'
    )


def _warnings(report: Report) -> str:
    found = []
    if report.bad_rows:
        found.append(f"Lines of the ledger that could not be read, and are not billed: {report.bad_rows:,}.")
    if report.unknown:
        found.append(
            f"Operations of unknown outcome: {report.unknown:,}. What the service bills of that is "
            "not priced here."
        )
    for one in report.missing:
        found.append(
            f"The bill is incomplete. Rows of {escape(one.writer)} ({escape(one.pair)}) that are missing: "
            f"{one.rows:,}, written between {_moment(one.begins)} and {_moment(one.ends)}."
        )
    for gap in report.gaps:
        found.append(
            f"{escape(gap.writer)} ({escape(gap.pair)}) ended without a word: what it did between "
            f"{_moment(gap.begins)} and {_moment(gap.ends)} may be missing."
        )
    return "".join(f'<p class="warn">{text}</p>' for text in found)


def _stages(report: Report) -> str:
    if not report.by_stage:
        return "<p>There are no records.</p>"
    bars = [
        Bar(share.label, float(share.cost), write_money(share.cost), _LOOKS[share.name].style)
        for share in report.by_stage
    ]
    included = f'<p class="dim">{INCLUDED.capitalize()}.</p>' if report.is_included else ""
    return (
        f"<h2>Where the money went, by stage</h2>{included}"
        + draw_bars(bars, "cost by stage")
        + _table("stage", report.by_stage, report.currency)
        + '<p class="dim">Derived: what the application\'s own receivers do is not recorded, and is reckoned '
        "from the messages that the primary took.</p>"
    )


def _entities(report: Report) -> str:
    if not report.by_entity:
        return ""
    first = report.by_entity[:_MOST_ENTITIES]
    if len(report.by_pair) > 1:  # whose entities may have the same names
        first = [replace(share, name=f"{share.pair}: {share.name}") for share in first]
    bars = [Bar(share.name, float(share.cost), write_money(share.cost)) for share in first]
    left = len(report.by_entity) - len(first)
    more = f'<p class="dim">and {left:,} more, in the files.</p>' if left else ""
    return (
        "<h2>Where the money went, by entity</h2>"
        + draw_bars(bars, "cost by entity")
        + _table("entity", first, report.currency)
        + more
    )


def _timeline(report: Report) -> str:
    looks = [look for look in StageLook if look is not StageLook.DERIVED]
    ticks = [tick for tick in report.timeline if tick.stage.traits.look in looks]
    if not ticks:
        return ""
    first = min(tick.at for tick in ticks)
    count = (max(tick.at for tick in ticks) - first) // report.step + 1
    slots = Slots(report.step, max(count, _FEWEST_SLOTS), first)
    axis = TimeAxis(slots.begins(slots.count), begins=first)
    amounts: dict[StageLook, list[float]] = {look: [0.0] * slots.count for look in looks}
    for tick in ticks:
        amounts[tick.stage.traits.look][(tick.at - first) // report.step] += tick.units
    last = slots.begins(count)
    shades = [
        Shade(one.begins, last if one.ends is None else one.ends, "outage", f"outage: {one.name}")
        for one in report.outages
    ] + [Shade(gap.begins, gap.ends, "gap", f"gap: {gap.writer}") for gap in report.gaps]
    title = "operations over time"
    drawn = draw_areas(
        axis, slots, areas=[Layer(look.words, look.style, amounts[look]) for look in looks],
        lines=(), height=_HEIGHT, title=title, shades=shades, write=lambda value: f"{value:,.0f}",
        write_moment=_moment,
    )  # fmt: skip
    key = [(look.style, look.words, "") for look in looks]
    key += [("outage", "outage", ""), ("gap", "gap in the records", "")]
    each = {60: "minute", 3600: "hour"}.get(report.step, "day")
    return (
        f'<h2>Billed operations over time</h2><p class="dim">by the {each}, UTC</p>'
        + draw_legend(key)
        + f'<div class="wide" tabindex="0" role="region" aria-label="{title}">'
        + f'<div class="plot">{drawn}{draw_axis(axis, pick_dates(axis))}</div></div>'
    )


def _outages(report: Report) -> str:
    if not report.outages:
        return ""
    costs = {share.name: share for share in report.by_outage}
    rows = []
    for one in report.outages:
        share = costs.get(one.name) or Share(name=one.name)
        ends = "goes on" if one.ends is None else write_moment(one.ends)
        lasted = "" if one.ends is None else time_span(one.ends - one.begins)
        rows.append(
            (one.pair, write_money(share.cost), write_moment(one.begins), ends, lasted, f"{share.units:,}")
        )
    head = ("pair", report.currency, "from (UTC)", "until", "lasted", "operations")
    return "<h2>Outages</h2>" + draw_table(head, rows, caption="outages")


def _forecast(report: Report) -> str:
    if not report.forecast:
        return ""
    rows = [(row.stage.words, row.expected, row.billed) for row in report.forecast]
    return (
        '<h2>Forecast against bill</h2><p class="dim">operations of the days that have records</p>'
        + draw_legend([("c", "forecast", ""), ("a", "billed", "")])
        + draw_pairs(rows, "forecast against bill", names=("forecast", "billed"))
    )


def _alternatives(report: Report) -> str:
    if not report.months:
        return ""
    rows = [(other.name, write_money(other.cost), other.note) for other in report.alternatives]
    rows.insert(0, ("this pair", write_money(report.total), "what was billed"))
    return "<h2>What other ways would have cost</h2>" + draw_table(
        ("way", report.currency, "what it is"), rows, caption="cost of other ways", style="told"
    )


def _transfer(report: Report) -> str:
    if not report.transfer:
        return ""
    rows = [(one.region, one.direction, _size(one.bytes), ", ".join(one.stages)) for one in report.transfer]
    return "<h2>Bytes by region and direction</h2>" + draw_table(
        ("region", "direction", "bytes", "stages"),
        rows,
        caption="bytes by region and direction",
        style="told",
    )


def _months(report: Report) -> str:
    if not report.months:
        return ""
    rows = [
        (
            one.month,
            write_money(one.total),
            write_money(one.operations_cost),
            write_money(one.transfer_cost),
            write_money(one.store_cost),
            write_money(one.base),
            f"{one.hours:,}",
            f"{one.units:,}",
        )
        for one in report.months
    ]
    costs = ("operations", "transfer", "store", "base charge")
    head = ("month", f"{report.currency} in all", *costs, "hours", "billed operations")
    return "<h2>Months</h2>" + draw_table(head, rows, caption="cost by month")


def _table(what: str, shares: Sequence[Share], currency: str) -> str:
    rows = [
        (
            share.label,
            write_money(share.cost),
            f"{share.count:,}",
            f"{share.units:,}",
            f"{share.unknown:,}",
            _size(share.bytes),
        )
        for share in shares
    ]
    # The cost comes first: on a phone the others are a swipe away.
    head = (what, currency, "operations", "billed", "unknown", "bytes")
    return draw_table(head, rows, caption=f"figures by {what}")


def _moment(at: float) -> str:
    return write_moment(at, timespec="minutes")


def _size(number: int) -> str:
    size = float(number)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
