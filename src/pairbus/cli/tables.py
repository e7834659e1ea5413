"""What the commands print: JSON for programs, aligned columns for people.

Words for states and severities have a colour, on a terminal that wants it. The words say all that there is to
say; colour only lets the eye find them. `NO_COLOR`, set to anything, turns it off, and so does `TERM=dumb`.
What goes to a file or a pipe, JSON included, has none.
"""

import json
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import click

from pairbus.plumbing.wording import write_amounts

from .exit_codes import UNREACHABLE

# A column of text that is narrower is hard to read; it is told below the others then, a step to the right.
_NARROWEST, _STEP = 24, 4
# What is less is told as such, not as a row of noughts.
_LEAST_RATE = 0.01
_COLOURS = {
    # states of an entity
    "healthy": "green",
    "suspect": "yellow",
    "failed_over": "yellow",
    "faulted": "red",
    # severities of a finding
    "error": "red",
    "warning": "yellow",
}

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)


def tell(described: Any, words: str | Iterable[str], *, as_json: bool) -> None:
    """What a command has found: for programs, or for people in lines, made only if they are read."""
    if as_json:
        print_json(described)
    else:
        print_lines([words] if isinstance(words, str) else words)


class Styled(str):
    """A cell with colours of our own."""

    __slots__ = ()


def coloured(word: str) -> str:
    """The word, in its colour where standard output shows colours."""
    colour = _COLOURS.get(word)
    return Styled(click.style(word, fg=colour)) if colour is not None and _shows_colours() else word


def _shows_colours() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def shown(text: str, *, keeps: str = "") -> str:
    """A text as a terminal may have it: whoever sends a message, or names an entity, could write anything."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() or one in keeps else one.encode("unicode_escape").decode() for one in text
    )


def clock_time(moment: float | None, *, now: float) -> str:
    """A Unix time as the time of day in UTC, with the date if that is not the date of `now`."""
    if moment is None:
        return ""
    at = datetime.fromtimestamp(moment, UTC)
    return f"{at:%H:%M:%SZ}" if at.date() == datetime.fromtimestamp(now, UTC).date() else f"{at:%F %H:%MZ}"


def per_second(rate: float) -> str:
    """How many a second, of few with their fraction: 1,200, 4.8, less than 0.01."""
    if 0 < rate < _LEAST_RATE:
        return f"less than {_LEAST_RATE}"
    return f"{rate:,.0f}" if rate >= 9.95 or rate == round(rate) else f"{rate:.2g}"


def draw_table(
    header: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    numbers: Collection[int] = (),
    empty: str = "",
) -> Iterator[str]:
    """The rows below their header, folded for a terminal; where there are none, `empty` or nothing.

    Numbers have their thousands told apart and stand at the right, as do the columns of `numbers`. Money of a
    column has as many decimals as its smallest amount needs.
    """
    if rows:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        yield from lay_out(header, rows, numbers=numbers, width=width)
    elif empty:
        yield empty


def lay_out(
    header: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    numbers: Collection[int] = (),
    width: int | None = None,
) -> Iterator[str]:
    """The lines of a table, folded to a width; what a terminal would obey stands as Python writes it."""
    columns = list(zip(*rows, strict=True))
    right = {place for place, column in enumerate(columns) if any(map(_is_number, column))}.union(numbers)
    cells = [[*map(shown, header)], *zip(*map(_written, columns), strict=True)]
    widths = [max(_width(row[column]) for row in cells) for column in range(len(header))]
    before = sum(widths[:-1]) + 2 * (len(widths) - 1)
    room = None if width is None else width - before
    for row in cells:
        padded = []
        for column, cell in enumerate(row):
            blank = " " * (widths[column] - _width(cell))
            padded.append(blank + cell if column in right else cell + blank)
        if room is None or not row[-1] or _width(row[-1]) <= room or len(row) - 1 in right:
            yield "  ".join(padded).rstrip()
        else:
            yield from _fold("  ".join(padded[:-1]), row[-1], room, before)


def _is_number(cell: object) -> bool:
    return isinstance(cell, int | Decimal) and not isinstance(cell, bool)


def _written(column: Sequence[object]) -> list[str]:
    money = iter(write_amounts(*(cell for cell in column if isinstance(cell, Decimal))))
    return [next(money) if isinstance(cell, Decimal) else _write(cell) for cell in column]


def _write(cell: object) -> str:
    if _is_number(cell):
        return f"{cell:,}"
    return cell if isinstance(cell, Styled) else shown(str(cell))


def _fold(first: str, text: str, room: int, before: int) -> Iterator[str]:
    """A line whose last cell is longer than the room that is left for it."""
    if room < _NARROWEST:  # below the others, then
        yield first.rstrip()
        first, before, room = " " * _STEP, _STEP, room + before - _STEP
    else:
        first += "  "
    for line in textwrap.wrap(text, max(room, _NARROWEST), break_on_hyphens=False) or [""]:
        yield (first + line).rstrip()
        first = " " * before


def _width(cell: str) -> int:
    """What a cell takes on the screen, where colour takes nothing."""
    return len(click.unstyle(cell))


class Picture(NamedTuple):
    """What a look has found: for programs, for people, and whether anybody has told anything."""

    described: dict[str, Any]
    lines: Iterable[str]
    is_told: bool


def show(look: Callable[[], Picture], *, watch: bool, interval: float, as_json: bool) -> int:
    """Look and show, once; or until Ctrl-C, when each JSON document is a line."""
    if not watch:
        seen = look()
        tell(seen.described, seen.lines, as_json=as_json)
        return 0 if seen.is_told else UNREACHABLE
    try:
        while True:
            seen = look()
            if as_json:
                click.echo(json.dumps(seen.described))
            else:
                if sys.stdout.isatty():
                    click.clear()
                print_lines(seen.lines)
            time.sleep(interval)
    except KeyboardInterrupt:
        return 0  # that is how it is meant to end
