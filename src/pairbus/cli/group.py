"""Groups of commands that know the nearest name, and examples at the end of the help."""

import difflib
from collections.abc import Callable
from typing import TypeVar

import click

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
