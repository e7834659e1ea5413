"""Where a call goes: to the primary, to the backlog or into the spool. Nobody else decides it.

1. To the primary, while its entity is up and, where the order of sessions is kept, no session of the call
   stays on the backlog or may have messages in the spool.
2. Else to the backlog; and to the spool, where there is one, if no backlog queue takes the messages, or while
   older ones of the same entity wait there. One that takes nothing more, or whose disk hangs, is no reason to
   refuse what the backlog takes, unless the order of a session is to be kept. What was taken is not sent
   again.
3. An attempt on the primary that came to nothing comes back here, and the way is chosen anew.
4. What the healthy primary would refuse is refused on every way.
5. A call that finds nothing in its way, to the primary or to the backlog, sets out at once: its caller awaits
   the SDK itself. What that leaves to be done is done here: after a failure, and for the record.
6. With `ordering="session"` a call waits for those of its sessions that came before it. What comes out of the
   spool does not: it is older than all of them.
"""

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final

from azure.servicebus.exceptions import OperationTimeoutError

from pairbus.client.errors import SpoolError
from pairbus.client.observers.observer import AttemptOutcome, Sending, Undertaking
from pairbus.options import EntityState
from pairbus.pairing.errors import BacklogUnavailableError, tell_taken
from pairbus.pairing.failures import Action
from pairbus.pairing.health import Route
from pairbus.pairing.scheduling import BacklogNumbers

from .backlog_route import BacklogRoute
from .calls import EntityCall
from .entity import PairedEntity
from .message import Message, body_bytes, check_written, session_of
from .rounds import Shipment
from .sessions import StayingSessions
from .spool import Spool
from .surroundings import Surroundings
from .ticket import ends_caller, in_time

_HEALTHY: Final = EntityState.HEALTHY  # see `link.py`
_BACKLOG: Final = Route.BACKLOG
#: What has set out: a call, to the primary, or what it sends to the backlog.
Departure = EntityCall | Shipment
Perform = Callable[[PairedEntity, EntityCall, float | None], Coroutine[Any, Any, Any]]


class Router:
    """Finds the way of every call of one client."""

    def __init__(
        self,
        surroundings: Surroundings,
        *,
        backlog: BacklogRoute,
        spool: Spool | None,
        sessions: StayingSessions | None,
    ) -> None:
        self._around = surroundings
        self._sides = surroundings.sides
        self._timers = surroundings.timers
        self._backlog = backlog
        self._spool = spool
        self._sessions = sessions
        # Where sessions line up whose order is kept.
        self._line = spool if sessions is not None else None
        self._numbers = BacklogNumbers()
        self._run: Perform = self._perform if sessions is None else partial(self._perform_in_line, sessions)
        self._sets_out = sessions is None and not surroundings.observers.surround
        #: Does what the caller wants, on whatever way is open.
        self.perform: Perform = self._perform_observed if surroundings.observers.surround else self._run

    def set_out(self, entity: PairedEntity, call: EntityCall) -> Departure | None:
        """Begin to send, if nothing is in the way: then nothing is left to do but what the SDK does, and the
        caller has it done itself. Each coroutine between the two takes a hundredth of the whole send. It says
        then that it has `arrived`, or has it go on: `resume`. None if the way is to be found by `perform`.
        """
        if not self._sets_out or self._sides.have_ended:
            return None
        if entity.health.state is _HEALTHY:
            return call if entity.set_out(call) else None
        if self._spool is None and len(call.messages) == 1 and entity.health.route is _BACKLOG:
            if call.written is None:
                call.keep_as_it_is()
            call.check(entity.limits)
            return self._backlog.set_out(entity.path, call, counts=entity.counts)
        return None

    def resume(self, entity: PairedEntity, departure: Departure) -> Awaitable[None]:
        """Go on with what had set out, and has failed."""
        if isinstance(departure, Shipment):
            return self._backlog.send(entity.path, departure.call, counts=entity.counts, begun=departure)
        return self._try_again(entity, departure)

    async def _try_again(self, entity: PairedEntity, departure: EntityCall) -> None:
        try:
            action = await entity.attempt(departure, has_set_out=True)
        except BaseException as error:
            if ends_caller(error):
                entity.cancelled(departure)
            raise
        if action is Action.SPILL:
            await self._redirect(entity, departure)
        elif action is not None:
            await self._perform(entity, departure, None)

    async def _perform_observed(self, entity: PairedEntity, call: EntityCall, timeout: float | None) -> Any:
        undertaking = Undertaking(
            operation=call.operation,
            path=entity.path,
            messages=len(call.messages),
            is_replay=call.is_replay,
        )
        with self._around.observers.around(undertaking):
            try:
                return await self._run(entity, call, timeout)
            finally:
                undertaking.route, undertaking.state = call.route, entity.health.state

    async def _perform_in_line(
        self, sessions: StayingSessions, entity: PairedEntity, call: EntityCall, timeout: float | None
    ) -> Any:
        if call.is_replay:
            return await self._perform(entity, call, timeout)
        deadline = None if timeout is None else self._timers.now() + timeout
        async with sessions.in_line(entity.path, call.messages, deadline):
            left = None if deadline is None else deadline - self._timers.now()
            return await self._perform(entity, call, left)

    async def _perform(self, entity: PairedEntity, call: EntityCall, timeout: float | None) -> Any:
        call.deadline = None if timeout is None else self._timers.now() + timeout
        health, sessions = entity.health, self._sessions
        if sessions is not None and sessions.is_looking_first:
            await sessions.find_out(entity.path, call.messages, call.deadline)
        try:
            while True:
                if self._sides.have_ended:
                    self._sides.check("primary")
                if health.state is not _HEALTHY and health.route is not Route.PRIMARY:
                    if health.route is Route.REFUSED:
                        raise health.fault()
                    return await self._redirect(entity, call)
                if self._line is not None and not self._line.is_empty and await self._lines_up(entity, call):
                    return await self._redirect(entity, call)
                if sessions is not None and sessions.staying:
                    stay = sessions.stay_of(entity.path, call.messages)
                    if stay is not None and stay.hold is None:
                        return await self._redirect(entity, call)
                    if stay is not None:
                        await sessions.wait_out(stay, call.deadline)
                        continue
                try:
                    action = await entity.attempt(call)
                except BaseException as error:
                    if ends_caller(error):
                        entity.cancelled(call)
                    raise
                if action is None:
                    return call.value
                if action is Action.SPILL:
                    return await self._redirect(entity, call)
        except BaseException:
            if call.is_replay:  # it stays in the spool, and is sent again
                await self._note_unanswered(entity, call, call.messages)
            raise

    # -- not to the primary

    async def _lines_up(self, entity: PairedEntity, call: EntityCall) -> bool:
        """Whether a call with sessions goes behind what its entity has in the spool."""
        if self._line is None or call.is_replay or not _has_session(call):
            return False
        await self._line.hold_up()
        return self._line.holds(entity.path)

    async def _redirect(self, entity: PairedEntity, call: EntityCall) -> list[int] | None:
        """Have the backlog or the spool take a call; numbers below 0 for what was to be scheduled."""
        call.check(entity.limits)
        call.route = "backlog"
        if self._spool is None and self._sessions is None:
            await self._backlog.send(entity.path, call, counts=entity.counts)
        else:
            await self._detour(entity, call)
        return None if call.when is None else self._numbers.take(len(call.messages))

    async def _detour(self, entity: PairedEntity, call: EntityCall) -> None:
        spool = None if call.is_replay else self._spool
        if spool is None:
            await self._send_to_backlog(entity, call)
            return
        keeps_order = self._line is not None and _has_session(call)
        if keeps_order or self._timers.now() - spool.silent_since < self._around.options.send_timeout:
            await spool.hold_up()
            if spool.holds(entity.path):
                # What waits there is older, and is not overtaken while there is room behind it, or if the
                # order of its session is to be kept.
                try:
                    await self._keep(spool, entity, call, call.messages)
                    return
                except SpoolError:
                    if keeps_order:
                        raise
        try:
            await self._send_to_backlog(entity, call)
        except BacklogUnavailableError as error:
            await self._keep_rest(spool, entity, call, error.taken)

    async def _keep_rest(self, spool: Spool, entity: PairedEntity, call: EntityCall, taken: int) -> None:
        messages = call.messages
        try:
            await self._keep(spool, entity, call, messages[taken:])
        except (SpoolError, OperationTimeoutError) as error:
            if taken:
                tell_taken(error, taken, len(messages))
            raise

    async def _send_to_backlog(self, entity: PairedEntity, call: EntityCall) -> None:
        sessions = self._sessions
        if sessions is None:
            await self._backlog.send(entity.path, call, counts=entity.counts)
            return
        await sessions.find_out(entity.path, call.messages, call.deadline)
        with sessions.redirecting(entity.path, call.messages) as bond:
            await self._backlog.send(entity.path, call, counts=entity.counts, bond=bond)

    async def _keep(
        self, spool: Spool, entity: PairedEntity, call: EntityCall, messages: list[Message]
    ) -> None:
        began = self._timers.now()
        for message in messages:  # nobody else will encode them before they are acknowledged
            check_written(message)
        stays = self._sessions is not None and self._sessions.stays(entity.path, messages)
        ends = began + self._around.options.send_timeout
        if call.deadline is not None:
            ends = min(ends, call.deadline)
        work = spool.append(entity.path, messages, scheduled_for=call.when, stays=stays, at=began)
        try:
            is_kept = await in_time(self._timers, ends, work)
        except BaseException as error:
            if ends_caller(error):
                self._observe(entity, messages, "unknown", began)
            raise
        if not is_kept:
            self._observe(entity, messages, "unknown", began)
            raise OperationTimeoutError(
                message="The disk of the spool did not answer in the time given to the call. What it was to "
                "keep may still arrive: send it again with the same message_id."
            )
        await self._note_unanswered(entity, call, messages)
        call.route = "spool"
        self._observe(entity, messages, "ok", began)

    def _observe(
        self, entity: PairedEntity, messages: list[Message], outcome: AttemptOutcome, began: float
    ) -> None:
        """The spool has taken messages, or may have."""
        entity.counts["spool"][outcome] += len(messages)
        if self._around.observers.hear_sends:
            self._around.observers.tell_sent(
                Sending(
                    path=entity.path,
                    route="spool",
                    outcome=outcome,
                    messages=len(messages),
                    size=sum(map(body_bytes, messages)),
                    seconds=self._timers.now() - began,
                )
            )

    async def _note_unanswered(self, entity: PairedEntity, call: EntityCall, messages: list[Message]) -> None:
        """What was sent without an answer, and is in the spool, is sent again."""
        if times := call.unanswered + call.unsure:
            await self._backlog.note_unanswered(entity.path, messages, times=times, deadline=call.deadline)


def _has_session(call: EntityCall) -> bool:
    return any(session_of(message) is not None for message in call.messages)
