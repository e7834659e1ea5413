"""`pairbus syphon status`: who works on a pair, how it goes, and what waits.

It looks at what it can reach: the control address in the state directory of this machine, what a syphon
elsewhere leaves beside its receipts, and on the secondary the lease and the depth of the backlog.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pairbus.errors import ConfigurationError, UnreachableError
from pairbus.plumbing.wording import counted, time_span

from .backlogs import choose_backlog
from .complaints import in_words
from .group import examples
from .pairs import PairChoice, pair_options
from .pictures import describe_missing
from .shared_options import job_state_option, records_option, watch_options
from .suggestions import runnable
from .tables import Picture, draw_table, json_option, per_second, show

if TYPE_CHECKING:
    from pairbus.backlog.depth import BacklogDepth
    from pairbus.lease.view import LeaseView
    from pairbus.spark import Backlog
    from pairbus.stores.places import RecordPlace

_ANSWER_LIMIT = 5.0
# What was not told anew for so long is told by nobody any more.
_STALE = 60.0
# States of a lease in which its pair is not worked on.
_WITHOUT = {"asking", "taken", "unreachable"}


def _picture(
    syphon: Mapping[str, Any] | None, lease: LeaseView | None = None, depth: BacklogDepth | None = None
) -> Picture:
    """What could be seen; None where it could not."""
    described = {
        "syphon": syphon,
        "lease": None if lease is None else asdict(lease),
        "backlog": None
        if depth is None
        else {"active": depth.active, "dead_letters": depth.dead_letters, "trouble": depth.reason},
    }
    is_lease_seen = lease is not None and lease.is_held is not None
    is_told = syphon is not None or is_lease_seen or (depth is not None and depth.trouble is None)
    return Picture(described, _draw(syphon, lease, depth), is_told)


def _draw(
    syphon: Mapping[str, Any] | None, lease: LeaseView | None, depth: BacklogDepth | None
) -> Iterator[str]:
    is_held = None if lease is None else lease.is_held
    yield f"lease    {_describe_lease(lease)}"
    yield f"syphon   {_describe_syphon(syphon, is_held=is_held)}"
    yield f"backlog  {_describe_depth(depth)}"
    syphon = syphon or {}
    if syphon and _is_silent(syphon, is_held=is_held) and (syphon.get("trouble") or syphon.get("paths")):
        yield "what it said last:"
    if syphon.get("trouble"):
        yield syphon["trouble"]
    now = time.time()
    rows = [
        (
            path,
            one["waiting"],
            "" if one["oldest"] is None else time_span(now - one["oldest"]),
            one["why"] or "",
        )
        for path, one in sorted(syphon.get("paths", {}).items())
    ]
    yield from draw_table(("PATH", "WAITING", "OLDEST", "WHY"), rows, numbers=(2,))


@examples(
    "pairbus syphon status --pair shop --watch",
    "pairbus syphon status --records /mnt/records --json",
    "pairbus syphon status --records abfss://records@contoso.dfs.core.windows.net/shop",
)
@click.command("status")
@pair_options
@job_state_option
@records_option("the syphon writes its receipts")
@watch_options
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
    return show(lambda: _look(choice, state, records), watch=watch, interval=interval, as_json=as_json)


def _look(choice: PairChoice, state: Path | None, records: RecordPlace | None) -> Picture:
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
        return _picture(syphon)
    backlog = choose_backlog(choice).backlog
    try:
        lease, depth = asyncio.run(_look_at_secondary(backlog))
    except (ConfigurationError, UnreachableError):
        if syphon is None:
            raise
        return _picture(syphon)
    return _picture(syphon, lease, depth)


def _ask(state: Path | None) -> dict[str, Any] | None:
    from pairbus.spark.leash.tether import ControlFile, ask_leash

    if state is None:
        return None
    try:
        told = ask_leash(ControlFile(state).read())
    except UnreachableError:
        return None
    counts = told.pop("counts")
    return {**told, **counts, "age": 0.0}


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
    from pairbus.lease.view import read_lease
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


def _describe_depth(depth: BacklogDepth | None) -> str:
    if depth is None:
        return "not looked at: name the pair for that"
    if depth.trouble is not None:
        return f"cannot be looked at: {depth.reason}"
    return (
        f"{counted(depth.active, 'message', 'messages')}, "
        f"{counted(depth.dead_letters, 'dead letter', 'dead letters')}{describe_missing(depth)}"
    )


def _describe_lease(lease: LeaseView | None) -> str:
    if lease is None:
        return "not looked at: name the pair for that"
    if lease.is_held is None:
        return f"cannot be looked at: {runnable(in_words(lease.trouble or ''))}"
    if not lease.is_held:
        return "held by nobody"
    return f"held by {lease.holder or 'a syphon that left no word of itself'}"


def _describe_syphon(told: Mapping[str, Any] | None, *, is_held: bool | None) -> str:
    if told is None:
        elsewhere = "; who holds the lease has others: name them with --state or --records"
        return f"none runs with this state or these records{elsewhere if is_held else ''}"
    if _is_silent(told, is_held=is_held):
        moved = f"had moved {told['moved']:,} when last heard of {time_span(told['age'])} ago"
        return f"none is heard of; one {moved}, and seems to have been killed or to stand still"
    handled = told["moved"] + told["dead_lettered"]
    total = told.get("total")
    of = "" if total is None else f" of {max(total, handled):,}"
    left = told.get("seconds_left")
    parts = [
        f"{_state_of(told)}, moved {told['moved']:,}{of}",
        f"{per_second(told.get('rate', 0.0))}/s",
        *([] if left is None else [f"{time_span(left)} left"]),
        f"{told['dead_lettered']:,} dead-lettered",
        f"{told['waiting']:,} waiting",
        f"{counted(told['pumps'] - told['resting'], 'pump', 'pumps')} at work",
        counted(told["lost_locks"], "lock lost", "locks lost"),
        counted(told["retries"], "retry", "retries"),
    ]
    return ", ".join(parts)


def _is_silent(told: Mapping[str, Any], *, is_held: bool | None) -> bool:
    """`is_held`: the lease, by anybody. If by nobody, what a file tells is the last word of one that died."""
    return told["age"] > _STALE or (is_held is False and told["age"] > 0)


def _state_of(told: Mapping[str, Any]) -> str:
    """One that has not all its leases waits, whatever it was told to do."""
    from pairbus.spark.leash.leash import ORDER_STATES

    is_barred = told["order"] == "run" and set(told.get("leases", {}).values()) & _WITHOUT
    return "waiting for its lease" if is_barred else ORDER_STATES[told["order"]]
