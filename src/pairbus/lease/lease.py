"""The lease of a pair: while a syphon works on it, no other does.

Theory of operation
1. The lease is the lock of the session `lease` of the queue `PRIMARY/x-pairbus-syphon` on the secondary. The
   service gives a session's lock to one receiver at a time, so that no clocks have to be compared.
2. It lasts as long as the service says, counted from before the request, and is renewed at half of that time.
   A holder that could not renew it stops its pumps when a quarter is left, before another can have the lease.
   A duration longer than provisioning sets is not believed.
3. A lost link loses the lock. The holder takes it again at once, and stops if another was quicker or nobody
   answers.
4. A syphon without the lease asks again every few seconds. A refused link costs nothing.
5. Without the queue, the claim or sessions (Basic tier) there is no lease. The syphon then works without one,
   warns of it, and tries again from time to time.
6. The holder describes itself in a message in that session, for people to peek at. Nothing depends on it.
7. No error ends the asking: a syphon that has lost the lease must be told so, and one that waits must get it
   some time. A file of certificates may be missing for a moment while it is replaced.
8. A holder whose pumps run elsewhere says so in the state of the session, before they begin, and takes it
   back when they have ended. If it is found there, the holder has died, and its pumps notice that only after
   a while: the next holder keeps the lease for so long before it works. Who cannot hear or say that now,
   since the namespace is busy for instance, does not work yet.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from math import inf
from typing import Literal

from pairbus import conditions
from pairbus.pairing.names import lease_queue_name
from pairbus.plumbing.tasks import wait_at_most
from pairbus.pump.amqp_transport import AmqpTransport
from pairbus.wire.errors import TransportError

from .holding import SessionHold, peek_announcement
from .view import Holder, parse_holder

log = logging.getLogger(__name__)
LeaseState = Literal["asking", "held", "taken", "unreachable", "unavailable", "released"]
# Rule 2: parts of the lock's duration.
_RENEWED_AFTER = 0.5
_TOLD_BEFORE = 0.25
# Rule 4, with jitter, so that two that wait do not ask together.
_ASK_AGAIN = 3.0
_RETRY = 1.0
_TAKEN_AGAIN = 3.0
# Rule 5.
_TRY_AGAIN = 900.0
# Rule 8: nobody is believed to leave pumps behind for longer.
_LONGEST_ORPHANS = 120.0
# Refusals that asking again does not change.
_NEVER = {
    conditions.NOT_FOUND,
    conditions.UNAUTHORIZED,
    conditions.NOT_ALLOWED,
    conditions.NOT_IMPLEMENTED,
    conditions.ENTITY_DISABLED,
    conditions.INVALID_FIELD,
}


def _now() -> float:
    """The time of the event loop, by which `asyncio.timeout` waits too."""
    return asyncio.get_running_loop().time()


class PairLease:
    """Asks for the lease, keeps it, and reports when work may begin and must stop. Run it once."""

    def __init__(
        self,
        open_transport: Callable[[], AmqpTransport],
        primary: str,
        *,
        holder: Holder,
        on_change: Callable[[PairLease], None],
    ) -> None:
        """`primary` begins the name of the queue; `on_change` is called on the loop. Does no I/O."""
        self.queue = lease_queue_name(primary)
        self.primary = primary
        self.state: LeaseState = "asking"
        #: Why it is not held, in words.
        self.why: str | None = None
        #: Whether nobody else can have it; pumps of an earlier holder may have to end first.
        self.is_ours = False
        self._open = open_transport
        self._holder = holder
        self._on_change = on_change
        self._stop = asyncio.Event()
        self._ends = 0.0
        self._free_at = 0.0
        self._has_left_word = False
        self._unheard_since = inf  # since when the state of the session can be neither read nor written

    @property
    def may_work(self) -> bool:
        """Whether pumps may run: the lease is held, or there is none."""
        return self.state in ("held", "unavailable")

    def stop(self) -> None:
        """Give it back, and end; call it on the loop."""
        self._stop.set()

    async def run(self) -> None:
        """Ask for the lease and keep it until `stop`. Pumps must have ended by then."""
        try:
            while not self._stop.is_set():
                try:
                    await self._ask()
                except Exception as error:
                    log.exception("the lease of %s cannot be asked for", self.primary)
                    await self._note_trouble(error)
        finally:
            self._change("released")

    async def _ask(self) -> None:
        """On a connection of its own each time: a lock that was lost belonged to the one before."""
        transport = self._open()
        try:
            await self._try(transport)
        finally:
            await transport.close()

    async def _try(self, transport: AmqpTransport) -> None:
        begun = _now()
        try:
            # Rule 3: after a lost link the pumps still run, so this must end soon.
            async with asyncio.timeout(_TAKEN_AGAIN if self.state == "held" else None):
                hold = await SessionHold.take(transport, self.queue)
        except TimeoutError:
            self._change("unreachable", f"the lease of {self.primary} was lost, and nobody answers")
            return
        except TransportError as error:
            await self._note_refusal(transport, error)
            return
        try:
            self._ends = begun + hold.duration
            self.is_ours = True
            await self._keep(hold)
        finally:
            self.is_ours = False
            hold.release()

    async def _note_refusal(self, transport: AmqpTransport, error: TransportError) -> None:
        if error.condition in _NEVER:
            self._change(
                "unavailable",
                f"no lease can be had on {self.queue} ({error.description or error.condition}): nothing "
                "keeps a second syphon from working on this pair; `pairbus provision` makes the queue",
            )
            await self._sleep(_TRY_AGAIN)
        elif error.condition == conditions.SESSION_CANNOT_BE_LOCKED:
            self._change(
                "taken", f"the lease of {self.primary} is held by {await self._describe_holder(transport)}"
            )
            await self._sleep(_ASK_AGAIN * random.uniform(0.7, 1.3))
        else:
            await self._note_trouble(error)

    async def _note_trouble(self, error: Exception) -> None:
        told = error.words if isinstance(error, TransportError) else str(error) or "nobody answers in time"
        self._change("unreachable", f"the lease of {self.primary} cannot be asked for: {told}")
        await self._sleep(_ASK_AGAIN)

    async def _describe_holder(self, transport: AmqpTransport) -> str:
        try:
            found = parse_holder(await peek_announcement(transport, self.queue))
        except TransportError:
            found = None
        return "another syphon, which left no word of itself" if found is None else str(found)

    async def _keep(self, hold: SessionHold) -> None:
        """Renew until stopped or lost; rule 2."""
        if not await self._take_over(hold):
            return
        due = self._due(hold)
        while not self._stop.is_set():
            last = self._ends - _TOLD_BEFORE * hold.duration
            now = _now()
            if hold.lost is not None:
                return  # rule 3: `run` asks at once, and tells if that is refused
            if now >= last:
                self._change("unreachable", f"the lease of {self.primary} could not be renewed in time")
                return
            if now >= self._free_at:
                self._change("held")
            if now < due:
                await self._sleep(min(due - now, _RETRY))
                continue
            try:
                async with asyncio.timeout(max(0.1, last - now)):
                    await hold.renew()
                self._ends = now + hold.duration
                due = self._due(hold)
            except (TransportError, TimeoutError) as error:
                log.warning("the lease of %s could not be renewed: %s", self.primary, error)
                if isinstance(error, TransportError) and error.condition == conditions.SESSION_LOCK_LOST:
                    return
                await self._sleep(_RETRY)
        with suppress(TransportError):
            if self._has_left_word and _now() >= self._free_at:
                await hold.remember(None)
            await hold.clear()

    def _due(self, hold: SessionHold) -> float:
        """When it is to be renewed."""
        return self._ends - (1 - _RENEWED_AFTER) * hold.duration

    async def _take_over(self, hold: SessionHold) -> bool:
        """Rules 6 and 8; whether the work may begin, now or in a while."""
        begun = _now()
        try:
            async with asyncio.timeout_at(self._due(hold)):  # who takes it again has pumps that run meanwhile
                await self._leave_word(hold, begun)
            self._unheard_since = inf
        except (TransportError, TimeoutError) as error:
            self._unheard_since = min(begun, self._unheard_since)
            is_final = isinstance(error, TransportError) and error.condition in _NEVER
            if not is_final and begun < self._unheard_since + _LONGEST_ORPHANS:
                if hold.lost is None:
                    await self._note_trouble(error)
                return False
        if begun >= self._free_at:
            self._change("held")
        with suppress(TransportError, TimeoutError):  # rule 2 does not wait for it
            async with asyncio.timeout_at(self._due(hold)):
                told = replace(self._holder, since=time.time())
                await hold.announce(json.dumps(asdict(told)), message_id=told.run)
        return True

    async def _leave_word(self, hold: SessionHold, now: float) -> None:
        """Rule 8: replace the word of an earlier holder, and see how long its pumps are to be waited for."""
        left, told = parse_holder(await hold.recall()), self._holder
        if left is not None and left.run != told.run and left.orphans > 0:
            wait = min(left.orphans, _LONGEST_ORPHANS)
            self._free_at = max(self._free_at, now + wait)
            self._change("taken", f"the pumps are ending of {left}, which has died")
            told = replace(told, orphans=max(told.orphans, wait))
        if told.orphans:
            await hold.remember(json.dumps(asdict(told)).encode())
            self._has_left_word = True

    def _change(self, state: LeaseState, why: str | None = None) -> None:
        is_news = state != self.state or why != self.why
        self.state, self.why = state, why
        if is_news:
            log.log(
                logging.INFO if state in ("held", "released") else logging.WARNING,
                "the lease of %s: %s",
                self.primary,
                why or state,
            )
            self._on_change(self)

    async def _sleep(self, seconds: float) -> None:
        await wait_at_most(self._stop, seconds)
