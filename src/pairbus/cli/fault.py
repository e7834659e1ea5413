"""`pairbus fault`: make a running broker misbehave, see what it does wrong, and heal it."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from pairbus.fault_kinds import ARGUMENTS, KINDS

from .candidates import offer_namespaces
from .group import CommandGroup, examples
from .numbers import AT_LEAST_ONE, POSITIVE
from .ready_file import connect, ready_file_option
from .tables import clock_time, draw_table, json_option, tell

# The type of an argument is that of its default.
_TYPES = {float: POSITIVE, int: AT_LEAST_ONE, str: click.STRING}
_F = TypeVar("_F", bound=Callable[..., Any])


@examples(
    "pairbus fault set contoso refuse --ready-file ready.json",
    "pairbus fault clear contoso --ready-file ready.json",
)
@click.group(cls=CommandGroup)
def fault() -> None:
    """Make a running broker misbehave, and heal it again.

    The broker is found by the ready file that it wrote (--ready-file, or the variable PAIRBUS_READY_FILE). A
    fault acts on open connections as on new ones.
    """


def _kinds_help() -> str:
    width = max(map(len, KINDS))
    return "\b\n" + "\n".join(f"{kind.ljust(width)}  {traits.help}" for kind, traits in KINDS.items())


def _argument_options(command: _F) -> _F:
    """A flag for each argument in the table of faults."""
    for name, takers in reversed(ARGUMENTS.items()):
        told = [f"{kind}: {argument.help} ({_shown(argument.default)})" for kind, argument in takers.items()]
        kind_of_value = _TYPES[type(next(iter(takers.values())).default)]
        command = click.option(f"--{name}", type=kind_of_value, help=f"{'; '.join(told)}.")(command)
    return command


def _shown(default: float | int | str) -> str:
    return default if isinstance(default, str) else f"{default:g}"


@examples(
    "pairbus fault set contoso refuse --ready-file ready.json",
    "pairbus fault set contoso silence --entity orders --for 60",
    "pairbus fault set contoso delay --seconds 30",
    "pairbus fault set contoso flap --up 5 --down 10 --json",
)
@fault.command("set", epilog=_kinds_help())
@click.argument("namespace", shell_complete=offer_namespaces)
@click.argument("kind", type=click.Choice([kind.value for kind in KINDS]), metavar="KIND")
@click.option("--entity", help="Only this queue, topic or subscription; without it the whole namespace.")
@click.option("--for", "duration", type=POSITIVE, metavar="SECONDS", help="Heal by itself after this time.")
@_argument_options
@ready_file_option
@json_option
def set_fault(
    namespace: str,
    kind: str,
    *,
    entity: str | None,
    duration: float | None,
    ready_file: Path,
    as_json: bool,
    **arguments: Any,
) -> None:
    """Set a fault of KIND on NAMESPACE. Every kind works with no further argument."""
    asked = {"entity": entity, "for": duration, **arguments}
    given = {name: value for name, value in asked.items() if value is not None}
    answer = connect(ready_file).set_fault(namespace, kind, arguments=given)
    lasting = "until cleared" if duration is None else f"for {duration:g} s"
    tell(answer, f"{namespace}{f'/{entity}' if entity else ''}: {kind} {lasting}", as_json=as_json)


@examples(
    "pairbus fault clear contoso --ready-file ready.json",
    "pairbus fault clear contoso --entity orders",
)
@fault.command("clear")
@click.argument("namespace", shell_complete=offer_namespaces)
@click.option("--entity", help="Only the faults set on this entity.")
@ready_file_option
@json_option
def clear_faults(namespace: str, *, entity: str | None, ready_file: Path, as_json: bool) -> None:
    """Take the faults of NAMESPACE away."""
    answer = connect(ready_file).clear_faults(namespace, entity)
    tell(answer, f"{namespace}{f'/{entity}' if entity else ''}: healed", as_json=as_json)


@examples(
    "pairbus fault list --ready-file ready.json",
    "pairbus fault list --json",
)
@fault.command("list")
@ready_file_option
@json_option
def list_faults(ready_file: Path, *, as_json: bool) -> None:
    """Show the faults in force, the latest first."""
    faults = connect(ready_file).list_faults()
    now = time.time()
    rows = [_row(namespace, entry, now) for namespace, entries in faults.items() for entry in entries]
    head = ("NAMESPACE", "ENTITY", "KIND", "SINCE", "UNTIL", "ARGUMENTS")
    tell(faults, draw_table(head, rows, empty="no faults"), as_json=as_json)


def _row(namespace: str, entry: dict[str, Any], now: float) -> tuple[str, ...]:
    own = {"kind", "entity", "since", "until"}
    arguments = " ".join(f"{name}={value}" for name, value in entry.items() if name not in own)
    since = clock_time(entry["since"], now=now)
    until = clock_time(entry["until"], now=now) or "cleared"
    return namespace, entry["entity"] or "*", entry["kind"], since, until, arguments
