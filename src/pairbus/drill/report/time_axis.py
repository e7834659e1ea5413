"""The time axis that all charts of a drill share.

Theory
1. A chart is as wide as the page lets it be, and its letters keep their size. So a place in time is a
   percentage, never a number of pixels, and nothing that holds text is ever scaled.
2. SVG takes percentages for rectangles, lines and text, but not for paths. A path is drawn in thousandths of
   the width, in an inner `<svg>` that is stretched (`stretch`); it holds no text.
3. The ticks are few enough for a telephone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from pairbus.drill.result import Phase

from .wording import write_seconds

__all__ = ["TimeAxis", "draw_axis", "draw_backdrop", "draw_phases", "frame", "stretch", "write_inside"]

_STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600)
_MOST_TICKS = 7
_AXIS_HEIGHT = 20
_PHASE_HEIGHT = 24
# What a letter of twelve pixels takes, and what a word needs around it.
_LETTER = 7.0
_MARGIN = 8.0
# A hundredth of the narrowest chart at a desk (a window of 900 pixels), and on a telephone (390).
_DESK = 6.3
_TELEPHONE = 3.55


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """From the beginning of a drill to its end, in seconds."""

    ends: float

    def place(self, at: float) -> float:
        """Where a moment is, in percent."""
        return 100 * min(max(at / self.ends, 0.0), 1.0) if self.ends > 0 else 0.0

    def ticks(self) -> list[float]:
        """Round moments, few enough to be written side by side."""
        if self.ends <= 0:
            return [0.0]
        step = next((step for step in _STEPS if self.ends / step <= _MOST_TICKS), 0.0)
        step = step or _STEPS[-1] * math.ceil(self.ends / _STEPS[-1] / _MOST_TICKS)
        return [step * number for number in range(int(self.ends / step + 1e-9) + 1)]


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


def write_inside(word: str, x: float, width: float, *, height: int, style: str) -> str:
    """A word in a bar that begins at `x` and is so wide, both in percent, or nothing if it does not fit.

    What fits at a desk alone is `tight`, and left out where the page is narrow. Should a font be wider than
    most, the word is cut off at the end of its bar.
    """
    needed = len(word) * _LETTER + _MARGIN
    if not word or width * _DESK < needed:
        return ""
    classes = f"{style}{' tight' if width * _TELEPHONE < needed else ''}"
    place = "50%" if style == "middle" else "5"
    return (
        f'<svg x="{x:.2f}%" width="{width:.2f}%" height="{height}">'
        f'<text class="{classes}" x="{place}" y="16">{escape(word)}</text></svg>'
    )


def draw_backdrop(axis: TimeAxis, phases: Sequence[Phase]) -> str:
    """What lies behind all charts: the outage shaded, a line where a phase begins."""
    parts = []
    for phase in phases:
        x = axis.place(phase.begins)
        if phase.name == "outage":
            width = axis.place(phase.ends) - x
            parts.append(f'<rect class="shade" x="{x:.2f}%" width="{width:.2f}%" height="100%"/>')
        if x > 0.5:
            parts.append(f'<line class="edge" x1="{x:.2f}%" x2="{x:.2f}%" y2="100%"/>')
    return f'<div class="backdrop">{frame("".join(parts), "100%", "")}</div>'


def draw_phases(axis: TimeAxis, phases: Sequence[Phase]) -> str:
    """The phases by name."""
    parts = []
    for phase in phases:
        x, ends = axis.place(phase.begins), axis.place(phase.ends)
        lasted = write_seconds(phase.ends - phase.begins)
        name = escape(phase.name)
        text = write_inside(phase.name, x, ends - x, height=_PHASE_HEIGHT, style="middle")
        style = "phase outage" if phase.name == "outage" else "phase"
        parts.append(
            f'<g><title>{name}: {lasted}</title><rect class="{style}" x="{x:.2f}%" y="1" '
            f'width="{max(ends - x, 0.2):.2f}%" height="{_PHASE_HEIGHT - 2}"/>{text}</g>'
        )
    told = ", ".join(f"{phase.name} {write_seconds(phase.ends - phase.begins)}" for phase in phases)
    return frame("".join(parts), _PHASE_HEIGHT, f"Phases: {told}" if told else "")


def draw_axis(axis: TimeAxis) -> str:
    """The seconds below the charts."""
    parts = []
    ticks = axis.ticks()
    for tick in ticks:
        x = axis.place(tick)
        anchor = "start" if tick == 0 else "end" if x > 97 else "middle"
        parts.append(
            f'<line class="tick" x1="{x:.2f}%" x2="{x:.2f}%" y2="4"/>'
            f'<text class="dim {anchor}" x="{x:.2f}%" y="17">{_write_tick(tick, ticks[-1])}</text>'
        )
    return frame("".join(parts), _AXIS_HEIGHT, "")


def _write_tick(tick: float, last: float) -> str:
    if last >= 120:
        return f"{round(tick) // 60}:{round(tick) % 60:02d}"
    return f"{tick:g} s" if last >= 1 else f"{tick:.1f} s"
