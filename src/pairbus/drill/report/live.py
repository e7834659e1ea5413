"""A drill on a terminal: entities, rates by route, the backlog and its drain, and what happened last.

The picture is redrawn in place, about four times a second and only when the drill says so; no thread runs.
It is never higher than the terminal: events give way first, then entities, those in trouble last.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pairbus.drill.picture import Display, DrillPicture, EntityPicture
from pairbus.drill.result import DrillResult

from .summary import FAILED, SIGNS, judge, sum_up, tell_figures, tell_rest
from .wording import name_state, write_rate, write_seconds

_STATES = {"healthy": "green", "suspect": "yellow", "failed over": "bold dark_orange", "faulted": "bold red"}
_VERDICTS = {"pass": "green", "doubt": "yellow", "fail": "red"}
_WORST = ("faulted", "failed over", "suspect")
_ROUTES = {
    "primary": "dodger_blue1",
    "backlog": "dark_orange",
    "spool": "medium_orchid",
    "received": "default",
}
# The counts of an entity, by what stands above them.
_COLUMNS = {
    "primary": "to_primary",
    "backlog": "to_backlog",
    "spool": "to_spool",
    "refused": "refused",
    "received": "received",
}
_RARE = ("spool", "refused")
# Letters for a name before a bar, and letters of a bar; with the figures behind it they fit into 80.
_NAME = 10
_BAR = 34
# And of a path, less for each rare column.
_PATH = 30
_RARE_WIDTH = 8
_FEWEST_EVENTS = 3
_MOST_EVENTS = 8
# Two lines of head, the head of the table, four rates, backlog, drain, and the spaces between.
_FIXED_LINES = 13


class LiveDisplay(Display):
    """Draws in place, and leaves the last picture and the verdict on the terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(
            console=console, auto_refresh=False, redirect_stdout=False, vertical_overflow="crop"
        )
        self._title = ""
        self._events: deque[Text] = deque(maxlen=_MOST_EVENTS)
        self._trail = Trail(_BAR)
        self._most_waiting = 0

    def begin(self, scenario_title: str, story: str) -> None:
        self._title = scenario_title
        if story:
            self._console.print(Text(" ".join(story.split()), style="dim"))
            self._console.print()
        self._live.start()

    def phase(self, name: str, at: float) -> None:
        self._note(f"phase: {name}", at, style="bold")

    def event(self, text: str, at: float) -> None:
        self._note(text, at, style="")

    def update(self, picture: DrillPicture) -> None:
        self._trail.add(picture.at, {name: picture.total(column) for name, column in _COLUMNS.items()})
        self._most_waiting = max(self._most_waiting, picture.backlog)
        self._live.update(self._render(picture), refresh=True)

    def end(self, result: DrillResult) -> None:
        self._live.stop()
        for line in _verdict(result):
            self._console.print(line)

    def close(self) -> None:
        self._live.stop()

    def _note(self, text: str, at: float, *, style: str) -> None:
        line = Text(f"{at:7.1f} s  ", style="dim")
        line.append(" ".join(text.split()), style=style or "not dim")
        # It is seen with the next picture: events come in swarms, and to draw takes some milliseconds.
        self._events.append(line)

    def _render(self, picture: DrillPicture) -> RenderableType:
        room = max(self._console.height - 1 - _FIXED_LINES, 4)
        shown = _choose(picture.entities, room - _FEWEST_EVENTS)
        events = list(self._events)[-max(room - len(shown) - 1, 1) :]
        left = len(picture.entities) - len(shown)
        parts: list[RenderableType] = [_head(self._title, picture), Text()]
        parts.append(_table(shown))
        if left:
            parts.append(Text(f"and {left} more", style="dim"))
        parts += [Text(), *self._rates(), *self._amounts(picture), Text()]
        parts += [_cut(event) for event in events]
        return Group(*parts)

    def _rates(self) -> Iterator[Text]:
        rates = {name: self._trail.rates(name) for name in _ROUTES}
        most = max((rate for name in ("primary", "backlog", "spool") for rate in rates[name]), default=0.0)
        for name, style in _ROUTES.items():
            values = rates[name]
            if name == "spool" and not any(values):
                continue
            # What arrives is no part of what is sent: in a drain it comes much faster, on a scale of its own.
            top = max(values, default=0.0) if name == "received" else most
            line = Text(name.ljust(_NAME))
            line.append(draw_spark(values, most=top).ljust(_BAR), style=style)
            line.append(f"  {write_rate(values[-1] if values else 0.0)}", style="dim")
            yield _cut(line)

    def _amounts(self, picture: DrillPicture) -> Iterator[Text]:
        spooled = f", {picture.spooled:,} in the spool" if picture.spooled else ""
        yield _bar(
            "waiting", picture.backlog, self._most_waiting, f"{picture.backlog:,}{spooled}", "dark_orange"
        )
        if picture.drain_total is not None:
            told = _tell_drain(picture.drain_moved, picture.drain_total, picture.drain_rate)
            yield _bar("drain", picture.drain_moved, picture.drain_total, told, "green")


def _choose(entities: Sequence[EntityPicture], most: int) -> list[EntityPicture]:
    """Those that fit, the troubled ones first, each where it always stands."""
    if len(entities) <= most:
        return list(entities)
    ranks = {state: rank for rank, state in enumerate(_WORST)}
    order = sorted(entities, key=lambda entity: ranks.get(name_state(entity.state), len(_WORST)))
    kept = {entity.path for entity in order[: max(most - 1, 1)]}
    return [entity for entity in entities if entity.path in kept]


def _head(title: str, picture: DrillPicture) -> Group:
    first = Text("Drill: ", style="dim")
    first.append(title, style="bold not dim")
    second = Text(f"{picture.at:7.1f} s  ", style="bold")
    second.append(picture.phase, style="bold cyan")
    if picture.faults:
        second.append(f"  broken: {', '.join(dict.fromkeys(picture.faults))}", style="red")
    elif picture.message:
        second.append(f"  {picture.message}", style="dim not bold")
    return Group(_cut(first), _cut(second))


def _table(entities: Sequence[EntityPicture]) -> Table:
    # What hardly ever happens has a column only when it does.
    columns = {name: [getattr(entity, of) for entity in entities] for name, of in _COLUMNS.items()}
    shown = {name: column for name, column in columns.items() if name not in _RARE or any(column)}
    room = _PATH - _RARE_WIDTH * len(shown.keys() & set(_RARE))
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("entity", no_wrap=True)
    table.add_column("state", no_wrap=True, min_width=11)
    for name in (*shown, "rate"):
        table.add_column(name, justify="right", no_wrap=True)
    for row, entity in enumerate(entities):
        path, state = entity.path, name_state(entity.state)
        numbers = (Text(f"{column[row]:,}") for column in shown.values())
        table.add_row(
            # The end of a path tells more than its beginning.
            Text(path if len(path) <= room else f"…{path[1 - room :]}"),
            Text(state, style=_STATES.get(state, "yellow")),
            *numbers,
            Text(write_rate(entity.rate)),
        )
    return table


def _bar(name: str, value: int, most: int, told: str, style: str) -> Text:
    filled = min(_BAR, max(1, round(_BAR * value / most))) if value > 0 and most > 0 else 0
    line = Text(name.ljust(_NAME))
    line.append("█" * filled, style=style)
    line.append("░" * (_BAR - filled), style="dim")
    line.append(f"  {told}")
    return _cut(line)


def _tell_drain(moved: int, total: int, rate: float) -> str:
    left = max(total - moved, 0)
    if not left:
        return f"{moved:,}, all of them"
    ends = f", {write_seconds(left / rate)} left" if rate > 0 else ""
    return f"{moved:,} of {total:,}, {write_rate(rate)}{ends}"


def _cut(line: Text) -> Text:
    """A line that stays one."""
    line.no_wrap = True
    line.overflow = "ellipsis"
    return line


def _verdict(result: DrillResult) -> Iterator[RenderableType]:
    word = judge(result)
    sign, kind = SIGNS.get(word, FAILED)
    yield Text()
    line = Text(f"{sign} {word.upper()}  ", style=f"bold {_VERDICTS[kind]}")
    line.append(" ".join(sum_up(result)), style="bold default")
    yield line
    if rest := tell_rest(result):
        yield Text(rest)
    for check in result.checks:
        sign, kind = SIGNS.get(check.word, FAILED)
        told = Text(f"{sign} ", style=_VERDICTS[kind])
        told.append(f"{check.name}", style="default")
        told.append(f"  {check.detail}", style="dim not bold")
        yield Padding(told, (0, 0, 0, 2))
    if told_figures := tell_figures(result):
        yield Text(told_figures, style="dim")


_FIRST_SLOT = 0.5
_MARKS = " ▁▂▃▄▅▆▇█"


class Trail:
    """Sums by slots of time. When those no longer fit each two become one: the whole drill is in view."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._slot = _FIRST_SLOT
        # The sums at the end of each slot.
        self._ends: list[dict[str, int]] = []

    def add(self, at: float, sums: Mapping[str, int]) -> None:
        """Tell how far the sums have come."""
        while int(at / self._slot) >= self._places:
            self._slot *= 2
            # The second of two holds what its pair has come to; the last may stand alone.
            self._ends = [self._ends[min(n + 1, len(self._ends) - 1)] for n in range(0, len(self._ends), 2)]
        number = max(int(at / self._slot), len(self._ends) - 1)
        while len(self._ends) <= number:
            self._ends.append(dict(self._ends[-1]) if self._ends else {})
        self._ends[number] = dict(sums)

    def rates(self, name: str) -> list[float]:
        """How much a second, slot by slot, without the last one, which is not over, if there are others."""
        ends = [sums.get(name, 0) for sums in self._ends]
        rates = [(later - sooner) / self._slot for sooner, later in zip([0, *ends], ends, strict=False)]
        return rates[:-1] if len(rates) > 1 else rates


def draw_spark(rates: list[float], *, most: float) -> str:
    """A letter for each rate, as high as its share of the most; what is more than nothing is seen."""
    if most <= 0:
        return " " * len(rates)
    steps = len(_MARKS) - 1
    return "".join(
        _MARKS[min(steps, max(1, round(steps * rate / most))) if rate > 0 else 0] for rate in rates
    )
