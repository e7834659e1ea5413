"""The entry point: find the command, run it, and turn what went wrong into one line and an exit code.

Exit codes, the same for every command:

    0  done
    1  the check that was asked for found something
    2  wrong usage: an argument, a setting or a file that the caller has to mend
    3  could not reach what the command needs
    4  ended incomplete: a drain stopped before its end, a verdict without all records
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from pairbus import __version__

from .complaints import complain_of
from .examples import examples
from .group import LazyCommand, LazyGroup

DONE = 0
# What shells report for a program that was stopped with Ctrl-C (128 + SIGINT).
INTERRUPTED = 130
# And for one whose output nobody reads any more (128 + SIGPIPE).
UNREAD = 141


_PREPARE = "Prepare a pair"
_SEND = "Send, and look on"
_DRAIN = "Drain the backlog"
_MONEY = "Money"
_NAMESPACES = "Namespaces, embedded or Azure's"
_EMBEDDED = "Embedded namespaces"
_SHELL = "Shell"


class _Commands(LazyGroup):
    # Sections, and the commands in each, stand in the help as they stand here: as a pair needs them.
    entries = {  # noqa: RUF012  (a class constant; the base declares it as a Mapping)
        "config": LazyCommand(
            "pairbus.cli.config_commands",
            "config",
            "Check pairbus.toml, print its schema, and one to begin with.",
            _PREPARE,
        ),
        "provision": LazyCommand(
            "pairbus.cli.provision",
            "provision",
            "Create the backlog queues of a pair on its secondary.",
            _PREPARE,
        ),
        "check": LazyCommand("pairbus.cli.check", "check", "Check a pair before an outage does.", _PREPARE),
        "doctor": LazyCommand(
            "pairbus.cli.doctor", "doctor", "Look at this machine and at what it reaches.", _PREPARE
        ),
        "send": LazyCommand(
            "pairbus.cli.send", "send", "Send the lines of a file to an entity of a pair.", _SEND
        ),
        "status": LazyCommand(
            "pairbus.cli.status", "status", "Show the state of running clients and of the backlog.", _SEND
        ),
        "dashboard": LazyCommand(
            "pairbus.cli.dashboard",
            "dashboard",
            "Show pairs, backlogs, money and embedded namespaces on a page, live.",
            _SEND,
        ),
        "spool": LazyCommand(
            "pairbus.cli.spool",
            "spool",
            "Look at the local spool, and decide about what it cannot send.",
            _SEND,
        ),
        "syphon": LazyCommand(
            "pairbus.cli.syphon", "syphon", "Drain the backlog of a pair to its entities, on Spark.", _DRAIN
        ),
        "backlog": LazyCommand(
            "pairbus.cli.backlog",
            "backlog",
            "Ask in SQL what lies in the backlog, and what became of it.",
            _DRAIN,
        ),
        "records": LazyCommand(
            "pairbus.cli.records",
            "records",
            "Remove records of clients and syphons that are old.",
            _DRAIN,
        ),
        "redrive": LazyCommand(
            "pairbus.cli.redrive", "redrive", "Put dead letters of the backlog queues back into play.", _DRAIN
        ),
        "verify": LazyCommand(
            "pairbus.cli.verify", "verify", "Check by message id that no message is missing.", _DRAIN
        ),
        "cost": LazyCommand("pairbus.cli.cost", "cost", "Reckon what a paired system costs.", _MONEY),
        "broker": LazyCommand(
            "pairbus.cli.broker", "broker", "Run embedded Service Bus namespaces until stopped.", _EMBEDDED
        ),
        "drill": LazyCommand(
            "pairbus.cli.drill",
            "drill",
            "Play an outage on two embedded namespaces, and account for every message.",
            _EMBEDDED,
        ),
        "entity": LazyCommand(
            "pairbus.cli.entity",
            "entity",
            "List, show, create and delete queues, topics, subscriptions and rules.",
            _NAMESPACES,
        ),
        "messages": LazyCommand(
            "pairbus.cli.messages",
            "messages",
            "Look at messages, send, purge, export and import them.",
            _NAMESPACES,
        ),
        "fault": LazyCommand(
            "pairbus.cli.fault", "fault", "Make a running broker misbehave, and heal it again.", _EMBEDDED
        ),
        "counters": LazyCommand(
            "pairbus.cli.counters", "counters", "Show the billable operations a broker counted.", _EMBEDDED
        ),
        "completion": LazyCommand(
            "pairbus.cli.completion", "completion", "Print the completion script of a shell.", _SHELL
        ),
    }


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        "pairbus broker --ready-file ready.json",
        "pairbus check --primary-env PRIMARY --secondary-env SECONDARY",
        "pairbus send orders --pair shop --file orders.txt",
        "pairbus syphon run --pair shop --once",
    ),
)
@click.version_option(__version__, prog_name="pairbus")
def app() -> None:
    """Send availability for pairs of Azure Service Bus namespaces, and embedded ones to try it on.

    Every command that reports takes --json. Exit codes: 0 done, 1 the check found something, 2 wrong usage,
    3 could not reach what it needs, 4 ended incomplete.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and give its exit code; nothing of ours ends in a traceback."""
    try:
        code = app.main(args=arguments, prog_name="pairbus", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except SystemExit:  # click's word for a reader that has gone, as of `| head`
        return UNREAD
    except Exception as error:
        complaint = complain_of(error)
        if complaint is None:
            raise
        text = " ".join(complaint.text.split()) or type(error).__name__
        click.echo(f"pairbus: {text}", err=True)
        return complaint.code
    return code if isinstance(code, int) else DONE
