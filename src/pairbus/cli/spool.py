"""`pairbus spool`: what waits on this machine, and what was taken and cannot be sent."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pairbus.errors import ConfigurationError, UnreachableError
from pairbus.plumbing.wording import counted

from .exit_codes import FOUND
from .group import CommandGroup, examples
from .numbers import POSITIVE
from .pairs import PairChoice, PairSettings, pair_options, signed_in
from .progress import working
from .shared_options import confirm, repeatable, state_option, yes_option
from .suggestions import runnable
from .tables import draw_table, json_option, tell

if TYPE_CHECKING:
    from pairbus.client.state.spool_aside import DamagedBytes, RefusedMessage
    from pairbus.client.state.spool_survey import WaitingMessage

_LOOK = 0.1


@examples(
    "pairbus spool ls --pair shop",
    "pairbus spool replay --pair shop --all",
)
@click.group(cls=CommandGroup)
def spool() -> None:
    """Look at the local spool, and decide about what it cannot send.

    While both sides are down clients keep messages there. What is refused for its own sake, and what is
    damaged on the disk, stays until somebody sends it again or drops it.
    """


@examples(
    "pairbus spool ls --pair shop",
    "pairbus spool ls --state /var/lib/shop/pairbus --json",
)
@spool.command("ls")
@pair_options
@state_option
@json_option
def list_spool(*, choice: PairChoice, state: Path | None, as_json: bool) -> None:
    """List what waits, what was refused and what is damaged."""
    directory = _directory(choice, state)
    from pairbus.client.state.directory import spool_dir
    from pairbus.client.state.spool_aside import list_damaged, list_refused
    from pairbus.client.state.spool_store import newer_directories
    from pairbus.client.state.spool_survey import list_unreadable, list_waiting

    for file, size in list_unreadable(spool_dir(directory), now=time.time()):
        then = runnable("`pairbus spool replay` puts them aside")
        click.echo(f"{size:,} bytes of {file} cannot be read: {then}", err=True)
    waiting, newer = list_waiting(spool_dir(directory)), newer_directories(spool_dir(directory))
    refused, damaged = list_refused(directory), list_damaged(directory)
    described = {
        "waiting": [one.described() for one in waiting],
        "refused": [one.described() for one in refused],
        "damaged": [one.described() for one in damaged],
        "newer": [str(path) for path in newer],
    }
    rows = [
        ("waiting", "", path, counted(count, "message", "messages"), "")
        for path, count in sorted(Counter(one.path for one in waiting).items())
    ]
    rows += [("refused", one.name, one.path, one.message_id, one.reason) for one in refused]
    rows += [("damaged", one.name, "", f"{one.size:,} bytes", "") for one in damaged]
    head = ("", "NAME", "ENTITY", "MESSAGE", "REASON")
    tell(described, draw_table(head, rows, empty=f"nothing in the spool of {directory}"), as_json=as_json)
    if newer:
        names = ", ".join(map(str, newer))
        raise ConfigurationError(f"A newer version of Pairbus has written {names}: use that one to send it")


@examples("pairbus spool show 01794817082895-9734-f59fcc-000000-000000-0-0 --pair shop")
@spool.command()
@click.argument("name")
@pair_options
@state_option
@json_option
def show(name: str, *, choice: PairChoice, state: Path | None, as_json: bool) -> None:
    """Show a message that was refused, or what is damaged.

    NAME is one that `pairbus spool ls` lists.
    """
    [found] = _choose(_directory(choice, state), (name,))
    described = found.shown()
    rows = [(key, str(value)) for key, value in described.items() if value not in (None, {})]
    tell(described, draw_table(("", ""), rows), as_json=as_json)


@examples(
    "pairbus spool replay --pair shop",
    "pairbus spool replay --pair shop --all --timeout 300",
)
@spool.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@pair_options
@state_option
@click.option("--all", "everything", is_flag=True, help="All messages that were refused.")
@click.option(
    "--timeout",
    type=POSITIVE,
    default=120,
    metavar="SECONDS",
    help="How long it may take. What is left then waits for the next client.",
)
@json_option
def replay(
    names: tuple[str, ...],
    *,
    choice: PairChoice,
    state: Path | None,
    everything: bool,
    timeout: float,
    as_json: bool,
) -> int:
    """Send what was refused once more, and what clients have left that are gone.

    NAME is a message that was refused, as `pairbus spool ls` lists it. Mend first why it was refused. Exit
    code 1: something was refused, or is damaged; 3: something waits for a side to take it.
    """
    settings = choice.resolve(state=state, overrides={"enable_spool": True})
    directory = _existing(settings.state_dir)
    from pairbus.client.state.directory import spool_dir
    from pairbus.client.state.spool_aside import RefusedMessage, list_damaged, list_refused, messages_in
    from pairbus.client.state.spool_store import put_back
    from pairbus.client.state.spool_survey import list_left

    chosen = list_refused(directory) if everything else _choose(directory, names)
    messages = [one for one in chosen if isinstance(one, RefusedMessage)]
    if len(messages) < len(chosen):
        raise ConfigurationError("What is damaged cannot be sent; `pairbus spool drop` removes it")
    claimed = put_back(spool_dir(directory), messages) if messages else 0
    if claimed < len(messages):
        click.echo(f"{len(messages) - claimed:,} are being sent by somebody else", err=True)
    before, known = len(list_refused(directory)), {one.name for one in list_damaged(directory)}
    with working("sending what is in the spool"):
        most, reason = asyncio.run(_send(settings, timeout))
    refused = max(len(list_refused(directory)) - before, 0)
    damaged = [one for one in list_damaged(directory) if one.name not in known]
    waiting = len(list_left(spool_dir(directory)))  # also what no client could read
    sent = max(most - waiting - refused - messages_in(damaged), 0)
    found = {"sent": sent, "refused": refused, "waiting": waiting, "damaged": len(damaged), "reason": reason}
    tell(found, f"{sent:,} sent, {refused:,} refused, {waiting:,} waiting", as_json=as_json)
    if damaged and not as_json:
        are = counted(len(damaged), "part is damaged and was", "parts are damaged and were")
        click.echo(f"{are} put aside: {runnable('`pairbus spool ls`')}", err=True)
    if waiting:
        raise UnreachableError(f"no side has taken what waits: {reason or 'the time was over'}")
    return FOUND if refused or damaged else 0


@examples(
    "pairbus spool drop 01794817082895-9734-f59fcc-000000-000000-0-0 --pair shop",
    "pairbus spool drop --pair shop --all --yes",
    "pairbus spool drop --pair shop --waiting orders",
)
@spool.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@pair_options
@state_option
@click.option("--all", "everything", is_flag=True, help="All that was refused or is damaged.")
@repeatable(
    "--waiting", "waiting", "ENTITY", "All that waits for an entity, such as one that is gone for good."
)
@yes_option
@json_option
def drop(
    names: tuple[str, ...],
    *,
    choice: PairChoice,
    state: Path | None,
    everything: bool,
    waiting: tuple[str, ...],
    yes: bool,
    as_json: bool,
) -> None:
    """Remove what was refused or is damaged, for good.

    NAME is one that `pairbus spool ls` lists. What waits to be sent is dropped by its entity alone, and only
    while no client holds it.
    """
    directory = _directory(choice, state)
    if not names and not everything and not waiting:
        raise ConfigurationError("Say what to drop: names that `pairbus spool ls` lists, --all or --waiting")
    from pairbus.client.state.directory import spool_dir
    from pairbus.client.state.spool_aside import discard
    from pairbus.client.state.spool_store import drop_line
    from pairbus.pairing.names import path_key

    chosen = _all_aside(directory) if everything else _choose(directory, names)
    entities = {path_key(entity): entity for entity in waiting}.values()
    unsent = [message for entity in entities for message in _waiting_for(directory, entity)]
    if not yes and (chosen or unsent):
        what = counted(len(chosen) + len(unsent), "message or damaged part", "messages or damaged parts")
        confirm(f"Delete {what} of the spool of {directory} for good?")
    gone = {file for entity in entities for file in drop_line(spool_dir(directory), entity)}
    done = [*filter(discard, chosen), *(one for one in unsent if one.file in gone)]
    dropped = [one.described() for one in done]
    tell({"dropped": dropped}, f"dropped {len(dropped):,}", as_json=as_json)
    if left := len(chosen) + len(unsent) - len(done):
        raise UnreachableError(f"{left:,} could not be dropped: somebody has begun to send them meanwhile")


def _waiting_for(directory: Path, entity: str) -> list[WaitingMessage]:
    from pairbus.client.state.directory import spool_dir
    from pairbus.client.state.spool_survey import list_left, list_waiting
    from pairbus.pairing.names import path_key

    spool, key = spool_dir(directory), path_key(entity)
    found = [one for one in list_waiting(spool) if path_key(one.path) == key]
    left = [one for one in list_left(spool) if path_key(one.path) == key]
    if not found:
        raise ConfigurationError(f"Nothing waits for {entity!r} in {directory}; `pairbus spool ls` tells")
    if len(left) < len(found):
        raise UnreachableError(f"a client that runs holds messages for {entity!r}: close it first")
    return left


def _directory(choice: PairChoice, state: Path | None) -> Path:
    return _existing(state if state is not None else choice.resolve().state_dir)


def _existing(directory: Path) -> Path:
    if not directory.is_dir():
        raise ConfigurationError(
            f"There is no state directory {directory}; name that of the clients with --state"
        )
    return directory


def _all_aside(directory: Path) -> Sequence[RefusedMessage | DamagedBytes]:
    from pairbus.client.state.spool_aside import list_damaged, list_refused

    return [*list_refused(directory), *list_damaged(directory)]


def _choose(directory: Path, names: Sequence[str]) -> Sequence[RefusedMessage | DamagedBytes]:
    known = {one.name: one for one in _all_aside(directory)}
    for name in names:
        if name not in known:
            raise ConfigurationError(
                f"Nothing called {name!r} was put aside in {directory}; `pairbus spool ls` lists the names"
            )
    return [known[name] for name in dict.fromkeys(names)]


async def _send(settings: PairSettings, timeout: float) -> tuple[int, str | None]:
    """Let a client send its spool: how many messages that held at most, and why some are left at the end."""
    loop = asyncio.get_running_loop()
    async with signed_in(settings) as pair, pair.client([]) as client:
        spool = client.pair.spool
        assert spool is not None, "it was asked for"
        while spool.is_adopting:
            await spool.hold_up()
        ends, most = loop.time() + timeout, 0
        while True:
            status = spool.status()
            most = max(most, status.messages)
            if spool.is_empty or loop.time() > ends:
                return most, status.last_failure
            await asyncio.sleep(_LOOK)
