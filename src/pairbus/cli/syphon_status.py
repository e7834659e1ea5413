"""`pairbus syphon status`: who works on a pair, how it goes, and what waits.

It looks at what it can reach: the control address in the state directory of this machine, what a syphon
elsewhere leaves beside its receipts, and on the secondary the lease and the depth of the backlog.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pairbus.errors import ConfigurationError, UnreachableError

from .backlogs import choose_backlog
from .examples import examples
from .numbers import INTERVAL
from .pairs import PairChoice, pair_options
from .places import PLACE
from .syphon_options import state_option
from .tables import json_option, print_json, print_table

if TYPE_CHECKING:
    from pairbus.backlog.depth import BacklogDepth
    from pairbus.lease import LeaseView
    from pairbus.spark import Backlog
    from pairbus.stores.places import RecordPlace

_UNREACHABLE = 3
_ANSWER_LIMIT = 5.0
# What was not told anew for so long is told by nobody any more.
_STALE = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What could be seen; None where it could not."""

    syphon: Mapping[str, Any] | None
    lease: LeaseView | None
    depth: BacklogDepth | None

    def to_dict(self) -> dict[str, Any]:
        depth = self.depth
        return {
            "syphon": self.syphon,
            "lease": None if self.lease is None else asdict(self.lease),
            "backlog": None
            if depth is None
            else {"active": depth.active, "dead_letters": depth.dead_letters, "trouble": depth.reason},
        }


@click.command(
    "status",
    epilog=examples(
        "pairbus syphon status --pair shop --watch",
        "pairbus syphon status --records /mnt/records --json",
        "pairbus syphon status --records abfss://records@contoso.dfs.core.windows.net/shop",
    ),
)
@pair_options
@state_option
@click.option(
    "--records",
    type=PLACE,
    help="Where the syphon writes its receipts: a directory or an object store. "
    "[default: records of the pair, or STATE/records]",
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
def status_command(
    *,
    choice: PairChoice,
    state: Path | None,
    records: RecordPlace | None,
    watch: bool,
    interval: float,
    as_json: bool,
) -> int:
    """Show who works on a pair, how fast, what waits for which entity and why, and how long it will take.

    Nothing is moved or locked. Exit code 3: nothing of it could be reached.
    """
    while True:
        seen = _look(choice, state, records)
        if watch and sys.stdout.isatty() and not as_json:
            click.clear()
        if as_json:
            print_json(seen.to_dict())
        else:
            _print(seen)
        if not watch:
            return 0 if seen.syphon or seen.lease or seen.depth else _UNREACHABLE
        time.sleep(interval)


def _look(choice: PairChoice, state: Path | None, records: RecordPlace | None) -> _Seen:
    from pairbus.client.state.directory import records_dir

    is_paired = choice.is_made or (state is None and records is None)
    places = [] if records is None else [records]
    if is_paired:
        settings = choice.resolve(state=state)
        state = settings.state_dir
        places += [] if records is not None or settings.shared_records is None else [settings.shared_records]
    if state is not None:
        places.append(records_dir(state))
    syphon = _ask(state) or _read(places)
    if not is_paired:
        return _Seen(syphon=syphon, lease=None, depth=None)
    backlog = choose_backlog(choice).backlog
    try:
        lease, depth = asyncio.run(_look_at_secondary(backlog))
    except (ConfigurationError, UnreachableError):
        if syphon is None:
            raise
        return _Seen(syphon=syphon, lease=None, depth=None)
    return _Seen(syphon=syphon, lease=lease, depth=depth)


def _ask(state: Path | None) -> dict[str, Any] | None:
    from pairbus.spark.leash.tether import ControlFile, ask_leash

    if state is None:
        return None
    try:
        told = ask_leash(ControlFile(state).read())
    except UnreachableError:
        return None
    return {**told, **told.pop("counts"), "age": 0.0}


def _read(places: list[RecordPlace]) -> dict[str, Any] | None:
    from pairbus.spark.onlookers import read_statuses

    now = time.time()
    for place in places:
        try:
            found = read_statuses(place)
        except OSError as error:
            click.echo(f"{place} cannot be looked at: {error}", err=True)
            continue
        for told in found:
            return {**told, "age": max(0.0, now - told["at"])}
    return None


async def _look_at_secondary(backlog: Backlog) -> tuple[LeaseView | None, BacklogDepth | None]:
    from pairbus.backlog.depth import read_depth
    from pairbus.backlog.discovery import administration
    from pairbus.lease import read_lease
    from pairbus.pairing.names import backlog_queue_names
    from pairbus.pump.amqp_transport import AmqpTransport

    side = backlog.pair.secondary
    resolved = side.resolve()
    transport = AmqpTransport(resolved.place(), resolved.tokens(), timeout=_ANSWER_LIMIT)
    names = backlog_queue_names(backlog.name, backlog.count)
    try:
        return await asyncio.gather(
            read_lease(transport, backlog.name), read_depth(lambda: administration(side), names)
        )
    finally:
        await transport.close()


def _print(seen: _Seen) -> None:
    click.echo(f"lease    {_describe_lease(seen.lease)}")
    is_free = seen.lease is not None and seen.lease.is_held is False
    click.echo(f"syphon   {_describe_syphon(seen.syphon, is_free=is_free)}")
    depth = seen.depth
    if depth is None:
        click.echo("backlog  not looked at: name the pair for that")
    elif depth.trouble is not None:
        click.echo(f"backlog  cannot be looked at: {depth.reason}")
    else:
        click.echo(f"backlog  {depth.active:,} messages, {depth.dead_letters:,} dead letters")
    syphon = seen.syphon or {}
    if syphon.get("trouble"):
        click.echo(syphon["trouble"])
    now = time.time()
    rows = [
        (
            path,
            f"{one['waiting']:,}",
            "" if one["oldest"] is None else f"{max(0.0, now - one['oldest']):,.0f} s",
            one["why"] or "",
        )
        for path, one in sorted(syphon.get("paths", {}).items())
    ]
    if rows:
        print_table(("PATH", "WAITING", "OLDEST", "WHY"), rows)


def _describe_lease(lease: LeaseView | None) -> str:
    if lease is None:
        return "not looked at: name the pair for that"
    if lease.is_held is None:
        return f"cannot be looked at: {lease.trouble}"
    if not lease.is_held:
        return "held by nobody"
    return f"held by {lease.holder or 'a syphon that left no word of itself'}"


def _describe_syphon(told: Mapping[str, Any] | None, *, is_free: bool) -> str:
    """`is_free`: nobody holds the lease, so that what a file tells is the last word of one that died."""
    if told is None:
        return "none runs with this state or these records"
    if is_free and told["age"] > 0:
        moved = f"had moved {told['moved']:,} when last heard of {told['age']:,.0f} s ago"
        return f"none runs; one {moved}, and seems to have been killed"
    handled = told["moved"] + told["dead_lettered"]
    total = told.get("total")
    of = "" if total is None else f" of {max(total, handled):,}"
    left = told.get("seconds_left")
    words = {"run": "running", "pause": "paused", "stop": "stopping"}
    parts = [
        f"{words[told['order']]}, moved {told['moved']:,}{of}",
        f"{told.get('rate', 0.0):,.0f}/s",
        *([] if left is None else [f"{left:,.0f} s left"]),
        f"{told['dead_lettered']:,} dead-lettered",
        f"{told['waiting']:,} waiting",
        f"{told['pumps'] - told['resting']} pumps at work",
        f"{told['lost_locks']:,} locks lost",
        f"{told['retries']:,} retries",
    ]
    if told["age"] > _STALE:
        parts.append(f"last heard of {told['age']:,.0f} s ago: it may have been killed")
    return ", ".join(parts)
