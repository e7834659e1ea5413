"""How much lies in the backlog queues of a pair, asked of the secondary; this needs the Manage claim."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from pairbus.plumbing.tasks import cancel_all
from pairbus.sdk.administration import (
    REQUEST_LIMIT,
    TROUBLES,
    OpenAdministration,
    Trouble,
    ask,
    describe_trouble,
    judge_trouble,
)

from .requests import OnRequest, telling

_AT_A_TIME = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDepth:
    """What one backlog queue holds."""

    name: str
    active: int
    dead_letters: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogDepth:
    """The sums over all queues; `trouble` says why they are unknown, `reason` explains it."""

    queues: tuple[QueueDepth, ...] = ()
    missing: tuple[str, ...] = ()
    trouble: Trouble | None = None
    reason: str | None = None

    @property
    def active(self) -> int:
        return sum(queue.active for queue in self.queues)

    @property
    def dead_letters(self) -> int:
        return sum(queue.dead_letters for queue in self.queues)

    def to_dict(self) -> dict[str, Any]:
        """The same for JSON."""
        return {
            "active": self.active,
            "dead_letters": self.dead_letters,
            "queues": [asdict(queue) for queue in self.queues],
            "missing": list(self.missing),
            "trouble": None if self.trouble is None else self.trouble.value,
            "reason": self.reason,
        }


async def read_depth(
    open_administration: OpenAdministration, names: Sequence[str], *, on_request: OnRequest | None = None
) -> BacklogDepth:
    """The depth of these queues; a secondary that does not tell is no error. `on_request` hears of each."""
    gate = asyncio.Semaphore(_AT_A_TIME)
    async with open_administration() as admin:

        async def read(name: str) -> QueueDepth | None:
            async with gate:
                return await _read_one(admin, name, on_request)

        reads = [asyncio.create_task(read(name)) for name in names]
        try:
            found = await asyncio.gather(*reads)
        except TROUBLES as error:
            return BacklogDepth(trouble=judge_trouble(error), reason=describe_trouble(error))
        finally:
            await cancel_all(*reads)  # what one was refused, the others need not ask for
    return BacklogDepth(
        queues=tuple(queue for queue in found if queue is not None),
        missing=tuple(name for name, queue in zip(names, found, strict=True) if queue is None),
    )


async def _read_one(
    admin: ServiceBusAdministrationClient, name: str, on_request: OnRequest | None
) -> QueueDepth | None:
    try:
        with telling(on_request, name):
            runtime = await ask(admin.get_queue_runtime_properties(name), limit=REQUEST_LIMIT)
    except ResourceNotFoundError:
        return None
    return QueueDepth(
        name=name,
        active=runtime.active_message_count or 0,
        dead_letters=runtime.dead_letter_message_count or 0,
        size=runtime.size_in_bytes or 0,
    )
