"""Showing what a look finds, once or with --watch again and again: on a terminal in place."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

import click

from .tables import print_json


class Picture(Protocol):
    """What a look has found."""

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        ...

    def draw(self) -> None:
        """For people."""
        ...


def show_again(look: Callable[[], Picture], *, interval: float, as_json: bool) -> int:
    """Look and show until Ctrl-C. Each JSON document is a line."""
    try:
        while True:
            seen = look()
            if as_json:
                click.echo(json.dumps(seen.to_dict()))
            else:
                if sys.stdout.isatty():
                    click.clear()
                seen.draw()
            time.sleep(interval)
    except KeyboardInterrupt:
        return 0  # that is how it is meant to end


def show_once(seen: Picture, *, as_json: bool) -> None:
    """Show what a look has found."""
    if as_json:
        print_json(seen.to_dict())
    else:
        seen.draw()
