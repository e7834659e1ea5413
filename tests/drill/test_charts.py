"""What the time line of a drill is drawn with: series in slots, and lanes."""

import re
from dataclasses import replace

import pytest

from pairbus.charts.areas import Slots
from pairbus.charts.time_axis import TimeAxis
from pairbus.drill.report.lanes import draw_fault_lane, draw_state_lane, group_lanes, is_troubled
from pairbus.drill.report.series import MOST_SLOTS, levels_of, make_slots, rates_of, sums_of
from pairbus.drill.report.wording import write_seconds
from pairbus.drill.result import FaultSpan, Sample, StateSpan

NONE = Sample(
    at=0.0,
    to_primary=0,
    to_backlog=0,
    to_spool=0,
    refused=0,
    received=0,
    moved=0,
    backlog=0,
    spooled=0,
    held=0,
)


def sampled(*points: tuple[float, int]) -> list[Sample]:
    return [replace(NONE, at=at, to_primary=value, backlog=value) for at, value in points]


@pytest.mark.parametrize("seconds", [0.0, 0.1, 37.5, 38.0, 600, 86_400, 10**7])
def test_slots_cover_the_drill_and_are_few(seconds: float) -> None:
    slots = make_slots(seconds)
    assert 1 <= slots.count <= MOST_SLOTS
    assert seconds <= slots.count * slots.length


def test_slots_share_out_what_there_was_and_nothing_more() -> None:
    samples = sampled((0.3, 30), (1.1, 70), (2.6, 75), (9.9, 400))
    for length in (0.25, 0.7, 3.0):
        slots = Slots(length, round(12 / length) + 1)
        rates = rates_of(samples, "to_primary", slots)
        assert sum(rates) * length == pytest.approx(400)
    assert sums_of(samples, "to_primary", Slots(1.1, 1)) == [0, 70]
    assert rates_of([], "to_primary", Slots(1, 2)) == [0, 0]


def test_two_samples_at_one_moment_do_no_harm() -> None:
    samples = sampled((0.0, 5), (0.0, 5), (1.0, 10), (1.0, 12))
    assert sums_of(samples, "to_primary", Slots(1, 2)) == [5, 12, 12]


def test_a_level_keeps_its_peak_and_holds_until_the_next_sample() -> None:
    samples = sampled((0.1, 3), (0.5, 90), (0.9, 4), (3.2, 1))
    assert levels_of(samples, "backlog", Slots(1, 5)) == [90, 90, 90, 1, 1]


def span(state: str, begins: float, ends: float, *, path: str = "orders", client: str = "c-1") -> StateSpan:
    return StateSpan(client=client, path=path, state=state, begins=begins, ends=ends, reason="a & b")


def test_a_lane_tells_each_state_by_height_place_and_word() -> None:
    spans = [
        span("healthy", 0, 5),
        span("suspect", 5, 6),
        span("failed_over", 6, 16),
        span("FAULTED", 16, 20),
    ]
    drawn = draw_state_lane(TimeAxis(20), spans)
    bars = re.findall(r'class="bar ([\w-]+)" x="([\d.]+)%" y="\d+" width="([\d.]+)%" height="(\d+)"', drawn)
    assert bars == [
        ("healthy", "0.00", "25.00", "6"),
        ("suspect", "25.00", "5.00", "12"),
        ("failed-over", "30.00", "50.00", "18"),
        ("faulted", "80.00", "20.00", "18"),
    ]
    assert "<title>failed over for 10 s, from 6.0 s: a &amp; b</title>" in drawn
    assert ">failed over, 10 s</text>" in drawn


def test_a_state_too_short_to_see_is_seen() -> None:
    (width,) = re.findall(
        r'width="([\d.]+)%" height="18"', draw_state_lane(TimeAxis(600), [span("faulted", 3, 3.01)])
    )
    assert float(width) > 0.3


def test_a_fault_names_its_namespace_and_entity() -> None:
    fault = FaultSpan(namespace="contoso", kind="silence", entity=None, begins=2, ends=8)
    assert "silence at contoso, the whole namespace, from 2.0 s, for 6.0 s" in draw_fault_lane(
        TimeAxis(10), fault
    )
    assert "silence at contoso, orders, from" in draw_fault_lane(
        TimeAxis(10), replace(fault, entity="orders")
    )


def test_lanes_are_by_entity_and_client_in_order_of_time() -> None:
    lanes = group_lanes(
        [
            span("suspect", 4, 5),
            span("healthy", 0, 4),
            span("healthy", 0, 5, client="c-2"),
            span("healthy", 0, 5, path="a"),
        ]
    )
    assert list(lanes) == [("a", "c-1"), ("orders", "c-1"), ("orders", "c-2")]
    assert [one.state for one in lanes["orders", "c-1"]] == ["healthy", "suspect"]
    assert [is_troubled(spans) for spans in lanes.values()] == [False, True, False]


def test_numbers_are_written_with_the_places_they_deserve() -> None:
    assert [write_seconds(value) for value in (0.0431, 0.9996, 1.26, 9.96, 42.4, 119, 180, 185)] == [
        "43 ms",
        "1.0 s",
        "1.3 s",
        "10 s",
        "42 s",
        "119 s",
        "3 min",
        "3 min 05 s",
    ]
