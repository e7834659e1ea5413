"""The entry point: find the command, run it, and turn what went wrong into one line and an exit code."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

import click

from pairbus import __version__

from .complaints import complain_of, in_a_line
from .group import CommandGroup, examples
from .streams import interruptible, prepare_streams

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

DONE = 0
# What shells report for a program whose output nobody reads any more (128 + SIGPIPE).
UNREAD = 141

#: The commands, by the sections of the help, in the order in which a pair needs them.
_SECTIONS = {
    "Prepare a pair": {
        "config": "Check pairbus.toml, print its schema, and one to begin with.",
        "provision": "Create the backlog queues of a pair on its secondary.",
        "check": "Check a pair before an outage does.",
        "doctor": "Look at this machine and at what it reaches.",
    },
    "Send, and look on": {
        "send": "Send the lines of a file to an entity of a pair.",
        "status": "Show the state of running clients and of the backlog.",
        "dashboard": "Show pairs, backlogs, money and embedded namespaces on a page, live.",
        "spool": "Look at the local spool, and decide about what it cannot send.",
    },
    "Drain the backlog": {
        "syphon": "Drain the backlog of a pair to its entities, on Spark or without.",
        "backlog": "Ask in SQL what lies in the backlog, and what became of it.",
        "records": "Remove records of clients and syphons that are old.",
        "redrive": "Put dead letters of the backlog queues back into play.",
        "verify": "Check by message id that no message is missing.",
    },
    "Money": {"cost": "Reckon what a paired system costs."},
    "Embedded namespaces": {
        "broker": "Run embedded Service Bus namespaces until stopped.",
        "drill": "Play an outage on two embedded namespaces, and account for every message.",
        "fault": "Make a running broker misbehave, and heal it again.",
        "counters": "Show the billable operations a broker counted.",
    },
    "Namespaces, embedded or Azure's": {
        "entity": "List, show, create and delete queues, topics, subscriptions and rules.",
        "messages": "Look at messages, send, purge, export and import them.",
    },
    "Shell": {"completion": "Print the completion script of a shell."},
}


#: The line beside each command in the help.
HELP = {name: text for commands in _SECTIONS.values() for name, text in commands.items()}


class _Commands(CommandGroup):
    """Lists its commands, by section and for completion, without importing them.

    `pairbus --help` has to answer at once, and the modules behind the commands pull in an event loop and TLS.
    So each is imported when it runs or shows its own help. A test compares the help lines with the commands'.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(HELP)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in HELP:
            return None
        from .places import demand_text  # late: the list of commands needs none

        # In a module of its name; that of `config` is taken by what reads the file.
        module = "config_commands" if cmd_name == "config" else cmd_name
        command = getattr(import_module(f".{module}", __package__), cmd_name)
        assert isinstance(command, click.Command)
        demand_text(command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, HELP))
        for section, commands in _SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name.ljust(width), text) for name, text in commands.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem  # late: only a shell asks for it

        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        commands = [CompletionItem(name, help=HELP[name]) for name in names]
        return commands + click.Command.shell_complete(self, ctx, incomplete)


@examples(
    "pairbus broker --ready-file ready.json",
    "pairbus check --primary-env PRIMARY --secondary-env SECONDARY",
    "pairbus send orders --pair shop --file orders.txt",
    "pairbus syphon run --pair shop --once",
)
@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(__version__, prog_name="pairbus")
def app() -> None:
    """Send availability for pairs of Azure Service Bus namespaces, and embedded ones to try it on.

    Every command that reports takes --json. Exit codes: 0 done, 1 the check found something, 2 wrong usage,
    3 could not reach what it needs, 4 ended incomplete.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and give its exit code; nothing of ours ends in a traceback."""
    prepare_streams()
    with interruptible() as interruption:
        try:
            code = app.main(args=arguments, prog_name="pairbus", standalone_mode=False)
        except click.ClickException as error:
            error.show()
            return error.exit_code
        except (click.Abort, KeyboardInterrupt):
            return interruption.end()
        except SystemExit:  # click's word for a reader that has gone, as of `| head`
            return UNREAD
        except Exception as error:
            # Python 3.11 makes a RuntimeError of what comes while a class is made, at an import.
            if isinstance(error.__cause__, KeyboardInterrupt):
                return interruption.end()
            complaint = complain_of(error)
            if complaint is None:
                raise
            click.echo(f"pairbus: {in_a_line(complaint.text) or type(error).__name__}", err=True)
            return complaint.code
        return code if isinstance(code, int) else DONE
