"""`pairbus status`: what running clients say of themselves, and what the secondary holds for them."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .group import examples
from .pairs import PairChoice, PairSettings, pair_options, signed_in
from .pictures import draw_aside, draw_backlog, draw_client
from .shared_options import state_option, watch_options
from .suggestions import runnable
from .tables import Picture, json_option, show

if TYPE_CHECKING:
    from pairbus.backlog.depth import BacklogDepth
    from pairbus.client.state.status_file import ClientPicture


@examples(
    "pairbus status --pair shop --watch",
    "pairbus status --state /var/lib/shop/pairbus --json",
)
@click.command()
@pair_options
@state_option
@watch_options
@json_option
def status(*, choice: PairChoice, state: Path | None, watch: bool, interval: float, as_json: bool) -> int:
    """Show the state of running clients and of the backlog.

    Clients with a state directory write their status there. How much lies in the backlog is asked of the
    secondary, if the pair is named and the credential has the Manage claim.
    """
    settings = choice.resolve(state=state) if state is None or choice.is_made else None
    directory = settings.state_dir if settings is not None else state
    assert directory is not None  # one of the two was given, or resolve has raised
    return show(lambda: _look(settings, directory), watch=watch, interval=interval, as_json=as_json)


def _look(settings: PairSettings | None, directory: Path) -> Picture:
    """What clients have left in a state directory, and what the secondary holds if the pair is named."""
    from pairbus.client.state.directory import spool_dir, status_dir
    from pairbus.client.state.spool_aside import list_damaged, list_refused
    from pairbus.client.state.spool_survey import count_bytes_left
    from pairbus.client.state.status_file import read_status_files, unreadable_status_files

    depth = None if settings is None else asyncio.run(_read_depth(settings))
    now, statuses = time.time(), status_dir(directory)
    clients, unreadable = read_status_files(statuses, now=now), unreadable_status_files(statuses)
    left = count_bytes_left(spool_dir(directory))
    refused, damaged = list_refused(directory), list_damaged(directory)
    described = {
        "at": now,
        "clients": [dataclasses.asdict(client) for client in clients],
        "unreadable": unreadable,
        "backlog": None if depth is None else depth.to_dict(),
        "spool": {
            "bytes_left": left,
            "refused": [one.described() for one in refused],
            "damaged": [one.described() for one in damaged],
        },
    }
    lines = chain(
        _draw_clients(clients, unreadable, statuses, now=now),
        () if settings is None or depth is None else draw_backlog(settings.name, depth),
        _draw_left(left),
        draw_aside(refused, damaged),
    )
    # What a client has left behind that is gone does not count.
    is_told = any(not client.is_stale for client in clients) or (depth is not None and depth.trouble is None)
    return Picture(described, lines, is_told)


def _draw_clients(
    clients: Sequence[ClientPicture], unreadable: Sequence[str], place: Path, *, now: float
) -> Iterator[str]:
    from pairbus.client.state.status_file import describe_unreadable

    if unreadable:
        yield describe_unreadable(unreadable)
    elif not clients:
        yield f"no client is running now; one that runs has its status in {place}"
    for client in clients:
        yield from draw_client(client, now=now)


def _draw_left(size: int) -> Iterator[str]:
    if size:
        yield (
            f"spool: clients that are gone have left {size:,} bytes; the next one with this "
            + runnable("state directory sends them, or `pairbus spool replay`")
        )


async def _read_depth(settings: PairSettings) -> BacklogDepth:
    from pairbus.backlog.depth import read_depth
    from pairbus.pairing.names import backlog_queue_names

    names = backlog_queue_names(settings.name, settings.options.backlog_queue_count)
    async with signed_in(settings) as pair:
        return await read_depth(pair.secondary.open_administration, names)
