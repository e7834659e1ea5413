"""Removes what a finished batch held: everything below a number, from the head of an entity.

Lock tokens cannot travel through Spark, and a waiting message cannot be fetched by its number. So what was
read by peek is received and completed afterwards, from the head on. That is right only for who is the only
consumer, and this is what can be seen of others: messages that stay locked, which ends the query; and numbers
that were given out anew, since an entity was created again, by messages that are younger than the batch. A
message that another consumer has completed before is not seen.
"""

import asyncio
from collections.abc import Sequence

from pairbus import conditions
from pairbus.errors import ConfigurationError
from pairbus.pump.browsing import PAGE
from pairbus.pump.transport import Delivery
from pairbus.wire.errors import TransportError

from .patience import explain, patiently
from .peeking import PatientSource, read_head

_WAIT = 1.0


async def check_consumable(source: PatientSource, *, timeout: float) -> None:
    """Refuse what cannot be consumed: entities with sessions."""

    async def attach() -> None:
        try:
            await source.source.attach()
        except TransportError as error:
            if error.condition in (conditions.NOT_ALLOWED, conditions.INVALID_FIELD):
                raise ConfigurationError(
                    f"mode=consume cannot take from {source.entity!r}: entities with sessions are read by "
                    f"mode=peek ({error.description})"
                ) from error
            raise

    await patiently(attach, timeout=timeout, what=source.entity)


async def remove_below(source: PatientSource, until: int, *, seen_ms: int, timeout: float) -> None:
    """Complete every message below a number. `seen_ms` is when the youngest of them was enqueued at most."""
    remover = _Remover(source, until, seen_ms, timeout)
    try:
        await remover.run()
    finally:
        await remover.let_go()


class _Remover:
    def __init__(self, source: PatientSource, until: int, seen_ms: int, timeout: float) -> None:
        self._patient = source
        self._source = source.source
        self._until = until
        self._seen_ms = seen_ms
        self._timeout = timeout

    async def run(self) -> None:
        """Page by page; a page that is still there after its messages were completed is locked by others."""
        loop = asyncio.get_running_loop()
        ends, at = loop.time() + self._timeout, 0
        while at < self._until:
            page = await self._patient.peek_heads(at, PAGE)
            below = [one for one in page if one.sequence_number < self._until]
            waiting = [one.sequence_number for one in below if one.state == "active"]
            deferred = [one.sequence_number for one in below if one.state == "deferred"]
            if not waiting and not deferred:
                at = below[-1].sequence_number + 1 if below and len(below) == len(page) else self._until
                continue
            done = await self._remove_deferred(deferred) + await self._remove_waiting(len(waiting))
            if done:
                ends = loop.time() + self._timeout
            elif loop.time() > ends:
                raise ConfigurationError(
                    f"{len(waiting) + len(deferred)} messages of {self._patient.entity!r}, from number "
                    f"{(waiting + deferred)[0]} on, were read and cannot be removed: somebody else has "
                    "locked them. mode=consume has to be the only consumer"
                )

    async def _remove_waiting(self, count: int) -> int:
        """Receive `count` messages and complete those of the batch; how many were completed."""
        if not count:
            return 0
        held = await patiently(
            lambda: self._source.receive(count, _WAIT), timeout=self._timeout, what=self._patient.entity
        )
        mine = [one for one in held if self._is_below(one)]
        others = [one for one in held if not self._is_below(one)]
        if others:
            await self._source.release(others)
        return await self._complete(mine)

    async def _remove_deferred(self, numbers: Sequence[int]) -> int:
        if not numbers:
            return 0
        found = await patiently(
            lambda: self._source.fetch(numbers), timeout=self._timeout, what=self._patient.entity
        )
        return await self._complete([one for one in found if isinstance(one, Delivery)])

    async def _complete(self, held: Sequence[Delivery]) -> int:
        if not held:
            return 0
        refusals = [one for one in await self._source.complete(held) if one is not None]
        for refusal in refusals:
            # A lock that was lost is got again; nothing else would mend itself.
            if refusal.condition == conditions.UNAUTHORIZED:
                raise explain(refusal, self._patient.entity)
        return len(held) - len(refusals)

    def _is_below(self, one: Delivery) -> bool:
        head = read_head(one.payload)
        if head.sequence_number >= self._until:
            return False
        if head.enqueued_ms > self._seen_ms:
            raise ConfigurationError(
                f"{self._patient.entity!r} was created again since the last batch: message "
                f"{head.sequence_number} is younger than what this query has read. Begin anew with another "
                "checkpoint"
            )
        return True

    async def let_go(self) -> None:
        """Release messages that came late."""
        left = await self._source.stop_receiving()
        if left:
            await self._source.release(left)
