"""Tables that estimate and bill both print."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from .tables import print_table

if TYPE_CHECKING:
    from pairbus.cost.estimate import Alternative
    from pairbus.cost.transfer import RegionBytes

_WIDTH = 80


def print_alternatives(alternatives: Sequence[Alternative], currency: str) -> None:
    """What other ways cost, and what they are."""
    rows = [(other.name, f"{other.cost:,.2f}") for other in alternatives]
    print_table(("INSTEAD", currency), rows, numbers=(1,))
    for other in alternatives:
        click.echo(wrapped(f"{other.name}: {other.note}."))


def print_transfer(transfer: Sequence[RegionBytes]) -> None:
    """Bytes by region and direction."""
    rows = [(one.region, one.direction, f"{one.bytes:,}") for one in transfer]
    print_table(("REGION", "DIRECTION", "BYTES"), rows, numbers=(2,))


def wrapped(text: str) -> str:
    """For a terminal."""
    return textwrap.fill(text, _WIDTH, subsequent_indent="  ")
