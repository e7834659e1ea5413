"""What the commands print: JSON for programs, aligned columns for people."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any

import click

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


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


def print_table(
    header: Sequence[str], rows: Sequence[Sequence[object]], *, numbers: Collection[int] = ()
) -> None:
    """Print the rows below their header, each column as wide as its longest cell.

    `numbers` are the columns whose cells stand at the right.
    """
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(_width(row[column]) for row in cells) for column in range(len(header))]
    for row in cells:
        padded = []
        for column, cell in enumerate(row):
            room = " " * (widths[column] - _width(cell))
            padded.append(room + cell if column in numbers else cell + room)
        click.echo("  ".join(padded).rstrip())


def _width(cell: str) -> int:
    """What a cell takes on the screen, where colour takes nothing."""
    return len(click.unstyle(cell))
