"""The entry point: find the command, run it, and turn what went wrong into one line and an exit code."""

from __future__ import annotations

from collections.abc import Sequence

import click

from pairbus import __version__

from .complaints import complain_of, in_a_line
from .group import LazyCommand, LazyGroup, examples
from .interruption import interruptible
from .streams import prepare_streams

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


def _locate(name: str, text: str, section: str) -> LazyCommand:
    """Where a command lives: in a module of its name; that of `config` is taken by what reads the file."""
    module = "config_commands" if name == "config" else name
    return LazyCommand(f"{__package__}.{module}", name, text, section)


class _Commands(LazyGroup):
    entries = {  # noqa: RUF012  (a class constant; the base declares it as a Mapping)
        name: _locate(name, text, section)
        for section, commands in _SECTIONS.items()
        for name, text in commands.items()
    }


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
            interruption.hush()
            return interruption.code
        except SystemExit:  # click's word for a reader that has gone, as of `| head`
            return UNREAD
        except Exception as error:
            complaint = complain_of(error)
            if complaint is None:
                raise
            click.echo(f"pairbus: {in_a_line(complaint.text) or type(error).__name__}", err=True)
            return complaint.code
        return code if isinstance(code, int) else DONE
