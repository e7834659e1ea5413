"""Colour, decided in one place: words for states and severities, on a terminal that wants it, nowhere else.

The words say all that there is to say; colour only lets the eye find them. `NO_COLOR`, set to anything,
turns it off, and so does `TERM=dumb`. What goes to a file or a pipe, JSON included, has none.
"""

from __future__ import annotations

import os
import sys

import click

from .tables import Styled

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


def coloured(word: str) -> str:
    """The word, in its colour where standard output shows colours."""
    colour = _COLOURS.get(word)
    return Styled(click.style(word, fg=colour)) if colour is not None and _shows_colours() else word


def _shows_colours() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
