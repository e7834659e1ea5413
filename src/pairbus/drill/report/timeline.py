"""The time line of a drill: phases, faults, states and amounts below each other, on one axis."""

from collections.abc import Sequence
from html import escape

from pairbus.charts.areas import Layer, Slots, draw_areas
from pairbus.charts.document import draw_legend
from pairbus.charts.time_axis import TimeAxis, draw_axis, pick_seconds
from pairbus.drill.result import DrillResult, Sample
from pairbus.plumbing.wording import counted

from .lanes import (
    STATES,
    draw_backdrop,
    draw_fault_lane,
    draw_phases,
    draw_state_lane,
    group_lanes,
    is_troubled,
)
from .series import levels_of, make_slots, rates_of, sums_of
from .wording import write_rate, write_seconds

# More lanes than these are folded away, so that the charts stay near the faults that explain them.
_MOST_LANES = 10
_MOST_FAULTS = 6
# So much of the time before the verdict is drawn of the verdict.
_VERDICT_SHARE = 0.03
_HEIGHT = 132
_LOW_HEIGHT = 66


def render_timeline(result: DrillResult) -> str:
    if not (result.phases or result.states or result.samples):
        return ""
    axis = TimeAxis(find_end(result))
    parts = [
        draw_backdrop(axis, result.phases),
        _row(_who("phase"), draw_phases(axis, result.phases), "first"),
        _faults(result, axis),
        _lanes(result, axis),
        draw_charts(result, axis),
        _row(_who("", "seconds since the drill began"), draw_axis(axis, pick_seconds(axis)), "axis"),
    ]
    return (
        '<section aria-labelledby="time"><h2 id="time">What happened when</h2>'
        f'<div class="timeline">{"".join(parts)}</div>{_left_out(result, axis)}</section>'
    )


def find_end(result: DrillResult) -> float:
    """Where the axis ends: to judge can take longer than all that is judged, and shows nothing."""
    begins = next((phase.begins for phase in result.phases if phase.name == "verdict"), result.seconds)
    return min(result.seconds, begins * (1 + _VERDICT_SHARE)) if begins > 0 else result.seconds


def _left_out(result: DrillResult, axis: TimeAxis) -> str:
    left = result.seconds - axis.ends
    if left < 1:
        return ""
    return f'<p class="dim left">Not drawn: {write_seconds(left)} more, for checking and billing.</p>'


def _faults(result: DrillResult, axis: TimeAxis) -> str:
    if not result.faults:
        return _row(_who("faults"), '<p class="dim none">Nothing was broken.</p>')
    rows = [
        _row(
            _who(fault.kind, f"{fault.namespace}{f'/{fault.entity}' if fault.entity else ''}"),
            draw_fault_lane(axis, fault),
            "broken",
        )
        for fault in sorted(result.faults, key=lambda fault: (fault.begins, fault.namespace))
    ]
    return _title("Broken on purpose") + _fold(rows, _MOST_FAULTS, ("fault", "faults"))


def _lanes(result: DrillResult, axis: TimeAxis) -> str:
    lanes = group_lanes(result.states)
    if not lanes:
        return ""
    clients = len({client for _, client in lanes})
    # Those in trouble first; among them the order of their names.
    order = sorted(lanes.items(), key=lambda lane: not is_troubled(lane[1]))
    rows = [
        _row(_who(path, client if clients > 1 else ""), draw_state_lane(axis, spans))
        for (path, client), spans in order
    ]
    legend = draw_legend((style, name, "") for name, (_, style) in STATES.items())
    return _title("Entities, as each client saw them", legend) + _fold(rows, _MOST_LANES, ("lane", "lanes"))


def _fold(rows: Sequence[str], most: int, words: tuple[str, str]) -> str:
    shown, rest = "".join(rows[:most]), rows[most:]
    if not rest:
        return shown
    more = counted(len(rest), f"more {words[0]}", f"more {words[1]}")
    return f"{shown}<details><summary>{more}</summary>{''.join(rest)}</details>"


def draw_charts(result: DrillResult, axis: TimeAxis) -> str:
    """The charts; without samples there are none."""
    if not result.samples:
        return ""
    slots = make_slots(axis.ends)
    charts = [_sends(result, axis, slots), _arrivals(result, axis, slots)]
    if any(sample.backlog or sample.spooled or sample.moved for sample in result.samples):
        charts.append(_waiting(result, axis, slots))
    if any(sample.held for sample in result.samples):
        charts.append(_held(result, axis, slots))
    return "".join(charts)


def _sends(result: DrillResult, axis: TimeAxis, slots: Slots) -> str:
    samples, last = result.samples, result.samples[-1]
    ways = {"primary": "to_primary", "backlog": "to_backlog", "spool": "to_spool", "refused": "refused"}
    layers = [
        Layer(name.replace("_", " the "), way, rates_of(samples, name, slots)) for way, name in ways.items()
    ]
    totals = {way: getattr(last, name) for way, name in ways.items()}
    told = ", ".join(f"{total:,} {way}" for way, total in totals.items())
    drawn = draw_areas(
        axis, slots, areas=layers, lines=(), height=_HEIGHT,
        title=f"Sends a second by the way that they went; in all {told}", write=write_rate,
    )  # fmt: skip
    legend = draw_legend((way, way, f"{total:,}") for way, total in totals.items() if total)
    return _row(_who("Sends", "a second, by route", legend), drawn, "chart")


def _arrivals(result: DrillResult, axis: TimeAxis, slots: Slots) -> str:
    samples, last = result.samples, result.samples[-1]
    moved = Layer("moved by the syphon", "backlog", rates_of(samples, "moved", slots))
    received = Layer("received", "received", rates_of(samples, "received", slots))
    drawn = draw_areas(
        axis, slots, areas=[moved], lines=[received], height=_HEIGHT,
        title=f"Messages a second that arrived; in all {last.received:,}, the syphon moved {last.moved:,}",
        write=write_rate,
    )  # fmt: skip
    key = [("line-received", "received", f"{last.received:,}")]
    key += [("backlog", "syphoned", f"{last.moved:,}")] if last.moved else []
    return _row(_who("Arrivals", "a second", draw_legend(key)), drawn, "chart")


def _waiting(result: DrillResult, axis: TimeAxis, slots: Slots) -> str:
    samples = result.samples
    layers = [
        Layer("in the backlog", "backlog", levels_of(samples, "backlog", slots)),
        Layer("in the spool", "spool", levels_of(samples, "spooled", slots)),
    ]
    moved = Layer("moved so far", "moved", sums_of(samples, "moved", slots)[1:])
    most, spooled = _most(samples, "backlog"), _most(samples, "spooled")
    drawn = draw_areas(
        axis, slots, areas=layers, lines=[moved], height=_HEIGHT,
        title=f"Messages that wait: up to {most:,} in the backlog, up to {spooled:,} in the spool",
        write=_write_count,
    )  # fmt: skip
    key = [("backlog", "backlog, most", f"{most:,}")]
    key += [("spool", "spool, most", f"{spooled:,}")] if spooled else []
    key += [("line-moved", "moved so far", f"{samples[-1].moved:,}")]
    return _row(_who("Waiting", "messages", draw_legend(key)), drawn, "chart")


def _held(result: DrillResult, axis: TimeAxis, slots: Slots) -> str:
    most = _most(result.samples, "held")
    layer = Layer("without an answer", "held", levels_of(result.samples, "held", slots))
    drawn = draw_areas(
        axis, slots, areas=[layer], lines=(), height=_LOW_HEIGHT,
        title=f"Sends that wait for their answer: up to {most:,}", write=_write_count,
    )  # fmt: skip
    return _row(
        _who("Held up", "sends", draw_legend([("held", "unanswered, most", f"{most:,}")])), drawn, "chart"
    )


def _most(samples: Sequence[Sample], name: str) -> int:
    return max(int(getattr(sample, name)) for sample in samples)


def _write_count(value: float) -> str:
    return f"{value:,.0f}"


def _row(who: str, drawn: str, style: str = "") -> str:
    return f'<div class="row{f" {style}" if style else ""}">{who}<div class="plot">{drawn}</div></div>'


def _who(name: str, note: str = "", legend: str = "") -> str:
    label = f'<b title="{escape(name)}"><bdi>{escape(name)}</bdi></b> ' if name else ""
    return f'<div class="who"><p>{label}<span class="dim"><bdi>{escape(note)}</bdi></span></p>{legend}</div>'


def _title(text: str, legend: str = "") -> str:
    return f'<div class="group"><h3>{escape(text)}</h3>{legend}</div>'
