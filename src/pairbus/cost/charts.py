"""Charts as SVG: bars, pairs of bars, and columns on a time line. Plain text, no script, no library.

Colours and fonts are the page's, by class; a chart only knows sizes. What a mark stands for is its `<title>`,
which browsers show where the pointer rests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

__all__ = ["Bar", "Column", "Shade", "draw_bars", "draw_pairs", "draw_timeline"]

WIDTH = 960
_LABEL = 250
_VALUE = 110
_ROW = 26
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
    room = WIDTH - _LABEL - _VALUE
    parts = []
    for row, bar in enumerate(bars):
        y, length = row * _ROW, max(1.0, room * bar.value / most) if bar.value else 0
        parts.append(
            f'<text class="label" x="{_LABEL - 10}" y="{y + 17}">{escape(_short(bar.label))}</text>'
            f'<rect class="{bar.style}" x="{_LABEL}" y="{y + 5}" width="{length:.1f}" height="16" rx="2">'
            f"<title>{escape(bar.label)}: {escape(bar.text)}</title></rect>"
            f'<text class="value" x="{_LABEL + length + 6:.1f}" y="{y + 17}">{escape(bar.text)}</text>'
        )
    return _svg("".join(parts), max(1, len(bars)) * _ROW + 4, title)


def draw_pairs(rows: Sequence[tuple[str, int, int]], title: str, *, names: tuple[str, str]) -> str:
    """Two bars for each row: what was expected, and what came."""
    most = max((max(first, second) for _, first, second in rows), default=0) or 1
    room, height = WIDTH - _LABEL - _VALUE, 40
    parts = []
    for row, (label, *values) in enumerate(rows):
        y = row * height
        parts.append(f'<text class="label" x="{_LABEL - 10}" y="{y + 22}">{escape(_short(label))}</text>')
        for place, (value, style, name) in enumerate(zip(values, ("c", "a"), names, strict=True)):
            length, top = max(1.0, room * value / most) if value else 0, y + 5 + place * 15
            parts.append(
                f'<rect class="{style}" x="{_LABEL}" y="{top}" width="{length:.1f}" height="13" rx="2">'
                f"<title>{escape(label)}, {name}: {value:,}</title></rect>"
                f'<text class="value" x="{_LABEL + length + 6:.1f}" y="{top + 11}">{value:,}</text>'
            )
    return _svg("".join(parts), max(1, len(rows)) * height + 4, title)


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


def _short(text: str) -> str:
    return text if len(text) <= 36 else f"…{text[-35:]}"


def _svg(content: str, height: float, title: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}" '
        f'xmlns="http://www.w3.org/2000/svg">{content}</svg>'
    )
