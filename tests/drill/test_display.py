"""What a drill looks like while it runs: drawn on a terminal of 80 by 24, or told line by line."""

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from pairbus.drill.picture import Display
from pairbus.drill.report.display import PlainDisplay, open_display
from pairbus.drill.report.live import LiveDisplay, Trail, draw_spark
from pairbus.drill.result import DrillResult

from .sample import make_empty, make_failed, make_pictures, make_result, make_wide

SHOW_CURSOR, HIDE_CURSOR = "\x1b[?25h", "\x1b[?25l"


class Terminal(Console):
    """A terminal of 80 by 24 that keeps what was written to it."""

    def __init__(self) -> None:
        self.written = StringIO()
        super().__init__(
            file=self.written, force_terminal=True, width=80, height=24, markup=False, highlight=False,
            color_system="256", _environ={},
        )  # fmt: skip


def picture_of(written: str) -> list[str]:
    """The lines that were drawn last: what follows the last move of the cursor, colours left out."""
    last = re.split(r"(?:\x1b\[1A|\x1b\[2K|\r)+", written)[-1]
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", last).splitlines()


def show(display: Display, result: DrillResult, *, until: float, most: int = 15) -> None:
    display.begin(result.title, result.story)
    for phase in result.phases:
        if phase.begins <= until:
            display.phase(phase.name, phase.begins)
    display.event("contoso: refuse [bold]", 9.0)
    samples = [sample for sample in result.samples if sample.at <= until]
    # To draw is dear: of a long drill every so many are enough, and the last.
    chosen = samples[:: -max(1, len(samples) // most)][::-1]
    for picture in make_pictures(replace(result, samples=(*chosen, result.samples[-1])))[:-1]:
        display.update(picture)


@pytest.mark.parametrize("make", [make_result, make_failed, make_wide])
@pytest.mark.parametrize("until", [5.0, 15.0, 30.0, 999.0])
def test_the_picture_fits_the_terminal(make: Callable[[], DrillResult], until: float) -> None:
    terminal = Terminal()
    display = LiveDisplay(terminal)
    show(display, make(), until=until)
    lines = picture_of(terminal.written.getvalue())
    assert 12 < len(lines) <= 23
    assert max(map(len, lines)) <= 80
    display.close()


def test_the_picture_tells_states_routes_and_the_drain() -> None:
    terminal = Terminal()
    result = make_result()
    display = LiveDisplay(terminal)
    show(display, result, until=15.0)
    during = "\n".join(picture_of(terminal.written.getvalue()))
    for text in (
        "15.0 s  outage  broken: refuse at contoso",
        "failed over",
        "phase: outage",
        "refuse [bold]",
    ):
        assert text in during, text
    assert "drain " not in during
    display.close()

    terminal = Terminal()
    show(LiveDisplay(terminal), result, until=25.0)
    after = "\n".join(picture_of(terminal.written.getvalue()))
    assert "healthy" in after
    assert re.search(r"drain +█+░+  195 of 1,018, 260/s, 3\.2 s left", after)
    assert re.search(r"waiting +█+░+  823", after)
    assert re.search(r"backlog +█", after)


def test_entities_in_trouble_are_shown_when_not_all_fit() -> None:
    terminal = Terminal()
    result = make_wide()
    worst = result.entities[-1].path
    states = [replace(span, state="faulted") if span.path == worst else span for span in result.states]
    show(LiveDisplay(terminal), replace(result, states=tuple(states)), until=200.0)
    lines = picture_of(terminal.written.getvalue())
    assert sum("failed over" in line for line in lines) == 5
    assert any(line.endswith("/s") and "queue-19" in line and "faulted" in line for line in lines)
    assert "and 14 more" in lines


def test_at_the_end_the_terminal_has_the_verdict_and_its_cursor() -> None:
    terminal = Terminal()
    display = LiveDisplay(terminal)
    result = make_failed()
    show(display, result, until=999.0)
    display.end(result)
    display.close()
    written = terminal.written.getvalue()
    assert written.count(HIDE_CURSOR) == written.count(SHOW_CURSOR) == 1
    told = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", written)
    assert "✗ FAILED  6,249 messages sent through a 36 s outage. 6,086 arrived. 3 lost." in told
    assert "40 refused, and the application was told" in " ".join(told.split())
    assert "✗ nothing is lost  3 ids are nowhere <here>" in told
    assert "cost 0.022 USD" in told


def test_a_promise_that_was_kept_is_told_to_its_end_too() -> None:
    """A figure beyond the promise, and why it counts as kept: with its end cut off it is a riddle."""
    terminal = Terminal()
    display = LiveDisplay(terminal)
    result = make_result()
    detail = "4.33 s, the longest of 2; the machine itself was late by 1.41 s at that time"
    checks = [replace(one, passed=True, detail=detail) for one in result.checks[:1]]
    display.end(replace(result, checks=tuple(checks)))
    display.close()
    told = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.written.getvalue())
    assert detail in " ".join(told.split())


def test_a_drill_that_is_broken_off_gives_the_cursor_back() -> None:
    terminal = Terminal()
    display = LiveDisplay(terminal)
    display.close()
    display.begin("title", "")
    display.event("before the first picture", 0.1)
    display.close()
    display.close()
    written = terminal.written.getvalue()
    assert written.count(HIDE_CURSOR) == written.count(SHOW_CURSOR) == 1


def test_a_log_has_a_line_for_everything_and_figures_now_and_then() -> None:
    stream = StringIO()
    result = make_result()
    display = PlainDisplay(stream)
    show(display, result, until=25.0, most=100)
    display.event("two\nlines", 26.0)
    display.end(result)
    display.close()
    lines = stream.getvalue().splitlines()
    assert lines[0] == "drill: The primary namespace goes down and comes back"
    assert "[   9.0 s] phase: outage" in lines
    assert "[  26.0 s] two lines" in lines
    figures = [line for line in lines if " sent (" in line]
    assert len(figures) == 10
    assert figures[5] == (
        "[  15.0 s] 1,164 sent (684 to the primary; 477 to the backlog), 684 received, 479 in the backlog, "
        "3 failed over; the syphon waits until all is well"
    )
    assert figures[-1].endswith(
        "823 in the backlog, 195 of 1,018 moved at 260/s; the syphon waits until all is well"
    )
    sent = result.verdict.sent
    assert f"PASSED: {sent:,} messages sent through a 12 s outage. {sent:,} arrived. None lost." in lines
    assert f"  passed: nothing is lost ({sent:,} sent, {sent:,} arrived)" in lines
    assert lines[-1].endswith("drained at 240/s, cost < 0.01 USD")


def test_a_log_does_not_repeat_what_has_not_changed() -> None:
    stream = StringIO()
    display = PlainDisplay(stream)
    picture = make_pictures(make_result())[-1]
    for step in range(160):
        display.update(replace(picture, at=100 + step / 4, message="checking the records"))
    stamps = [line.split("]")[0] for line in stream.getvalue().splitlines()]
    assert stamps == ["[ 100.0 s", "[ 115.0 s", "[ 130.0 s"]
    assert stream.getvalue().count("; checking the records\n") == 3


def test_a_log_says_what_failed() -> None:
    stream = StringIO()
    PlainDisplay(stream).end(make_failed())
    assert "FAILED: 6,249 messages sent" in stream.getvalue()
    assert "  FAILED: nothing is lost (3 ids are nowhere <here>)\n" in stream.getvalue()
    stream = StringIO()
    PlainDisplay(stream).end(make_empty())
    assert stream.getvalue() == "NOTHING PROVED: No messages were sent. The drill proves nothing.\n"


def test_a_terminal_is_drawn_on_and_everything_else_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    assert isinstance(open_display(StringIO(), is_terminal=True), LiveDisplay)
    assert isinstance(open_display(StringIO(), is_terminal=False), PlainDisplay)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert isinstance(open_display(StringIO(), is_terminal=True), PlainDisplay)


def test_rich_is_loaded_for_terminals_alone() -> None:
    code = (
        "import sys, io\nfrom pairbus.drill.report.display import open_display\n"
        "open_display(io.StringIO(), is_terminal=False)\nsys.exit('rich' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=50)


def test_the_whole_drill_stays_in_view() -> None:
    trail = Trail(10)
    for step in range(1, 401):
        trail.add(step / 4, {"sent": step * 5})
    rates = trail.rates("sent")
    assert 4 < len(rates) <= 10
    assert rates[1:] == pytest.approx([20.0] * (len(rates) - 1))
    assert trail.rates("unheard of") == [0.0] * len(rates)


def test_a_pause_between_pictures_is_a_pause_in_the_trail() -> None:
    trail = Trail(40)
    trail.add(0.4, {"sent": 10})
    trail.add(2.1, {"sent": 30})
    trail.add(2.6, {"sent": 30})
    assert trail.rates("sent") == [20, 0, 0, 0, 40]


def test_a_spark_is_as_high_as_its_share() -> None:
    assert draw_spark([0, 0.001, 4, 8, 9], most=8) == " ▁▄██"
    assert draw_spark([0, 0], most=0) == "  "
