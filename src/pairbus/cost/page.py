"""A report as one HTML page that needs nothing else: no network, no script, no other file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from html import escape
from importlib import resources

from pairbus.stages import Stage, StageLook

from .charts import Bar, Column, Shade, draw_bars, draw_pairs, draw_timeline
from .report import Report, Share

__all__ = ["render_page"]

_MOST_ENTITIES = 15
_NameOf = Callable[[Share], str]
_LOOKS = {stage.words: stage.traits.look for stage in Stage}


def render_page(report: Report, *, now: float) -> str:
    """The whole page."""
    style = resources.files(__package__).joinpath("page.css").read_text(encoding="utf-8")
    sections = [
        _head(report, now),
        _warnings(report),
        _stages(report),
        _entities(report),
        _timeline(report),
        _outages(report),
        _forecast(report),
        _months(report),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>Pairbus: what it cost</title><style>\n{style}</style></head>\n<body>"
        + "\n".join(filter(None, sections))
        + "</body></html>\n"
    )


def _head(report: Report, now: float) -> str:
    cards = [
        ("in all", f"{_money(report.total)} {escape(report.currency)}"),
        ("operations and transfer", _money(report.used)),
        ("base charge", _money(report.base)),
        ("billed operations", f"{report.units:,}"),
        ("in outages", _money(sum((share.cost for share in report.by_outage), Decimal(0)))),
    ]
    shown = "".join(
        f'<div class="card"><b>{value}</b><span class="dim">{name}</span></div>' for name, value in cards
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
            f"Operations of unknown outcome: {report.unknown:,}. They may be on the bill of the service, and "
            "are not priced here."
        )
    for gap in report.gaps:
        ends = _moment(gap.ends) if gap.ends is not None else "?"
        found.append(
            f"{escape(gap.name)} ({escape(gap.pair)}) ended without a word: what it did between "
            f"{_moment(gap.begins)} and {ends} may be missing."
        )
    return "".join(f'<p class="warn">{text}</p>' for text in found)


def _stages(report: Report) -> str:
    if not report.by_stage:
        return "<p>There are no records.</p>"
    bars = [
        Bar(_stage_name(share), float(share.cost), _money(share.cost), _LOOKS[share.name].style)
        for share in report.by_stage
    ]
    return (
        "<h2>Where the money went, by stage</h2>"
        + draw_bars(bars, "cost by stage")
        + _table("stage", report.by_stage, _stage_name)
        + '<p class="dim">Derived: what the application\'s own receivers do is not recorded, and is reckoned '
        "from the messages that the primary took.</p>"
    )


def _entities(report: Report) -> str:
    if not report.by_entity:
        return ""
    first = report.by_entity[:_MOST_ENTITIES]
    bars = [Bar(share.name, float(share.cost), _money(share.cost)) for share in first]
    left = len(report.by_entity) - len(first)
    more = f'<p class="dim">and {left:,} more, in the files.</p>' if left else ""
    return (
        "<h2>Where the money went, by entity</h2>"
        + draw_bars(bars, "cost by entity")
        + _table("entity", first, lambda share: share.name)
        + more
    )


def _timeline(report: Report) -> str:
    looks = [look for look in StageLook if look is not StageLook.DERIVED]
    columns = [
        Column(tick.at, tick.units, look.style, look.words)
        for look in looks
        for tick in report.timeline
        if tick.stage.traits.look is look
    ]
    if not columns:
        return ""
    last = max(column.at for column in columns) + report.step
    shades = [
        Shade(one.begins, last if one.ends is None else one.ends, "outage", f"outage: {one.name}")
        for one in report.outages
    ] + [Shade(gap.begins, gap.ends or last, "gap", f"gap: {gap.name}") for gap in report.gaps]
    legend = "".join(f'<span><i class="{look.style}"></i>{look.words}</span>' for look in looks)
    legend += '<span><i class="outage"></i>outage</span>'
    legend += '<span><i class="gap"></i>gap in the records</span>'
    each = {60: "minute", 3600: "hour"}.get(report.step, "day")
    return (
        f'<h2>Billed operations over time</h2><p class="dim">by the {each}, UTC</p>'
        f'<div class="key">{legend}</div>'
        + draw_timeline(columns, shades, "operations over time", step=report.step)
    )


def _outages(report: Report) -> str:
    if not report.outages:
        return ""
    costs = {share.name: share for share in report.by_outage}
    rows = []
    for one in report.outages:
        share = costs.get(one.name) or Share(name=one.name)
        ends = "goes on" if one.ends is None else _moment(one.ends)
        lasted = "" if one.ends is None else _duration(one.ends - one.begins)
        rows.append((one.pair, _moment(one.begins), ends, lasted, f"{share.units:,}", _money(share.cost)))
    head = ("pair", "from", "until", "lasted", "operations", report.currency)
    return "<h2>Outages</h2>" + _plain_table(head, rows)


def _forecast(report: Report) -> str:
    if not report.forecast:
        return ""
    rows = [(row.stage.words, row.expected, row.billed) for row in report.forecast]
    return (
        '<h2>Forecast against bill</h2><p class="dim">operations of the days that have records</p>'
        '<div class="key"><span><i class="c"></i>forecast</span>'
        '<span><i class="a"></i>billed</span></div>'
        + draw_pairs(rows, "forecast against bill", names=("forecast", "billed"))
    )


def _months(report: Report) -> str:
    if not report.months:
        return ""
    rows = [
        (one.month, f"{one.units:,}", _money(one.operations_cost), f"{one.hours:,}", _money(one.base))
        for one in report.months
    ]
    return "<h2>Months</h2>" + _plain_table(("month", "operations", "cost", "hours", "base"), rows)


def _table(what: str, shares: Sequence[Share], name_of: _NameOf) -> str:
    rows = [
        (
            name_of(share),
            f"{share.count:,}",
            f"{share.units:,}",
            f"{share.unknown:,}",
            _size(share.bytes),
            _money(share.cost),
        )
        for share in shares
    ]
    return _plain_table((what, "operations", "billed", "unknown", "bytes", "cost"), rows)


def _plain_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    label = escape(f"table by {head[0]}")
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{label}"><table>'
        f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _stage_name(share: Share) -> str:
    return f"{share.name} (derived)" if share.derived else share.name


def _money(amount: Decimal) -> str:
    if amount == 0 or amount >= 1:
        return f"{amount:,.2f}"
    return f"{amount:.4f}" if amount >= Decimal("0.01") else f"{amount:.6f}"


def _moment(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M}"


def _duration(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours} h {rest // 60:02d} min" if hours else f"{rest // 60} min {rest % 60:02d} s"


def _size(number: int) -> str:
    size = float(number)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
