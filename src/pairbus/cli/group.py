"""A click group whose commands are imported only when they are needed.

``pairbus --help`` has to answer at once, and the modules behind the commands pull in an event loop and TLS.
The group therefore knows of each command its name, its one-line help and where to find it; the module is
imported when the command runs or shows its own help. A test compares the help lines with the commands' own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module

import click

__all__ = ["Entry", "LazyGroup"]


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a command lives, and the line that stands beside its name in the help."""

    module: str
    attribute: str
    help: str

    def load(self) -> click.Command:
        command = getattr(import_module(self.module), self.attribute)
        assert isinstance(command, click.Command)
        return command


class LazyGroup(click.Group):
    """Lists its commands without importing them."""

    entries: Mapping[str, Entry] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.entries.get(cmd_name)
        return entry.load() if entry else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.entries[name].help) for name in sorted(self.entries)])
