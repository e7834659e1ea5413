"""The status of clients and of the backlog, drawn for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pairbus.plumbing.wording import counted, time_span

from .suggestions import runnable
from .tables import clock_time, coloured, draw_table

if TYPE_CHECKING:
    from pairbus.backlog.depth import BacklogDepth
    from pairbus.client.state.spool_aside import DamagedBytes, RefusedMessage
    from pairbus.client.state.status_file import ClientPicture


def draw_client(client: ClientPicture, *, now: float) -> Iterator[str]:
    """One client: who it is, what it knows of the secondary, and each of its entities."""
    status = client.status
    age = (
        "gone, or its disk takes nothing" if client.is_stale else f"{time_span(now - client.written_at)} ago"
    )
    yield (
        f"{status['primary_name']}: {status['primary']}, secondary {status['secondary']} "
        f"(process {client.pid} on {client.host}, {age})"
    )
    rotation = status["rotation"]
    usable = sum(queue["usable"] for queue in rotation)
    yield f"  provisioning {status['provisioning']}, {usable} of {len(rotation)} backlog queues usable"
    if status.get("fault"):
        yield f"  FAULT: {status['fault']}"
    if syphon := status.get("syphon"):
        yield (
            f"  hosted syphon {syphon['state']}: {syphon['moved']:,} moved, {syphon['waiting']:,} waiting, "
            f"{syphon['dead_lettered']:,} dead-lettered"
        )
        if syphon["last_error"]:
            yield f"  its last failure: {syphon['last_error']}"
    spool = status.get("spool")
    if spool:
        held = counted(spool["messages"], "message", "messages")
        yield f"  spool: {held}, {spool['bytes']:,} of {spool['limit']:,} bytes"
    if lost := status.get("records_lost"):
        yield (
            f"  {counted(lost, 'redirect record', 'redirect records')} could not be written: "
            "`pairbus verify` cannot tell everything"
        )
    if shipping := status.get("shipping"):
        yield (
            f"  records older than {shipping['lag']:,.0f} s are in {shipping['to']}, "
            f"{counted(shipping['waiting'], 'segment waits', 'segments wait')}"
        )
        if client.is_stale:
            yield "  what it had not shipped, a client with the same state directory ships"
        if shipping["last_error"]:
            yield f"  the last failure of shipping: {shipping['last_error']}"
    for warning in status.get("warnings", ()):
        yield f"  {warning}"
    rows = [_entity_row(entity, now=now) for entity in status["entities"]]
    header = ("  ENTITY", "STATE", "SINCE", "PRIMARY", "BACKLOG", "FAILED", "LAST FAILURE")
    yield from draw_table(header, rows)


def draw_aside(refused: Sequence[RefusedMessage], damaged: Sequence[DamagedBytes]) -> Iterator[str]:
    """What the spool keeps because it cannot be sent, if there is any."""
    if refused:
        were = counted(len(refused), "message was refused and is", "messages were refused and are")
        yield runnable(f"spool: {were} kept, see `pairbus spool ls`")
        rows = [(f"  {one.name}", one.path, one.message_id, one.reason) for one in refused]
        yield from draw_table(("  NAME", "ENTITY", "MESSAGE", "REASON"), rows)
    if damaged:
        are = counted(len(damaged), "part is damaged and is", "parts are damaged and are")
        yield runnable(f"spool: {are} kept, see `pairbus spool ls`")
        parts = [(f"  {one.name}", one.size, one.file) for one in damaged]
        yield from draw_table(("  NAME", "BYTES", "FILE"), parts)


def _entity_row(entity: dict[str, Any], *, now: float) -> tuple[object, ...]:
    health, sent = entity["health"], entity.get("sent", {})
    return (
        f"  {health['path']}",
        coloured(health["state"]),
        clock_time(health["since"], now=now),
        *(sent.get(way, {}).get("ok", "") for way in ("primary", "backlog")),
        # An entity that refuses every send is healthy: it answers. Only this number tells.
        sum(number for way in sent.values() for outcome, number in way.items() if outcome != "ok"),
        health["last_failure"] or "",
    )


def describe_missing(depth: BacklogDepth) -> str:
    """How many backlog queues there are not, and what to do about it; nothing if all are there."""
    if not depth.missing:
        return ""
    missing = counted(len(depth.missing), "queue is missing", "queues are missing")
    return runnable(f", {missing}: run `pairbus provision`")


def draw_backlog(name: str, depth: BacklogDepth) -> Iterator[str]:
    """What lies in the backlog queues, those that hold nothing left out."""
    if depth.trouble is not None:
        yield f"backlog of {name}: not known ({depth.trouble.value}: {depth.reason})"
        return
    dead = counted(depth.dead_letters, "dead letter", "dead letters")
    yield f"backlog of {name}: {depth.active:,} waiting, {dead}{describe_missing(depth)}"
    rows = [
        (f"  {queue.name}", queue.active, queue.dead_letters, queue.size)
        for queue in depth.queues
        if queue.active or queue.dead_letters
    ]
    yield from draw_table(("  QUEUE", "WAITING", "DEAD", "BYTES"), rows)
