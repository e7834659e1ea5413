"""What the commands print: JSON for programs, aligned columns for people."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import click

# A column of text that is narrower is hard to read; it is told below the others then, a step to the right.
_NARROWEST, _STEP = 24, 4
# What is less is told as such, not as a row of noughts.
_LEAST_RATE = 0.01

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def tell(described: Any, words: str | Callable[[], None], *, as_json: bool) -> None:
    """What a command has found: for programs, or for people, as a line or as `words` prints it."""
    if as_json:
        print_json(described)
    elif isinstance(words, str):
        click.echo(words)
    else:
        words()


class Styled(str):
    """A cell with colours of our own."""

    __slots__ = ()


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


def time_span(seconds: float) -> str:
    """A length of time as people say it: 45 s, 3 min 5 s, 2 h 10 min, 3 d 4 h."""
    whole = max(0, round(seconds))
    for size, unit, part, part_unit in _SPANS:
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size:,} {unit}" + (f" {rest} {part_unit}" if rest else "")
    return f"{whole} s"


_SPANS = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s"))


def counted(number: int, one: str, many: str) -> str:
    """1 pump, 2 pumps."""
    return f"{number:,} {one if number == 1 else many}"


def per_second(rate: float) -> str:
    """How many a second, of few with their fraction: 1,200, 4.8, less than 0.01."""
    if 0 < rate < _LEAST_RATE:
        return f"less than {_LEAST_RATE}"
    return f"{rate:,.0f}" if rate >= 9.95 or rate == round(rate) else f"{rate:.2g}"


def print_table(
    header: Sequence[str], rows: Sequence[Sequence[object]], *, numbers: Collection[int] = ()
) -> None:
    """Print the rows below their header, each column as wide as its longest cell.

    `numbers` are the columns whose cells stand at the right. What is too long for a terminal is folded.
    """
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in lay_out(header, rows, numbers=numbers, width=width):
        click.echo(line)


def lay_out(
    header: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    numbers: Collection[int] = (),
    width: int | None = None,
) -> Iterator[str]:
    """The lines of a table, folded to a width; what a terminal would obey stands as Python writes it."""
    cells = [
        [cell if isinstance(cell, Styled) else shown(str(cell)) for cell in row] for row in [header, *rows]
    ]
    widths = [max(_width(row[column]) for row in cells) for column in range(len(header))]
    before = sum(widths[:-1]) + 2 * (len(widths) - 1)
    room = None if width is None else width - before
    for row in cells:
        padded = []
        for column, cell in enumerate(row):
            blank = " " * (widths[column] - _width(cell))
            padded.append(blank + cell if column in numbers else cell + blank)
        if room is None or _width(row[-1]) <= room or len(row) - 1 in numbers:
            yield "  ".join(padded).rstrip()
        else:
            first = "  ".join(padded[:-1])
            yield from _fold(first, row[-1], room, before)


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
