"""Groups of commands: one that knows the nearest name, and one whose commands are imported when needed.

`pairbus --help` has to answer at once, and the modules behind the commands pull in an event loop and TLS.
The group therefore knows of each command its name, its one-line help and where to find it; the module is
imported when the command runs or shows its own help. A test compares the help lines with the commands' own.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


_Command = TypeVar("_Command", bound=click.Command)


def examples(*lines: str) -> Callable[[_Command], _Command]:
    """Command lines at the end of a command's help, which click leaves as they are: a test parses each."""

    def add(command: _Command) -> _Command:
        shown = "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])
        command.epilog = f"{command.epilog}\n\n{shown}" if command.epilog else shown
        return command

    return add


class CommandGroup(click.Group):
    """Answers an unknown command with the nearest one that there is, and cuts no line of the help short."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        rows = [
            (name, command.get_short_help_str(limit=200)) for name, command in commands.items() if command
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        known = self.list_commands(ctx)
        if name in known or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"Did you mean '{near[0]}'?" if near else f"There are: {', '.join(known)}."
        raise click.UsageError(f"There is no command '{name}'. {hint}", ctx)


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """Where a command lives, the line beside its name in the help, and the heading that it stands below."""

    module: str
    attribute: str
    help: str
    section: str = "More"

    def load(self) -> click.Command:
        from .places import demand_text  # late: the list of commands needs none

        command = getattr(import_module(self.module), self.attribute)
        assert isinstance(command, click.Command)
        demand_text(command)
        return command


class LazyGroup(CommandGroup):
    """Lists its commands, by section and for completion, without importing them."""

    entries: Mapping[str, LazyCommand] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.entries.get(cmd_name)
        return entry.load() if entry else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.entries), default=0)
        for section in dict.fromkeys(entry.section for entry in self.entries.values()):
            rows = [
                (name.ljust(width), entry.help)
                for name, entry in self.entries.items()
                if entry.section == section
            ]
            with formatter.section(section):
                formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem  # late: only a shell asks for it

        commands = [
            CompletionItem(name, help=self.entries[name].help)
            for name in self.list_commands(ctx)
            if name.startswith(incomplete)
        ]
        return commands + click.Command.shell_complete(self, ctx, incomplete)
