"""The kit that pages are drawn with: places in time, ticks, areas, shades, bars, tables."""

import re
from xml.etree import ElementTree

import pytest

from pairbus.charts.areas import Layer, Shade, Slots, draw_areas, round_up
from pairbus.charts.bars import Bar, draw_bars
from pairbus.charts.document import draw_table
from pairbus.charts.time_axis import TimeAxis, draw_axis, draw_span, pick_dates, pick_seconds

NOON = 1_794_484_800


@pytest.mark.parametrize("seconds", [0.4, 3, 12, 42, 60, 119, 121, 600, 3600, 90_000])
def test_ticks_are_round_and_few(seconds: float) -> None:
    ticks = [at for at, _ in pick_seconds(TimeAxis(seconds))]
    assert ticks[0] == 0
    assert 2 <= len(ticks) <= 8
    assert ticks[-1] <= seconds < ticks[-1] + ticks[1]


def test_a_place_is_within_the_chart() -> None:
    axis = TimeAxis(40)
    assert [axis.place(at) for at in (-1, 0, 10, 40, 99)] == [0, 0, 25, 100, 100]
    assert [TimeAxis(60, begins=20).place(at) for at in (0, 30, 60)] == [0, 25, 100]
    assert TimeAxis(0).place(3) == 0


def test_long_drills_are_written_in_minutes() -> None:
    assert (120.0, "2:00") in pick_seconds(TimeAxis(600))
    assert (10.0, "10 s") in pick_seconds(TimeAxis(60))
    assert pick_seconds(TimeAxis(0)) == [(0.0, "0 s")]


@pytest.mark.parametrize(
    ("seconds", "first", "second"),
    [
        (720, "12 Nov 12:00", "12:05"),
        (86_400, "12 Nov 12:00", "18:00"),
        (4 * 86_400, "13 Nov", "14 Nov"),
        (400 * 86_400, "03 Dec", "02 Jan"),
    ],
)
def test_dates_are_round_and_the_first_tells_the_day(seconds: int, first: str, second: str) -> None:
    ticks = pick_dates(TimeAxis(NOON + seconds, begins=NOON))
    assert [text for _, text in ticks[:2]] == [first, second]
    assert len(ticks) <= 15
    assert all(NOON <= at < NOON + seconds for at, _ in ticks)


def test_a_new_day_is_told() -> None:
    texts = [text for _, text in pick_dates(TimeAxis(NOON + 86_400, begins=NOON))]
    assert texts == ["12 Nov 12:00", "18:00", "13 Nov 00:00", "06:00"]


def test_words_at_the_edges_stay_in_the_chart() -> None:
    drawn = draw_axis(TimeAxis(100), [(0, "a"), (50, "b"), (100, "c")])
    assert re.findall(r'class="dim (\w+)"', drawn) == ["start", "middle", "end"]


def test_a_word_stands_in_a_bar_only_if_it_fits() -> None:
    def drawn(ends: float) -> str:
        return draw_span(
            TimeAxis(100), 0, ends, height=24, thickness=16, style="bar", told="a & b", word="refuse"
        )

    assert ">refuse</text>" in drawn(50)
    assert "<text" not in drawn(2)
    assert "<title>a &amp; b</title>" in drawn(2)


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0, 2), (1.5, 2), (7, 8), (10, 10), (11, 12), (101, 120), (2660, 3000), (9999, 10000)],
)
def test_scales_end_at_round_numbers(number: float, expected: float) -> None:
    assert round_up(number) == expected


def draw(areas: list[Layer], lines: list[Layer] | None = None) -> ElementTree.Element:
    slots = Slots(1, len(areas[0].values))
    drawn = draw_areas(
        TimeAxis(slots.count),
        slots,
        areas=areas,
        lines=lines or [],
        height=114,
        title="it",
        write=lambda value: f"{value:g}",
    )
    return ElementTree.fromstring(drawn.replace(' xmlns="http://www.w3.org/2000/svg"', ""))


def test_areas_are_piled_on_each_other() -> None:
    chart = draw([Layer("low", "a", [4, 4, 0, 10]), Layer("high", "b", [0, 4, 8, 0])])
    low, high = (path.get("d") for path in chart.iter("path"))
    # A hundred pixels are ten: each slot is a quarter of the width, steps of one height are one step.
    assert low == "M0,114V74H500V114H750V14H1000V114H0Z"
    assert high == "M0,74V74H250V34H750V14H1000V14H750V114H500V74H0Z"


def test_every_slot_says_what_it_holds() -> None:
    chart = draw([Layer("sent <b>", "a", [4, 0, 0, 9])], [Layer("received", "c", [0, 0, 3, 9])])
    assert [title.text for title in chart.iter("title")] == [
        "0 s: sent <b> 4",
        "2 s: received 3",
        "3 s: sent <b> 9, received 9",
    ]
    (line,) = chart.iter("polyline")
    assert line.get("points") == "375,114 625,84 875,24"


def test_an_empty_chart_has_no_marks() -> None:
    chart = draw([Layer("sent", "a", [0, 0])], [Layer("received", "c", [0, 0])])
    assert [*chart.iter("path"), *chart.iter("polyline"), *chart.iter("title")] == []


def test_a_shade_lies_behind_the_slots_of_its_time() -> None:
    layer = Layer("sends", "a", [10.0] * 60)
    shades = [Shade(NOON + 600, NOON + 1200, "outage", "it"), Shade(NOON - 9, NOON - 8, "gap", "before")]
    drawn = draw_areas(
        TimeAxis(NOON + 3600, begins=NOON),
        Slots(60, 60, NOON),
        areas=[layer],
        lines=(),
        height=220,
        title="time",
        shades=shades,
        write=lambda value: f"{value:g}",
        write_moment=lambda at: f"at {at - NOON:g}",
    )
    rects = re.findall(r'<rect class="(\w+)" x="([\d.]+)%"', drawn)
    assert [style for style, _ in rects].count("gap") == 0
    assert rects[0] == ("outage", rects[1 + 10][1])  # it begins with the eleventh minute
    assert drawn.index('class="outage"') < drawn.index("<path")
    assert "<title>at 600: sends 10</title>" in drawn


@pytest.mark.parametrize(("highest", "height", "lines"), [(7, 220, 4), (7, 132, 2), (9, 220, 2)])
def test_a_tall_chart_has_quarters_where_they_are_whole(highest: float, height: int, lines: int) -> None:
    drawn = draw_areas(
        TimeAxis(1), Slots(1, 1), areas=[Layer("a", "a", [highest])], lines=(), height=height, title="it",
        write=lambda value: f"{value:g}",
    )  # fmt: skip
    assert drawn.count('class="grid"') == lines


def test_bars_are_as_long_as_their_values() -> None:
    drawn = draw_bars([Bar("a", 4, "4"), Bar("b", 1, "1"), Bar("c", 0, "0")], "bars")
    first, second, third = (float(share) for share in re.findall(r'style="--share:([\d.]+)"', drawn))
    assert (first, third) == (4 * second, 0)


def test_a_table_names_its_rows_and_itself() -> None:
    drawn = draw_table(("a<", "b"), [("x&", "1")], caption="by a")
    assert '<th scope="col">a&lt;</th>' in drawn
    assert '<th scope="row">x&amp;</th><td>1</td>' in drawn
    assert 'aria-label="by a"><table class="numbers"><caption>by a</caption>' in drawn
