"""The status of clients and of the backlog, drawn for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from .colours import coloured
from .tables import clock_time, print_table, time_span

if TYPE_CHECKING:
    from pairbus.backlog.depth import BacklogDepth
    from pairbus.client.state.spool_aside import DamagedBytes, RefusedMessage
    from pairbus.client.state.status_file import ClientPicture


def print_client(client: ClientPicture, *, now: float) -> None:
    """One client: who it is, what it knows of the secondary, and each of its entities."""
    status = client.status
    age = "gone" if client.is_stale else f"{time_span(now - client.written_at)} ago"
    click.echo(
        f"{status['primary_name']}: {status['primary']}, secondary {status['secondary']} "
        f"(process {client.pid} on {client.host}, {age})"
    )
    rotation = status["rotation"]
    usable = sum(queue["usable"] for queue in rotation)
    click.echo(f"  provisioning {status['provisioning']}, {usable} of {len(rotation)} backlog queues usable")
    if status.get("fault"):
        click.echo(f"  FAULT: {status['fault']}")
    if syphon := status.get("syphon"):
        click.echo(
            f"  hosted syphon {syphon['state']}: {syphon['moved']:,} moved, {syphon['waiting']:,} waiting, "
            f"{syphon['dead_lettered']:,} dead-lettered"
        )
        if syphon["last_error"]:
            click.echo(f"  its last failure: {syphon['last_error']}")
    spool = status.get("spool")
    if spool:
        click.echo(f"  spool: {spool['messages']:,} messages, {spool['bytes']:,} of {spool['limit']:,} bytes")
    if lost := status.get("records_lost"):
        click.echo(
            f"  {lost:,} redirect records could not be written: `pairbus verify` cannot tell everything"
        )
    if shipping := status.get("shipping"):
        click.echo(
            f"  records older than {shipping['lag']:,.0f} s are in {shipping['to']}, "
            f"{shipping['waiting']:,} segments wait"
        )
        if client.is_stale:
            click.echo("  what it had not shipped, a client with the same state directory ships")
        if shipping["last_error"]:
            click.echo(f"  the last failure of shipping: {shipping['last_error']}")
    for warning in status.get("warnings", ()):
        click.echo(f"  {warning}")
    rows = [_entity_row(entity, now=now) for entity in status["entities"]]
    if rows:
        header = ("  ENTITY", "STATE", "SINCE", "PRIMARY", "BACKLOG", "LAST FAILURE")
        print_table(header, rows, numbers=(3, 4))


def print_aside(refused: Sequence[RefusedMessage], damaged: Sequence[DamagedBytes]) -> None:
    """What the spool keeps because it cannot be sent, if there is any."""
    if refused:
        click.echo(f"spool: {len(refused):,} messages were refused and are kept, see `pairbus spool`")
        rows = [(f"  {one.name}", one.path, one.message_id, one.reason) for one in refused]
        print_table(("  NAME", "ENTITY", "MESSAGE", "REASON"), rows)
    if damaged:
        click.echo(f"spool: {len(damaged):,} parts are damaged and are kept, see `pairbus spool`")
        print_table(("  NAME", "BYTES", "FILE"), [(f"  {one.name}", one.size, one.file) for one in damaged])


def _entity_row(entity: dict[str, Any], *, now: float) -> tuple[object, ...]:
    health, sent = entity["health"], entity.get("sent", {})
    return (
        f"  {health['path']}",
        coloured(health["state"]),
        clock_time(health["since"], now=now),
        *(f"{sent[way]['ok']:,}" if "ok" in sent.get(way, {}) else "" for way in ("primary", "backlog")),
        health["last_failure"] or "",
    )


def print_backlog(name: str, depth: BacklogDepth) -> None:
    """What lies in the backlog queues, those that hold nothing left out."""
    if depth.trouble is not None:
        click.echo(f"backlog of {name}: not known ({depth.trouble.value}: {depth.reason})")
        return
    missing = f", {len(depth.missing)} queues missing" if depth.missing else ""
    click.echo(f"backlog of {name}: {depth.active:,} waiting, {depth.dead_letters:,} dead letters{missing}")
    rows = [
        (f"  {queue.name}", f"{queue.active:,}", f"{queue.dead_letters:,}", f"{queue.size:,}")
        for queue in depth.queues
        if queue.active or queue.dead_letters
    ]
    if rows:
        print_table(("  QUEUE", "WAITING", "DEAD", "BYTES"), rows, numbers=(1, 2, 3))
