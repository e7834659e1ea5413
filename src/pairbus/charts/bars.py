"""Bars as a list of names and values that is as wide as the page: it can be read on a phone, and aloud.

What a mark stands for is its title, which browsers show where the pointer rests.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: its name, its length, what stands at its end, and the class of its colour."""

    label: str
    value: float
    text: str
    style: str = "a"


def draw_bars(bars: Sequence[Bar], title: str) -> str:
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
