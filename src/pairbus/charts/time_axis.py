"""The time axis that the charts of a page share.

Theory
1. A chart is as wide as the page lets it be, and its letters keep their size. So a place in time is a
   percentage, never a number of pixels, and nothing that holds text is ever scaled.
2. SVG takes percentages for rectangles, lines and text, but not for paths. A path is drawn in thousandths of
   the width, in an inner `<svg>` that is stretched (`stretch`); it holds no text.
3. Ticks are round moments, few enough to be written side by side.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

_STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600)
_MOST_TICKS = 7
_AXIS_HEIGHT = 20
_HOUR, _DAY = 3600, 86400
_DATE_STEPS = (300, 900, _HOUR, 6 * _HOUR, _DAY, 7 * _DAY, 30 * _DAY)
_MOST_DATES = 10
# What is shorter is still seen.
_LEAST_WIDTH = 0.4
# What a letter of twelve pixels takes, and what a word needs around it.
_LETTER = 7.0
_MARGIN = 8.0
# A hundredth of the narrowest chart at a desk (a window of 900 pixels), and on a telephone (390).
_DESK = 6.3
_TELEPHONE = 3.55


TimeTick = tuple[float, str]


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """From one moment to another, in seconds."""

    ends: float
    begins: float = 0.0

    def place(self, at: float) -> float:
        """Where a moment is, in percent."""
        length = self.ends - self.begins
        return 100 * min(max((at - self.begins) / length, 0.0), 1.0) if length > 0 else 0.0


def frame(content: str, height: int | str, title: str) -> str:
    """A chart as wide as its place; one that says nothing to those who cannot see it has no title."""
    role = f'role="img" aria-label="{escape(title)}"' if title else 'aria-hidden="true"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="100%" height="{height}" {role}>{content}</svg>'


def stretch(content: str, height: int) -> str:
    """Paths in thousandths of the width."""
    return (
        f'<svg width="100%" height="{height}" viewBox="0 0 1000 {height}" preserveAspectRatio="none">'
        f"{content}</svg>"
    )


def draw_span(
    axis: TimeAxis,
    begins: float,
    ends: float,
    *,
    height: int,
    thickness: int,
    style: str,
    told: str,
    word: str = "",
    word_style: str = "",
) -> str:
    """A bar from one moment to another, in the middle of a lane of this height."""
    x = axis.place(begins)
    width = max(axis.place(ends) - x, _LEAST_WIDTH)
    return (
        f'<g><title>{escape(told)}</title><rect class="{style}" x="{x:.2f}%" y="{(height - thickness) // 2}" '
        f'width="{width:.2f}%" height="{thickness}"/>'
        f"{_write_inside(word, x, width, height=height, style=word_style)}</g>"
    )


def _write_inside(word: str, x: float, width: float, *, height: int, style: str) -> str:
    """A word in a bar, if it fits; `tight` if only at a desk. In a wide font it is cut off with its bar."""
    needed = len(word) * _LETTER + _MARGIN
    if not word or width * _DESK < needed:
        return ""
    classes = f"{style}{' tight' if width * _TELEPHONE < needed else ''}"
    place = "50%" if style == "middle" else "5"
    return (
        f'<svg x="{x:.2f}%" width="{width:.2f}%" height="{height}">'
        f'<text class="{classes}" x="{place}" y="16">{escape(word)}</text></svg>'
    )


def pick_seconds(axis: TimeAxis) -> list[TimeTick]:
    """Ticks in seconds since the beginning, in minutes where it takes long."""
    if axis.ends <= 0:
        return [(0.0, "0 s")]
    step = next((step for step in _STEPS if axis.ends / step <= _MOST_TICKS), 0.0)
    step = step or _STEPS[-1] * math.ceil(axis.ends / _STEPS[-1] / _MOST_TICKS)
    ticks = [step * number for number in range(int(axis.ends / step + 1e-9) + 1)]
    return [(tick, _write_seconds(tick, ticks[-1])) for tick in ticks]


def _write_seconds(tick: float, last: float) -> str:
    if last >= 120:
        return f"{round(tick) // 60}:{round(tick) % 60:02d}"
    return f"{tick:g} s" if last >= 1 else f"{tick:.1f} s"


def pick_dates(axis: TimeAxis) -> list[TimeTick]:
    """Ticks in UTC of an axis in Unix seconds; the first, and the first of a day, tell the day."""
    span = axis.ends - axis.begins
    step = next((step for step in _DATE_STEPS if span / step <= _MOST_DATES), _DATE_STEPS[-1])
    ticks = range(math.ceil(axis.begins / step) * step, math.ceil(axis.ends), step)
    return [(tick, f"{datetime.fromtimestamp(tick, UTC):{_date_form(tick, step, ticks)}}") for tick in ticks]


def _date_form(tick: int, step: int, ticks: Sequence[int]) -> str:
    if step >= _DAY:
        return "%d %b"
    return "%d %b %H:%M" if tick % _DAY == 0 or tick == ticks[0] else "%H:%M"


def draw_axis(axis: TimeAxis, ticks: Sequence[TimeTick]) -> str:
    """The moments below the charts."""
    parts = []
    for tick, text in ticks:
        x = axis.place(tick)
        anchor = "start" if x < 3 else "end" if x > 97 else "middle"
        parts.append(
            f'<line class="tick" x1="{x:.2f}%" x2="{x:.2f}%" y2="4"/>'
            f'<text class="dim {anchor}" x="{x:.2f}%" y="17">{text}</text>'
        )
    return frame("".join(parts), _AXIS_HEIGHT, "")
