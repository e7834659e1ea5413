"""What the commands print: JSON for programs, aligned columns for people."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

import click

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


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
