"""Lanes: phases, what was broken, and what state an entity was in, as bars along the time axis.

A state is told by the height of its bar and by a word beside its colour: healthy is a thin line, suspect a
band, failed over a bar, faulted a hatched one.
"""

from collections.abc import Iterable, Sequence

from pairbus.charts.time_axis import TimeAxis, draw_span, frame
from pairbus.drill.result import FaultSpan, Phase, StateSpan

from .wording import name_state, write_seconds

_HEIGHT = 24
# How thick the bar of a state is, and which class it has; an unknown one is drawn like `suspect`.
STATES = {
    "healthy": (6, "healthy"),
    "suspect": (12, "suspect"),
    "failed over": (18, "failed-over"),
    "faulted": (18, "faulted"),
}


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
    return frame(bars, _HEIGHT, told)


def draw_fault_lane(axis: TimeAxis, fault: FaultSpan) -> str:
    lasted = write_seconds(fault.ends - fault.begins)
    where = f"{fault.namespace}, {fault.entity or 'the whole namespace'}"
    told = f"{fault.kind} at {where}, from {fault.begins:.1f} s, for {lasted}"
    bar = _bar(axis, fault, 16, style="fault", word=f"{fault.kind}, {lasted}", told=told)
    return frame(bar, _HEIGHT, told)


def _state_bar(axis: TimeAxis, span: StateSpan) -> str:
    state = name_state(span.state)
    thickness, style = STATES.get(state, STATES["suspect"])
    lasted = write_seconds(span.ends - span.begins)
    told = f"{state} for {lasted}, from {span.begins:.1f} s{f': {span.reason}' if span.reason else ''}"
    word = "" if thickness < 16 else f"{state}, {lasted}"
    return _bar(axis, span, thickness, style=style, word=word, told=told)


def _bar(
    axis: TimeAxis, span: StateSpan | FaultSpan, thickness: int, *, style: str, word: str, told: str
) -> str:
    return draw_span(
        axis, span.begins, span.ends, height=_HEIGHT, thickness=thickness, style=f"bar {style}",
        told=told, word=word, word_style=f"on-{style}",
    )  # fmt: skip


def draw_phases(axis: TimeAxis, phases: Sequence[Phase]) -> str:
    lasted = [f"{phase.name} {write_seconds(phase.ends - phase.begins)}" for phase in phases]
    drawn = "".join(
        draw_span(
            axis, phase.begins, phase.ends, height=_HEIGHT, thickness=_HEIGHT - 2,
            style="phase outage" if phase.name == "outage" else "phase",
            told=told, word=phase.name, word_style="middle",
        )
        for phase, told in zip(phases, lasted, strict=True)
    )  # fmt: skip
    return frame(drawn, _HEIGHT, f"Phases: {', '.join(lasted)}" if lasted else "")


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
