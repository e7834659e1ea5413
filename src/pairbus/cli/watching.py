"""Showing what a look finds again and again, for --watch: on a terminal in place."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

import click


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
