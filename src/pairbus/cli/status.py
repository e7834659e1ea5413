"""`pairbus status`: what running clients say of themselves, and what the secondary holds for them."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .access import signed_in
from .examples import examples
from .numbers import INTERVAL
from .pairs import PairChoice, PairSettings, pair_options
from .pictures import print_aside, print_backlog, print_client
from .tables import json_option, print_json

if TYPE_CHECKING:
    from pairbus.backlog.depth import BacklogDepth


@click.command(
    epilog=examples(
        "pairbus status --pair shop --watch",
        "pairbus status --state /var/lib/shop/pairbus --json",
    )
)
@pair_options
@click.option(
    "--state",
    type=click.Path(file_okay=False, path_type=Path),
    help="The state directory of the clients. [default: that of the pair]",
)
@click.option("--watch", is_flag=True, help="Show it again and again, until Ctrl-C.")
@click.option(
    "--interval",
    type=INTERVAL,
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="--watch: how often.",
)
@json_option
def status(*, choice: PairChoice, state: Path | None, watch: bool, interval: float, as_json: bool) -> int:
    """Show the state of running clients and of the backlog.

    Clients with a state directory write their status there. How much lies in the backlog is asked of the
    secondary, if the pair is named and the credential has the Manage claim.
    """
    settings = choice.resolve(state=state) if state is None or choice.is_made else None
    directory = settings.state_dir if settings is not None else state
    assert directory is not None  # one of the two was given, or resolve has raised
    if not watch:
        return _show(settings, directory, as_json=as_json)
    try:
        while True:
            if sys.stdout.isatty() and not as_json:
                click.clear()
            _show(settings, directory, as_json=as_json, in_one_line=True)
            time.sleep(interval)
    except KeyboardInterrupt:
        return 0  # that is how it is meant to end


def _show(settings: PairSettings | None, directory: Path, *, as_json: bool, in_one_line: bool = False) -> int:
    from pairbus.client.state.directory import status_dir
    from pairbus.client.state.spool_aside import list_damaged, list_refused
    from pairbus.client.state.status_file import read_status_files

    depth = None if settings is None else asyncio.run(_read_depth(settings))
    refused, damaged = list_refused(directory), list_damaged(directory)
    now = time.time()
    clients = read_status_files(status_dir(directory), now=now)
    if as_json:
        described = {
            "at": now,
            "clients": [dataclasses.asdict(client) for client in clients],
            "backlog": None if depth is None else _described(depth),
            "spool": {
                "refused": [one.described() for one in refused],
                "damaged": [one.described() for one in damaged],
            },
        }
        if in_one_line:
            click.echo(json.dumps(described))
        else:
            print_json(described)
    else:
        if not clients:
            told = f"tells its status in {status_dir(directory)} until it is closed"
            click.echo(f"no client is running: one that has this state directory {told}")
        for client in clients:
            print_client(client, now=now)
        if settings is not None and depth is not None:
            print_backlog(settings.name, depth)
        print_aside(refused, damaged)
    is_known = bool(clients) or (depth is not None and depth.trouble is None)
    return 0 if is_known else 3


async def _read_depth(settings: PairSettings) -> BacklogDepth:
    from pairbus.backlog.depth import read_depth
    from pairbus.pairing.names import backlog_queue_names

    names = backlog_queue_names(settings.name, settings.options.backlog_queue_count)
    async with signed_in(settings) as pair:
        return await read_depth(pair.secondary.open_administration, names)


def _described(depth: BacklogDepth) -> dict[str, Any]:
    return {
        "active": depth.active,
        "dead_letters": depth.dead_letters,
        "queues": [dataclasses.asdict(queue) for queue in depth.queues],
        "missing": list(depth.missing),
        "trouble": None if depth.trouble is None else depth.trouble.value,
        "reason": depth.reason,
    }
