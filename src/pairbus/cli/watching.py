"""Showing what a look finds again and again, for --watch: on a terminal in place."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import click

from .exit_codes import UNREACHABLE
from .tables import print_lines, tell


class Picture(Protocol):
    """What a look has found."""

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        ...

    def draw(self) -> Iterable[str]:
        """For people."""
        ...

    @property
    def is_anything(self) -> bool:
        """Whether anybody has told anything."""
        ...


def show(look: Callable[[], Picture], *, watch: bool, interval: float, as_json: bool) -> int:
    """Look and show, once; or until Ctrl-C, when each JSON document is a line."""
    if not watch:
        seen = look()
        tell(seen.to_dict(), seen.draw(), as_json=as_json)
        return 0 if seen.is_anything else UNREACHABLE
    try:
        while True:
            seen = look()
            if as_json:
                click.echo(json.dumps(seen.to_dict()))
            else:
                if sys.stdout.isatty():
                    click.clear()
                print_lines(seen.draw())
            time.sleep(interval)
    except KeyboardInterrupt:
        return 0  # that is how it is meant to end
