"""Lanes: what state an entity was in, and what was broken meanwhile, as bars along the time axis.

A state is told by the height of its bar and by a word beside its colour: healthy is a thin line, suspect a
band, failed over a bar, faulted a hatched one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from pairbus.drill.result import FaultSpan, StateSpan

from .time_axis import TimeAxis, frame, write_inside
from .wording import name_state, write_seconds

__all__ = ["LANE_HEIGHT", "STATES", "draw_fault_lane", "draw_state_lane", "group_lanes", "is_troubled"]

LANE_HEIGHT = 24
# How thick the bar of a state is, and which class it has; an unknown one is drawn like `suspect`.
STATES = {
    "healthy": (6, "healthy"),
    "suspect": (12, "suspect"),
    "failed over": (18, "failed-over"),
    "faulted": (18, "faulted"),
}
# What is shorter is still seen.
_LEAST_WIDTH = 0.4


def group_lanes(states: Iterable[StateSpan]) -> dict[tuple[str, str], list[StateSpan]]:
    """The spans by entity and client, those of one entity together, each lane in order of time."""
    lanes: dict[tuple[str, str], list[StateSpan]] = {}
    for span in sorted(states, key=lambda span: (span.path, span.client, span.begins)):
        lanes.setdefault((span.path, span.client), []).append(span)
    return lanes


def is_troubled(spans: Iterable[StateSpan]) -> bool:
    """Whether a lane shows anything but health."""
    return any(name_state(span.state) != "healthy" for span in spans)


def draw_state_lane(axis: TimeAxis, spans: Sequence[StateSpan]) -> str:
    """The states of one entity as one client saw them."""
    bars = "".join(_state_bar(axis, span) for span in spans)
    told = "; ".join(
        f"{name_state(span.state)} from {span.begins:.1f} s to {span.ends:.1f} s" for span in spans
    )
    return frame(bars, LANE_HEIGHT, told)


def draw_fault_lane(axis: TimeAxis, fault: FaultSpan) -> str:
    """One thing that was broken."""
    lasted = write_seconds(fault.ends - fault.begins)
    where = f"{fault.namespace}, {fault.entity or 'the whole namespace'}"
    told = f"{fault.kind} at {where}, from {fault.begins:.1f} s, for {lasted}"
    bar = _bar(axis, fault.begins, fault.ends, 16, style="fault", word=f"{fault.kind}, {lasted}", told=told)
    return frame(bar, LANE_HEIGHT, told)


def _state_bar(axis: TimeAxis, span: StateSpan) -> str:
    state = name_state(span.state)
    thickness, style = STATES.get(state, STATES["suspect"])
    lasted = write_seconds(span.ends - span.begins)
    told = f"{state} for {lasted}, from {span.begins:.1f} s{f': {span.reason}' if span.reason else ''}"
    word = "" if thickness < 16 else f"{state}, {lasted}"
    return _bar(axis, span.begins, span.ends, thickness, style=style, word=word, told=told)


def _bar(
    axis: TimeAxis, begins: float, ends: float, thickness: int, *, style: str, word: str, told: str
) -> str:
    x = axis.place(begins)
    width = max(axis.place(ends) - x, _LEAST_WIDTH)
    text = write_inside(word, x, width, height=LANE_HEIGHT, style=f"on-{style}")
    y = (LANE_HEIGHT - thickness) // 2
    return (
        f'<g><title>{escape(told)}</title><rect class="bar {style}" x="{x:.2f}%" y="{y}" '
        f'width="{width:.2f}%" height="{thickness}"/>{text}</g>'
    )
