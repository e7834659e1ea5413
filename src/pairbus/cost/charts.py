"""Charts without script or library: bars as lists, columns on a time line as SVG.

Bars are a list of names and values whose marks are as long as the page is wide, so that they can be read on a
phone, and aloud. Colours and fonts are the page's, by class. What a mark stands for is its title, which
browsers show where the pointer rests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

__all__ = ["Bar", "Column", "Shade", "draw_bars", "draw_pairs", "draw_timeline"]

WIDTH = 960
_TIME_HEIGHT = 220
_LEFT = 84
_HOUR, _DAY = 3600, 86400
_FEWEST_SLOTS = 12
_Scale = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: its name, its length, what stands at its end, and the class of its colour."""

    label: str
    value: float
    text: str
    style: str = "a"


@dataclass(frozen=True, slots=True)
class Column:
    """A part of a column on the time line."""

    at: int
    value: int
    style: str
    name: str


@dataclass(frozen=True, slots=True)
class Shade:
    """A stretch of time behind the columns."""

    begins: float
    ends: float
    style: str
    name: str


def draw_bars(bars: Sequence[Bar], title: str) -> str:
    """Bars below each other."""
    most = max((bar.value for bar in bars), default=0) or 1
    rows = [
        _row(bar.label, _mark(bar.value / most, bar.text, style=bar.style, title=bar.label)) for bar in bars
    ]
    return _list(rows, title)


def draw_pairs(rows: Sequence[tuple[str, int, int]], title: str, *, names: tuple[str, str]) -> str:
    """Two bars for each row: what was expected, and what came."""
    most = max((max(first, second) for _, first, second in rows), default=0) or 1
    drawn = []
    for label, *values in rows:
        marks = (
            _mark(value / most, f"{value:,}", style=style, title=f"{label}, {name}")
            for value, style, name in zip(values, ("c", "a"), names, strict=True)
        )
        drawn.append(_row(label, "".join(marks)))
    return _list(drawn, title)


def _list(rows: Sequence[str], title: str) -> str:
    return f'<ul class="bars" aria-label="{escape(title)}">{"".join(rows)}</ul>'


def _row(label: str, marks: str) -> str:
    return f'<li><span class="name">{escape(label)}</span><span class="marks">{marks}</span></li>'


def _mark(share: float, text: str, *, style: str, title: str) -> str:
    least = " some" if share else ""  # what is there can be seen, however little it is
    return (
        f'<span class="mark" title="{escape(title)}: {escape(text)}">'
        f'<i class="{style}{least}" style="--share:{share:.5f}"></i><b>{escape(text)}</b></span>'
    )


def draw_timeline(columns: Sequence[Column], shades: Sequence[Shade], title: str, *, step: int) -> str:
    """Columns over time, in front of shaded stretches."""
    moments = [column.at for column in columns]
    if not moments:
        return ""
    first = min(moments)
    slots = max((max(moments) - first) // step + 1, _FEWEST_SLOTS)
    end, room = first + slots * step, WIDTH - _LEFT - 10
    sums: dict[int, int] = {}
    for column in columns:
        sums[column.at] = sums.get(column.at, 0) + column.value
    top = _round_up(max(sums.values()))

    def x(moment: float) -> float:
        return _LEFT + room * (min(max(moment, first), end) - first) / (end - first)

    parts = [_scale(top)]
    for shade in shades:
        if shade.ends >= first and shade.begins < end:
            width = max(2.0, x(shade.ends) - x(shade.begins))
            parts.append(
                f'<rect class="{shade.style}" x="{x(shade.begins):.1f}" y="10" width="{width:.1f}" '
                f'height="{_TIME_HEIGHT - 10}"><title>{escape(shade.name)}</title></rect>'
            )
    parts += _columns(columns, x, top, width=max(1.0, room / slots - 1))
    parts += _dates(first, end, x)
    return _svg("".join(parts), _TIME_HEIGHT + 26, title)


def _columns(columns: Sequence[Column], x: _Scale, top: int, *, width: float) -> list[str]:
    parts, stacked = [], dict[int, float]()
    for column in columns:
        height = (_TIME_HEIGHT - 10) * column.value / top
        below = stacked.get(column.at, 0.0)
        stacked[column.at] = below + height
        parts.append(
            f'<rect class="{column.style}" x="{x(column.at):.1f}" y="{_TIME_HEIGHT - below - height:.1f}" '
            f'width="{width:.1f}" height="{height:.1f}">'
            f"<title>{_moment(column.at)}, {escape(column.name)}: {column.value:,}</title></rect>"
        )
    return parts


def _scale(top: int) -> str:
    parts = []
    for part in range(5):
        y = _TIME_HEIGHT - (_TIME_HEIGHT - 10) * part / 4
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - 10}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="label" x="{_LEFT - 8}" y="{y + 4:.1f}">{top * part / 4:,.0f}</text>'
        )
    return "".join(parts)


def _dates(first: int, end: int, x: _Scale) -> list[str]:
    span = end - first
    pause = next(
        (each for each in (300, 900, _HOUR, 6 * _HOUR, _DAY, 7 * _DAY) if span / each <= 10), 30 * _DAY
    )
    form = "%H:%M" if pause < _DAY else "%d %b"
    marks = range(-(-first // pause) * pause, end, pause)
    parts = []
    for mark in marks:
        is_new_day = pause < _DAY and (mark % _DAY == 0 or mark == marks[0])
        text = f"{datetime.fromtimestamp(mark, UTC):{'%d %b %H:%M' if is_new_day else form}}"
        parts.append(
            f'<line class="tick" x1="{x(mark):.1f}" x2="{x(mark):.1f}" y1="{_TIME_HEIGHT}" '
            f'y2="{_TIME_HEIGHT + 4}"/>'
            f'<text class="date" x="{x(mark):.1f}" y="{_TIME_HEIGHT + 18}">{text}</text>'
        )
    return parts


def _moment(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M}"


def _round_up(number: int) -> int:
    """A round number above, that has a quarter."""
    size = 4
    while size < number:
        size = size * 5 // 2 if str(size).startswith("4") else size * 2
    return size


def _svg(content: str, height: float, title: str) -> str:
    name = escape(title)
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{name}">'
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{name}" '
        f'xmlns="http://www.w3.org/2000/svg"><title>{name}</title>{content}</svg></div>'
    )
