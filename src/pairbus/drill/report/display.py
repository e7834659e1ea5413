"""How a drill is shown while it runs: drawn on a terminal, or told line by line in a log."""

from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TextIO

from pairbus.drill.picture import Display, DrillPicture
from pairbus.drill.result import DrillResult

from .summary import judge, sum_up, tell_figures, tell_rest
from .wording import name_state

# How often the figures are told: often enough to see that it lives, seldom enough to read the log afterwards.
_PAUSE = 2.5
# And how often if they are the same again.
_LONG_PAUSE = 15.0


def open_display(stream: TextIO, *, is_terminal: bool) -> Display:
    """The display for a stream. What cannot be drawn on, and what lacks rich, is written to line by line."""
    if is_terminal and find_spec("rich") is not None:
        from rich.console import Console

        from .live import LiveDisplay

        console = Console(file=stream, markup=False, highlight=False, emoji=False)  # no text is markup
        if not console.is_dumb_terminal:
            return LiveDisplay(console)
    return PlainDisplay(stream)


class PlainDisplay(Display):
    """A line for everything that happens, and the figures now and then."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._told_at = 0.0
        self._told = ""

    def begin(self, scenario_title: str, story: str) -> None:
        self._write(f"drill: {scenario_title}")
        if story:
            self._write(" ".join(story.split()))

    def phase(self, name: str, at: float) -> None:
        self._write(f"{_stamp(at)} phase: {name}")

    def event(self, text: str, at: float) -> None:
        self._write(f"{_stamp(at)} {text}")

    def update(self, picture: DrillPicture) -> None:
        if picture.at - self._told_at < _PAUSE:
            return
        told = ", ".join(_figures(picture))
        if told != self._told or picture.at - self._told_at >= _LONG_PAUSE:
            self._told_at, self._told = picture.at, told
            doing = f"; {picture.message}" if picture.message else ""
            self._write(f"{_stamp(picture.at)} {told}{doing}")

    def end(self, result: DrillResult) -> None:
        self._write(f"{judge(result).upper()}: {' '.join(sum_up(result))}")
        if rest := tell_rest(result):
            self._write(rest)
        for check in result.checks:
            self._write(
                f"  {check.word if check.passed else check.word.upper()}: {check.name} ({check.detail})"
            )
        if told := tell_figures(result):
            self._write(told)

    def close(self) -> None:
        self._stream.flush()

    def _write(self, line: str) -> None:
        # A name with a line break in it must not look like a line of ours.
        self._stream.write(" ".join(line.splitlines()) + "\n")
        self._stream.flush()


def _stamp(at: float) -> str:
    return f"[{at:6.1f} s]"


def _figures(picture: DrillPicture) -> Iterator[str]:
    ways = {name: picture.total(name) for name in ("to_primary", "to_backlog", "to_spool", "refused")}
    told = "; ".join(f"{number:,} {way.replace('_', ' the ')}" for way, number in ways.items() if number)
    yield f"{picture.total('sent'):,} sent{f' ({told})' if told else ''}"
    yield f"{picture.total('received'):,} received"
    yield f"{picture.backlog:,} in the backlog"
    if picture.spooled:
        yield f"{picture.spooled:,} in the spool"
    if picture.drain_total is not None:
        yield f"{picture.drain_moved:,} of {picture.drain_total:,} moved at {picture.drain_rate:,.0f}/s"
    states = Counter(name_state(entity.state) for entity in picture.entities)
    yield from (f"{number} {state}" for state, number in sorted(states.items()) if state != "healthy")
