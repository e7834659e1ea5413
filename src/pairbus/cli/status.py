"""`pairbus status`: what running clients say of themselves, and what the secondary holds for them."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .group import examples
from .pairs import PairChoice, PairSettings, pair_options, signed_in
from .pictures import draw_aside, draw_backlog, draw_client
from .shared_options import state_option, watch_options
from .suggestions import runnable
from .tables import json_option, show

if TYPE_CHECKING:
    from pairbus.backlog.depth import BacklogDepth
    from pairbus.client.state.spool_aside import DamagedBytes, RefusedMessage
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What clients have left in a state directory, and what the secondary holds if the pair is named."""

    at: float
    name: str | None
    directory: Path
    clients: Sequence[ClientPicture]
    unreadable: Sequence[str]
    depth: BacklogDepth | None
    bytes_left: int
    refused: Sequence[RefusedMessage]
    damaged: Sequence[DamagedBytes]

    @property
    def is_anything(self) -> bool:
        """Whether anybody has told anything: what a client has left behind that is gone does not count."""
        return any(not client.is_stale for client in self.clients) or (
            self.depth is not None and self.depth.trouble is None
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "at": self.at,
            "clients": [dataclasses.asdict(client) for client in self.clients],
            "unreadable": self.unreadable,
            "backlog": None if self.depth is None else self.depth.to_dict(),
            "spool": {
                "bytes_left": self.bytes_left,
                "refused": [one.described() for one in self.refused],
                "damaged": [one.described() for one in self.damaged],
            },
        }

    def draw(self) -> Iterator[str]:
        from pairbus.client.state.directory import status_dir
        from pairbus.client.state.status_file import describe_unreadable

        if self.unreadable:
            yield describe_unreadable(self.unreadable)
        elif not self.clients:
            place = status_dir(self.directory)
            yield f"no client is running now; one that runs has its status in {place}"
        for client in self.clients:
            yield from draw_client(client, now=self.at)
        if self.name is not None and self.depth is not None:
            yield from draw_backlog(self.name, self.depth)
        if self.bytes_left:
            yield (
                f"spool: clients that are gone have left {self.bytes_left:,} bytes; the next one with this "
                + runnable("state directory sends them, or `pairbus spool replay`")
            )
        yield from draw_aside(self.refused, self.damaged)


def _look(settings: PairSettings | None, directory: Path) -> _Seen:
    from pairbus.client.state.directory import spool_dir, status_dir
    from pairbus.client.state.spool_aside import list_damaged, list_refused
    from pairbus.client.state.spool_survey import count_bytes_left
    from pairbus.client.state.status_file import read_status_files, unreadable_status_files

    depth = None if settings is None else asyncio.run(_read_depth(settings))
    now = time.time()
    return _Seen(
        at=now,
        name=None if settings is None else settings.name,
        directory=directory,
        clients=read_status_files(status_dir(directory), now=now),
        unreadable=unreadable_status_files(status_dir(directory)),
        depth=depth,
        bytes_left=count_bytes_left(spool_dir(directory)),
        refused=list_refused(directory),
        damaged=list_damaged(directory),
    )


async def _read_depth(settings: PairSettings) -> BacklogDepth:
    from pairbus.backlog.depth import read_depth
    from pairbus.pairing.names import backlog_queue_names

    names = backlog_queue_names(settings.name, settings.options.backlog_queue_count)
    async with signed_in(settings) as pair:
        return await read_depth(pair.secondary.open_administration, names)
