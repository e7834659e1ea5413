"""What is left when a drill is over: what lies in queues and dead letters, and what clients recorded."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from pairbus.backlog.survey import peek_all, survey_queues
from pairbus.client.state.directory import records_dir, spool_dir
from pairbus.client.state.records import KIND as REDIRECTS
from pairbus.client.state.records import UNKNOWN
from pairbus.client.state.spool_survey import list_waiting
from pairbus.ledger.segment import adopt_segments, closed_segments, read_segment
from pairbus.pairing.names import id_text, path_key
from pairbus.pump.options import PumpOptions
from pairbus.pump.pair import PumpPair
from pairbus.pump.pump import opened_transport
from pairbus.pump.transport import Peeked
from pairbus.words import DEAD_LETTER_QUEUE, REASON

from .messages import Resting
from .scenario import EntityPlan

# Far longer than a look at all queues takes; a deadline so that nothing waits for ever.
_LIMIT = 60.0


async def peek_primary(pair: PumpPair, entities: Sequence[EntityPlan]) -> list[Resting]:
    """What lies at the nodes of the primary, and in their dead letters."""
    found: list[Resting] = []
    async with asyncio.timeout(_LIMIT), opened_transport(pair.primary.resolve(), PumpOptions()) as transport:
        for plan in entities:
            for node in plan.nodes:
                found += [_resting(one, plan.path, node) async for one in peek_all(transport, node)]
                dead = peek_all(transport, f"{node}/{DEAD_LETTER_QUEUE}")
                found += [_resting(one, plan.path, node, is_dead=True) async for one in dead]
    return found


def _resting(one: Peeked, path: str, node: str, *, is_dead: bool = False) -> Resting:
    return Resting(
        message_id=id_text(one.sections.properties.message_id),
        path=path,
        place=_place(node, is_dead=is_dead),
        is_dead=is_dead,
        reason=str(one.sections.application_properties.get(REASON) or ""),
    )


async def peek_backlog(pair: PumpPair, queues: Sequence[str], *, now: float) -> list[Resting]:
    """What lies in the backlog queues, and in their dead letters."""
    async with asyncio.timeout(_LIMIT):
        return [
            Resting(
                message_id=one.message_id,
                path=one.path,
                place=_place(one.queue, is_dead=one.is_dead),
                is_dead=one.is_dead,
                reason=one.reason or "",
            )
            async for one in survey_queues(pair, queues, PumpOptions(), now=now)
        ]


def _place(queue: str, *, is_dead: bool) -> str:
    return f"the dead letters of {queue}" if is_dead else queue


def read_spool(state: Path) -> list[Resting]:
    """What the applications, which are closed by now, have left on their disks."""
    found = list_waiting(spool_dir(state))
    return [Resting(message_id=one.message_id, path=one.path, place="the spool") for one in found]


def read_redirects(state: Path) -> dict[tuple[str, str], str]:
    """By which backlog queue redirected messages went; those that may have gone two ways have their own."""
    directory = records_dir(state)
    adopt_segments(directory, REDIRECTS)
    queues: dict[tuple[str, str], str] = {}
    doubtful: set[tuple[str, str]] = set()
    for segment in closed_segments(directory, REDIRECTS):
        for row in read_segment(segment).rows:
            key = path_key(str(row.get("path"))), str(row.get("message_id"))
            if row.get("outcome") is not None:
                doubtful.add(key)
            if row.get("outcome") != UNKNOWN:
                queues[key] = str(row.get("queue"))
    return queues | {key: f"{queues[key]}, or before: {key[1]}" for key in doubtful & queues.keys()}
