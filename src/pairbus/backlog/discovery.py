"""Which queues the backlog of a pair has, and what they hold."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from azure.servicebus.aio.management import ServiceBusAdministrationClient

from pairbus.errors import ConfigurationError
from pairbus.pairing.names import backlog_queue_names
from pairbus.plumbing.wording import counted
from pairbus.portal import Portal
from pairbus.pump.pair import Side
from pairbus.sdk.administration import TROUBLES, describe_trouble, open_administration
from pairbus.wire.tokens import close_credential

from .backlog import Backlog
from .depth import read_depth
from .requests import OnRequest, list_extra
from .served_queue import ServedQueue

_LIST_LIMIT = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """The queues to serve, what lies in them if that is known, and what was noticed."""

    queues: tuple[ServedQueue, ...]
    active: int | None
    notes: tuple[str, ...] = ()
    #: Pairs that have no backlog queue at all: nothing can be done for these, which is never meant.
    bare: tuple[str, ...] = ()


async def discover(backlogs: Sequence[Backlog], tellers: Sequence[OnRequest] = ()) -> Discovery:
    """Which queues there are; without the right to ask, all below the count. `tellers` hear of requests."""
    queues: list[ServedQueue] = []
    notes: list[str] = []
    bare: list[str] = []
    active: int | None = 0
    for index, backlog in enumerate(backlogs):
        found = await _discover_one(index, backlog, tellers[index] if tellers else None)
        queues += found.queues
        notes += found.notes
        bare += found.bare
        active = None if active is None or found.active is None else active + found.active
    if len(set(queues)) < len(queues):
        raise ConfigurationError("the same backlog queue is named twice; give each pair once")
    return Discovery(queues=tuple(queues), active=active, notes=tuple(notes), bare=tuple(bare))


def discover_now(backlogs: Sequence[Backlog], tellers: Sequence[OnRequest] = ()) -> Discovery:
    """The same for who waits, also on the thread of an event loop, as in a notebook."""
    portal = Portal("pairbus-discovery")
    try:
        return portal.run(discover, backlogs, tellers)
    finally:
        portal.close(timeout=10.0)


async def _discover_one(index: int, backlog: Backlog, on_request: OnRequest | None) -> Discovery:
    names = backlog_queue_names(backlog.name, backlog.count)
    side = backlog.pair.secondary
    depth = await read_depth(lambda: administration(side), names, on_request=on_request)
    if depth.trouble is not None:
        note = f"the backlog queues of {backlog.name} cannot be looked at: {depth.reason}"
        return Discovery(queues=_served(index, names), active=None, notes=(note,))
    notes = _note_missing(depth.missing)
    served = [queue.name for queue in depth.queues]
    active = depth.active
    extra = await _list_extra(side, backlog, on_request)
    if extra:
        held = await read_depth(lambda: administration(side), extra, on_request=on_request)
        verb = "are drained too" if backlog.include_extra else "are left alone (--include-extra drains them)"
        notes.append(
            f"{len(extra)} backlog queues beyond the count, with {held.active:,} messages, {verb}: "
            f"{', '.join(extra)}"
        )
        if backlog.include_extra:
            served += extra
            active += held.active
    return Discovery(
        queues=_served(index, served),
        active=active,
        notes=tuple(notes),
        bare=() if served else (backlog.name,),
    )


def _note_missing(missing: Sequence[str]) -> list[str]:
    if not missing:
        return []
    are = counted(len(missing), "backlog queue is", "backlog queues are")
    return [f"{are} missing, which `pairbus provision` makes: {', '.join(missing)}"]


def refuse_bare(found: Discovery) -> None:
    """Refuse to work on no queue at all: a name that is wrong would look like a backlog that is empty."""
    if not found.queues:
        raise ConfigurationError(
            f"the secondary has no backlog queue of {' or '.join(found.bare)}: run `pairbus provision`, or "
            "give the --primary-name that the names of the queues begin with"
        )


async def _list_extra(side: Side, backlog: Backlog, on_request: OnRequest | None) -> list[str]:
    """Backlog queues of this primary whose index is beyond the count; none if they cannot be listed."""
    try:
        async with asyncio.timeout(_LIST_LIMIT), administration(side) as admin:
            return await list_extra(admin, backlog.name, backlog.count, on_request)
    except TROUBLES as error:
        if backlog.include_extra:
            raise ConfigurationError(
                f"--include-extra needs the right to list queues: {describe_trouble(error)}"
            ) from None
        return []


def _served(index: int, names: Sequence[str]) -> tuple[ServedQueue, ...]:
    return tuple(ServedQueue(index, name) for name in names)


@asynccontextmanager
async def administration(side: Side) -> AsyncIterator[ServiceBusAdministrationClient]:
    """An administration client for one side, resolved in this process, with a credential of its own."""
    resolved = side.resolve()
    keywords = {} if side.ca_file is None else {"connection_verify": side.ca_file}
    if resolved.parsed is not None:
        async with open_administration(resolved.parsed.text, keywords=keywords) as admin:
            yield admin
        return
    credential, address = resolved.credential(), resolved.endpoint.administration
    try:
        async with open_administration(address, credential, keywords=keywords) as admin:
            yield admin
    finally:
        await close_credential(credential)
