"""The page of a drill: it needs nothing but itself, and shows what the result says."""

import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from importlib import resources
from xml.etree import ElementTree

import pytest

from pairbus.drill.report.page import render_drill
from pairbus.drill.report.summary import fates_of, find_failover, find_outage, sum_up, tell_figures, tell_rest
from pairbus.drill.report.timeline import find_end
from pairbus.drill.result import DrillResult, FaultSpan, StateSpan
from tests.charts.pages import read_page

from .sample import BEGAN, make_empty, make_failed, make_healthy, make_result, make_wide

MAKERS = [make_result, make_healthy, make_failed, make_wide, make_empty]
Make = Callable[[], DrillResult]


def words_of(result: DrillResult) -> str:
    text = "".join(read_page(render_drill(result, now=BEGAN)).words)
    return text.replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.parametrize("make", MAKERS)
def test_it_opens_offline_and_is_well_formed(make: Make) -> None:
    page = render_drill(make(), now=BEGAN)
    reader = read_page(page)
    assert reader.open == []
    assert not {"script", "link", "img", "iframe"} & reader.seen
    assert set(re.findall(r"https?://[^\"' <]+", page)) == {"http://www.w3.org/2000/svg"}
    assert set(re.findall(r"url\(([^)]*)\)", page)) == {"#hatch"}
    assert len(page.encode()) < 250_000
    # What stands in the body is XML too, charts and all.
    ElementTree.fromstring(page[page.index("<body>") : page.index("</html>")])


def test_a_manager_reads_the_verdict_first() -> None:
    result = make_result()
    sent = result.verdict.sent
    text = words_of(result)
    assert f"✓ Passed{sent:,} messages sent through a 12 s outage. {sent:,} arrived. None lost." in text
    assert "pairbus drill primary-down --seed 7" in text
    for figure in ("failover1.2 s", "longest send1.4 s", "drained at240/s", "cost< 0.01 USD"):
        assert figure in text, figure


def test_the_command_to_run_it_again_is_whole() -> None:
    asked = ["my outage.toml", "--no-spark", "--app", "python shop.py"]
    text = "".join(read_page(render_drill(make_result(), now=BEGAN, asked=asked)).words)
    assert "pairbus drill 'my outage.toml' --no-spark --app 'python shop.py' --seed 7" in text


def test_every_number_that_matters_is_on_the_page() -> None:
    result = make_failed()
    text = words_of(result)
    for name, number in fates_of(result):
        assert f"{name} {number:,}" in text, name
    for entity in result.entities:
        assert f"{entity.path}{entity.sent:,}{entity.delivered:,}" in text
    for check in result.checks:
        assert check.name in text
        assert check.detail in text
    assert result.cost is not None
    for line in result.cost.stages:
        assert f"{line.operations:,}" in text
    assert "in all27,7510.022" in text
    assert result.drain is not None
    assert f"{result.drain.moved:,} in 12 s" in text
    assert "5 messages came out of order." in text
    assert "The disk of shop-1 was full at 22 s & two sends raised." in text
    assert "failover_interval1.0" in text
    assert "2026-11-12 12:00:00 UTC" in text


def test_what_went_wrong_is_told_in_words_and_worst_first() -> None:
    result = make_failed()
    text = words_of(result)
    assert "✗ Failed6,249 messages sent" in text
    assert " 3 lost." in text
    assert "1 of 5 promises not kept: nothing is lost." in text
    assert text.index("✗ failednothing is lost") < text.index("✓ passedno send raised")
    ids = re.findall(r"shop-1-\d{6}", text)
    assert len(ids) == len(result.verdict.unaccounted)
    assert sorted(ids[:3]) == ["shop-1-000000", "shop-1-000001", "shop-1-000002"]
    page = render_drill(result, now=BEGAN)
    assert f"<summary>{len(ids) - 8:,} more ids</summary>" in page


def test_long_lists_end_and_say_so() -> None:
    text = words_of(make_failed(ids=300))
    assert len(re.findall(r"shop-1-\d{6}", text)) == 500
    assert "And 1,003 more, see the JSON of the drill." in text


def test_everything_is_escaped() -> None:
    page = render_drill(make_failed(), now=BEGAN)
    for text in ("<b>lost", "<script", "<namespaces>", "<here>", "<entity not found>"):
        assert text not in page
        assert text in unescape(page)


def test_lanes_and_faults_beyond_the_first_are_folded() -> None:
    page = render_drill(make_wide(), now=BEGAN)
    assert "<summary>30 more lanes</summary>" in page
    assert "<summary>4 more faults</summary>" in page
    assert page.count('class="bar failed-over"') == 20


def test_ten_minutes_of_samples_make_no_large_page() -> None:
    result = make_wide()
    assert len(result.samples) == 2400
    assert len(render_drill(result, now=BEGAN).encode()) < 200_000


def test_a_long_verdict_does_not_push_the_drill_aside() -> None:
    result = make_result()
    *before, verdict = result.phases
    late = replace(verdict, begins=34.0, ends=334.0)
    slow = replace(result, phases=(*before[:-1], replace(before[-1], ends=34.0), late), seconds=334.0)
    assert find_end(slow) == pytest.approx(34.0 * 1.03)
    assert "Not drawn: 4 min 59 s more" in words_of(slow)
    assert find_end(make_empty()) == 0
    assert "Not drawn" not in words_of(replace(slow, seconds=34.5))


def test_without_an_outage_it_says_so() -> None:
    text = words_of(make_healthy())
    assert re.search(r"(\d+) messages sent\. \1 arrived\. None lost\.", text)
    assert "Nothing was broken." in text
    assert "Waiting" not in text


def test_a_drill_without_messages_proves_nothing() -> None:
    text = words_of(make_empty())
    assert "✗ Nothing provedNo messages were sent. The drill proves nothing." in text
    assert "What happened when" not in text
    assert "simply arrived" not in text


def test_faults_side_by_side_are_one_outage() -> None:
    fault = FaultSpan(namespace="contoso", kind="refuse", entity=None, begins=5.0, ends=9.0)
    faults = (fault, replace(fault, begins=7.0, ends=12.0), replace(fault, begins=20.0, ends=21.0))
    result = replace(make_result(), faults=faults)
    assert find_outage(result) == 8.0
    assert "through an 8.0 s outage" in sum_up(result)[0]


def test_the_failover_is_measured_from_the_fault_that_brought_it() -> None:
    result = make_result()
    assert find_failover(result) == pytest.approx(1.22)
    second = tuple(replace(fault, namespace="secondary", begins=10.0, ends=30.0) for fault in result.faults)
    assert find_failover(replace(result, faults=(*result.faults, *second))) == pytest.approx(1.22)
    other = tuple(replace(fault, entity="elsewhere") for fault in result.faults)
    assert find_failover(replace(result, faults=other)) is None


def test_a_fault_that_comes_and_goes_is_not_counted_from_its_beginning() -> None:
    fault = FaultSpan(namespace="primary", kind="flap", entity=None, begins=3.0, ends=19.0)
    edges = [
        ("healthy", 0.0, 3.1), ("suspect", 3.1, 5.0), ("failed_over", 5.0, 8.0), ("healthy", 8.0, 10.0),
        ("suspect", 10.0, 12.5), ("failed_over", 12.5, 20.0), ("healthy", 20.0, 25.0),
    ]  # fmt: skip
    states = [
        StateSpan(client="c-1", path="orders", state=state, begins=begins, ends=ends, reason="")
        for state, begins, ends in edges
    ]
    result = replace(make_result(), faults=(fault,), states=tuple(reversed(states)))
    assert find_failover(result) == 2.5


def test_what_did_not_simply_arrive_is_told_in_a_line() -> None:
    assert tell_rest(make_result()) == ""
    verdict = replace(make_result().verdict, waiting=1, refused=2)
    assert tell_rest(replace(make_result(), verdict=verdict)) == (
        "1 still waits in the backlog; 2 refused, and the application was told."
    )


def colours() -> list[dict[str, str]]:
    """The colours of the light page and those of the dark one."""
    style = resources.files("pairbus.drill.report").joinpath("drill.css").read_text(encoding="utf-8")
    blocks = re.findall(r":root \{(.*?)\}", style, flags=re.DOTALL)
    return [dict(re.findall(r"--([\w-]+): #(\w+);", block)) for block in blocks]


def luminance(colour: str) -> float:
    if len(colour) == 3:
        colour = "".join(letter * 2 for letter in colour)
    parts = [int(colour[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_what_could_not_be_judged_is_not_told_as_broken() -> None:
    result = make_result()
    late = replace(result.checks[0], passed=False, inconclusive=True)
    result = replace(result, checks=(late, *(replace(one, passed=True) for one in result.checks[1:])))
    page = render_drill(result, now=BEGAN)
    assert '<div class="verdict doubt"><b class="mark">? Inconclusive</b>' in page
    assert '<li class="doubt"><b class="mark">? inconclusive</b>' in page
    text = words_of(result)
    assert f"1 of 5 promises not to be judged, since the machine was late: {late.name}." in text
    assert "not kept" not in text


@pytest.mark.parametrize("theme", colours(), ids=["light", "dark"])
def test_text_and_marks_stand_out_from_their_ground(theme: dict[str, str]) -> None:
    """WCAG 2, level AA: 4.5 for text, 3 for marks, unless a word or a height says it too."""

    def contrast(first: str, second: str) -> float:
        low, high = sorted((luminance(theme[first]), luminance(theme[second])))
        return (high + 0.05) / (low + 0.05)

    text = [("ink", "paper"), ("dim", "paper"), ("dim", "ground"), ("ink", "shade"), ("dim", "shade"),
            ("ink", "pass-ground"), ("pass", "pass-ground"), ("pass", "paper"), ("ink", "fail-ground"),
            ("fail", "fail-ground"), ("fail", "paper"), ("ink", "doubt-ground"), ("doubt", "doubt-ground"),
            ("doubt", "paper"), ("on-bar", "backlog"), ("on-broken", "broken"),
            ("primary", "paper"), ("ink", "broken-light")]  # fmt: skip
    marks = [
        ("primary", "paper"),
        ("backlog", "paper"),
        ("spool", "paper"),
        ("broken", "paper"),
        ("unknown", "paper"),
        ("moved", "paper"),
    ]
    assert {pair: contrast(*pair) for pair in text if contrast(*pair) < 4.5} == {}
    assert {pair: contrast(*pair) for pair in marks if contrast(*pair) < 3} == {}


def test_how_long_sends_took_is_told_only_where_it_was_measured() -> None:
    """An application of others tells that a send has ended, and not when it began."""
    result = make_result()
    assert "longest send 1.4 s" in tell_figures(result)
    entities = tuple(replace(entity, longest_send=0.0) for entity in result.entities)
    silent = replace(result, entities=entities)
    assert "longest send" not in tell_figures(silent)
    assert "0 ms" not in words_of(silent)
