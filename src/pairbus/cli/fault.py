"""`pairbus fault`: make a running broker misbehave, see what it does wrong, and heal it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from .candidates import offer_namespaces
from .examples import examples
from .group import CommandGroup
from .numbers import AT_LEAST_ONE, POSITIVE
from .ready_file import connect, ready_file_option
from .tables import json_option, print_json, print_table

__all__ = ["KINDS", "fault"]

# What can be made to go wrong, in words for the help; a test keeps the names equal to those of the broker.
KINDS = {
    "refuse": "the port is closed, open connections are reset",
    "reset": "every connection is reset as soon as it is accepted",
    "silence": "bytes are taken, nothing is answered",
    "blackhole": "connecting hangs, open connections are no longer read",
    "delay": "sends are accepted and answered --seconds later",
    "error": "operations are refused with --condition",
    "busy": "operations are refused as throttled",
    "token": "no token is accepted",
    "disabled": "the entity answers as disabled",
    "full": "the entity answers as full",
    "drop": "every --every-th send is taken, its answer is lost",
    "flap": "down for --down seconds, up for --up seconds, again and again",
}


@click.group(
    cls=CommandGroup,
    epilog=examples(
        "pairbus fault set contoso refuse --ready-file ready.json",
        "pairbus fault clear contoso --ready-file ready.json",
    ),
)
def fault() -> None:
    """Make a running broker misbehave, and heal it again.

    The broker is found by the ready file that it wrote (--ready-file, or the variable PAIRBUS_READY_FILE). A
    fault acts on open connections as on new ones.
    """


def _kinds_help() -> str:
    width = max(map(len, KINDS))
    return "\b\n" + "\n".join(f"{name.ljust(width)}  {text}" for name, text in KINDS.items())


@fault.command(
    "set",
    epilog="\n\n".join(
        [
            _kinds_help(),
            examples(
                "pairbus fault set contoso refuse --ready-file ready.json",
                "pairbus fault set contoso silence --entity orders --for 60",
                "pairbus fault set contoso delay --seconds 30",
                "pairbus fault set contoso flap --up 5 --down 10 --json",
            ),
        ]
    ),
)
@click.argument("namespace", shell_complete=offer_namespaces)
@click.argument("kind", type=click.Choice(list(KINDS)), metavar="KIND")
@click.option("--entity", help="Only this queue, topic or subscription; without it the whole namespace.")
@click.option("--for", "duration", type=POSITIVE, metavar="SECONDS", help="Heal by itself after this time.")
@click.option("--seconds", type=POSITIVE, help="delay: how much later sends are answered (30).")
@click.option("--condition", help="error: the AMQP condition (amqp:internal-error).")
@click.option("--every", type=AT_LEAST_ONE, help="drop: lose the answer to every so-manieth send (10).")
@click.option("--up", type=POSITIVE, help="flap: seconds of good behaviour (5).")
@click.option("--down", type=POSITIVE, help="flap: seconds of refusal (5).")
@ready_file_option
@json_option
def set_fault(
    namespace: str,
    kind: str,
    *,
    entity: str | None,
    duration: float | None,
    seconds: float | None,
    condition: str | None,
    every: int | None,
    up: float | None,
    down: float | None,
    ready_file: Path,
    as_json: bool,
) -> None:
    """Set a fault of KIND on NAMESPACE. Every kind works with no further argument."""
    asked: dict[str, Any] = {
        "entity": entity,
        "for": duration,
        "seconds": seconds,
        "condition": condition,
        "every": every,
        "up": up,
        "down": down,
    }
    given = {name: value for name, value in asked.items() if value is not None}
    answer = connect(ready_file).set_fault(namespace, kind, arguments=given)
    if as_json:
        print_json(answer)
    else:
        lasting = "until cleared" if duration is None else f"for {duration:g} s"
        click.echo(f"{namespace}{f'/{entity}' if entity else ''}: {kind} {lasting}")


@fault.command(
    "clear",
    epilog=examples(
        "pairbus fault clear contoso --ready-file ready.json",
        "pairbus fault clear contoso --entity orders",
    ),
)
@click.argument("namespace", shell_complete=offer_namespaces)
@click.option("--entity", help="Only the faults set on this entity.")
@ready_file_option
@json_option
def clear_faults(namespace: str, *, entity: str | None, ready_file: Path, as_json: bool) -> None:
    """Take the faults of NAMESPACE away."""
    answer = connect(ready_file).clear_faults(namespace, entity)
    if as_json:
        print_json(answer)
    else:
        click.echo(f"{namespace}{f'/{entity}' if entity else ''}: healed")


@fault.command(
    "list",
    epilog=examples(
        "pairbus fault list --ready-file ready.json",
        "pairbus fault list --json",
    ),
)
@ready_file_option
@json_option
def list_faults(ready_file: Path, *, as_json: bool) -> None:
    """Show the faults in force, the latest first."""
    faults = connect(ready_file).list_faults()
    if as_json:
        print_json(faults)
        return
    rows = [_row(namespace, entry) for namespace, entries in faults.items() for entry in entries]
    if rows:
        print_table(("NAMESPACE", "ENTITY", "KIND", "SINCE", "UNTIL", "ARGUMENTS"), rows)
    else:
        click.echo("no faults")


def _row(namespace: str, entry: dict[str, Any]) -> tuple[str, ...]:
    own = {"kind", "entity", "since", "until"}
    arguments = " ".join(f"{name}={value}" for name, value in entry.items() if name not in own)
    until = _clock_time(entry["until"]) if entry["until"] is not None else "cleared"
    return namespace, entry["entity"] or "*", entry["kind"], _clock_time(entry["since"]), until, arguments


def _clock_time(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%H:%M:%SZ")
