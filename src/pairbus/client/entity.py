"""One entity of the primary: every send of the client for its path goes through here.

Theory of operation
1. `EntityHealth` decides; this carries out what it decides, and tells it what happened. It holds no rule of
   its own.
2. A send is a loop: take the route of the moment; on the primary make an attempt; by how it ended return,
   raise, wait and try again, or go to the backlog. In `hold` mode the loop ends only with the message taken,
   an error that is the caller's, or the caller's time over.
3. An attempt exists from the moment it joins the FIFO. A failover abandons all of them at once, each wakes
   up, finds the route changed and takes its message to the backlog.
4. One timer an entity. It is set when there is something to wait for and may come too early; then it is set
   again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import OperationTimeoutError

from ..options import EntityState
from ..pairing.failures import Action, Failure, Kind, Verdict, describe, is_idle_closure, judge
from ..pairing.headroom import MAX_OVERHEAD, HeadroomNotice
from ..pairing.health import AbandonAttempts, Effect, EntityHealth, Notify, Route, StartPing
from .link import Attempt, Ending, Operation, Result, SdkSender, SendLink
from .message import body_bytes, measure
from .observer import Sending
from .timers import TimerHandle

if TYPE_CHECKING:
    from .message import Message
    from .pair import Pair

__all__ = ["Call", "Entity"]

PING_CONTENT_TYPE = "application/vnd.ms-servicebus-ping"
_PING_LIFE = timedelta(seconds=1)
# Only what comes this near to the limit of a backlog queue is measured: all headers together end at 64 KB.
_CERTAIN_ROOM = 68 * 1024
_UNANSWERED = Verdict(Action.COUNT_UNKNOWN, Kind.TIMEOUT)


@dataclass(frozen=True, slots=True)
class Call:
    """What a caller wants: done on the primary by `operation`, or else by `redirect`, which gets the
    deadline.
    """

    messages: list[Message]
    operation: Operation
    redirect: Callable[[float | None], Awaitable[Any]]


class Entity:
    """The sender of one entity, shared by all who send to it."""

    def __init__(self, path: str, *, pair: Pair, is_topic: bool) -> None:
        self.path = path
        self._pair = pair
        self._options = pair.options
        self._timers = pair.timers
        self.health = EntityHealth(path, pair.options, random=pair.random)

        def open_sender() -> SdkSender:
            return pair.primary.open_sender(path, is_topic=is_topic)

        self._links = [self._new_link(open_sender) for _ in range(self._options.links_per_entity)]
        self._ping_link = self._new_link(open_sender)
        self._pings: set[asyncio.Task[None]] = set()
        self._held: set[Attempt] = set()
        self._alarm: TimerHandle | None = None
        self._alarm_at = 0.0
        self._throttled_until = 0.0
        self._batch_limit: int | None = None

    def _new_link(self, open_sender: Callable[[], SdkSender]) -> SendLink:
        return SendLink(open_sender, graveyard=self._pair.graveyard, timers=self._timers)

    # -- sending
    # -----------------------------------------------------------------------------------------------------

    async def perform(self, call: Call, timeout: float | None) -> Any:
        """Do what the caller wants, on the primary or, if it is down, in the backlog."""
        deadline = None if timeout is None else self._timers.now() + timeout
        failures = 0
        while True:
            route = self.health.route
            if route is Route.BACKLOG:
                return await call.redirect(deadline)
            if route is Route.REFUSED:
                raise self.health.fault()
            wait = self._throttled_until - self._timers.now()
            if wait > 0:
                await self.pause(wait, deadline)
                continue
            result = await self._attempt(call, deadline)
            if result.ending is Ending.DONE:
                return result.value
            if result.ending is Ending.ABANDONED:
                continue
            failures += 1
            if await self._cope(result, deadline) is Action.SPILL:
                return await call.redirect(deadline)
            if self.health.route is Route.PRIMARY and self._throttled_until <= self._timers.now():
                await self.pause(self._options.retry_delay_after(failures), deadline)

    async def _attempt(self, call: Call, deadline: float | None) -> Result:
        attempt, began = Attempt(), self._timers.now()
        self.carry_out(self.health.begin(attempt, began))
        link = self._links[0] if len(self._links) == 1 else min(self._links, key=_length)
        idle_since = link.last_success
        try:
            result = await link.run(
                attempt, call.operation, limit=self._options.attempt_timeout, deadline=deadline
            )
            if result.error is not None and self._was_idle(result.error, idle_since, began):
                link.discard()
                result = await link.run(
                    attempt, call.operation, limit=self._options.attempt_timeout, deadline=deadline
                )
        except asyncio.CancelledError:
            self.health.withdraw(attempt)
            raise
        self._observe(call, result, began)
        await self._report(attempt, result, link)
        return result

    def _was_idle(self, error: BaseException, idle_since: float | None, began: float) -> bool:
        if idle_since is None:
            return False
        return is_idle_closure(describe(error), self._options, idle_for=began - idle_since)

    async def _report(self, attempt: Attempt, result: Result, link: SendLink) -> None:
        """Tell the health how the attempt ended."""
        now = self._timers.now()
        if result.ending is Ending.DONE:
            self._pair.had_success = True
            self.carry_out(self.health.succeed(attempt, now))
        elif result.ending is Ending.OUT_OF_TIME and not result.on_wire:
            self.health.withdraw(attempt)
        elif result.ending is Ending.OUT_OF_TIME:
            reason = f"no answer within {self._options.attempt_timeout:g} s"
            self.carry_out(self.health.record(attempt, _UNANSWERED, now=now, reason=reason))
        elif result.error is not None:
            failure = describe(result.error)
            verdict = await self._judge(failure)
            if verdict.is_counted:
                link.discard()
            self.carry_out(
                self.health.record(attempt, verdict, now=self._timers.now(), reason=failure.summary)
            )

    async def _judge(self, failure: Failure) -> Verdict:
        had_success = self._pair.had_success
        verdict = judge(failure, self._options, had_success=had_success)
        if verdict.action is Action.ASK_BACKLOG:
            opened = await self._pair.backlog.ask()
            verdict = judge(failure, self._options, had_success=had_success, backlog_opened=opened)
        return verdict

    async def _cope(self, result: Result, deadline: float | None) -> Action:
        """After a failure that has been reported: raise if it is the caller's, else say what to do."""
        now = self._timers.now()
        if result.error is None:
            if deadline is not None and now >= deadline:
                raise _timed_out(self.path)
            if self._raises(Action.COUNT_UNKNOWN):
                raise _timed_out(self.path)
            return Action.COUNT_UNKNOWN
        verdict = await self._judge(describe(result.error))
        if verdict.action is Action.THROTTLED:
            self._throttled_until = now + verdict.wait
        if verdict.action in (Action.RAISE, Action.PERMANENT) or self._raises(verdict.action):
            raise result.error
        return verdict.action

    def _raises(self, action: Action) -> bool:
        """Whether the caller wants to see failures before the failover, as the original showed them."""
        return (
            self._options.on_suspect == "raise"
            and action is not Action.SPILL
            and self.health.route is Route.PRIMARY
        )

    async def pause(self, seconds: float, deadline: float | None) -> None:
        """Wait, until the time has passed, the entity's state changes, or the caller's time is over, which
        raises.
        """
        now = self._timers.now()
        if deadline is not None and now >= deadline:
            raise _timed_out(self.path)
        until = now + seconds if deadline is None else min(now + seconds, deadline)
        sleeper = Attempt()
        waiter = sleeper.waiter(asyncio.get_running_loop())
        timer = self._timers.call_at(until, sleeper.expire)
        self._held.add(sleeper)
        try:
            await waiter
        finally:
            timer.cancel()
            self._held.discard(sleeper)

    # -- effects
    # -----------------------------------------------------------------------------------------------------

    def carry_out(self, effects: tuple[Effect, ...]) -> None:
        """Do what the health says is to be done."""
        for effect in effects:
            if isinstance(effect, AbandonAttempts):
                for attempt in effect.attempts:
                    cast(Attempt, attempt).abandon()
            elif isinstance(effect, StartPing):
                self._start(self._ping(effect.number))
            elif isinstance(effect, Notify):
                self._pair.notify(effect.change)
                for sleeper in list(self._held):
                    sleeper.expire()
                if effect.change.new is EntityState.HEALTHY:
                    self._ping_link.discard()
            # A ping that is called off answers to a number that nobody waits for.
        self._set_alarm()

    def _set_alarm(self) -> None:
        due = self.health.next_deadline
        if due is None or (self._alarm is not None and self._alarm_at <= due):
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = due
        self._alarm = self._timers.call_at(due, self._tick)

    def _tick(self) -> None:
        self._alarm = None
        self.carry_out(self.health.tick(self._timers.now()))

    # -- pings
    # -------------------------------------------------------------------------------------------------------

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._pings.add(task)
        task.add_done_callback(self._pings.discard)

    async def _ping(self, number: int) -> None:
        began = self._timers.now()
        operation = _open_link if self._options.probe == "link" else _send_ping
        result = await self._ping_link.run(
            Attempt(), operation, limit=self._options.attempt_timeout, deadline=None
        )
        now = self._timers.now()
        succeeded = result.ending is Ending.DONE
        self._pair.observers.tell(
            lambda observer: observer.pinged(self.path, succeeded=succeeded, seconds=now - began)
        )
        if succeeded:
            self.carry_out(self.health.ping_succeeded(number, now))
            return
        self._ping_link.discard()
        failure = None if result.error is None else describe(result.error)
        verdict = _UNANSWERED if failure is None else judge(failure, self._options, had_success=True)
        reason = (
            f"no answer within {self._options.attempt_timeout:g} s" if failure is None else failure.summary
        )
        self.carry_out(self.health.ping_failed(number, verdict, now=now, reason=reason))

    # -- the rest
    # ----------------------------------------------------------------------------------------------------

    def _observe(self, call: Call, result: Result, began: float) -> None:
        size = sum(map(body_bytes, call.messages))
        if result.ending is Ending.DONE and size > self._pair.backlog.limit - _CERTAIN_ROOM:
            self._watch_headroom(call)
        sending = Sending(
            path=self.path,
            route="primary",
            outcome=result.outcome,
            messages=len(call.messages),
            size=size,
            seconds=self._timers.now() - began,
        )
        self._pair.observers.tell(lambda observer: observer.sent(sending))

    def _watch_headroom(self, call: Call) -> None:
        for message in call.messages:
            notice = self._pair.headroom.observe(
                self.path,
                size=measure(message),
                overhead=MAX_OVERHEAD,
                backlog_limit=self._pair.backlog.limit,
            )
            if notice is not None:
                self._tell_headroom(notice)

    def _tell_headroom(self, notice: HeadroomNotice) -> None:
        self._pair.observers.tell(lambda observer: observer.headroom_lacked(notice))

    async def ask(self, operation: Operation, timeout: float | None) -> Any:
        """Ask the primary for something that has no other way; it is tried once."""
        limit = self._options.attempt_timeout
        result = await self._links[0].run(
            Attempt(), operation, limit=limit if timeout is None else min(limit, timeout), deadline=None
        )
        if result.error is not None:
            raise result.error
        if result.ending is not Ending.DONE:
            raise _timed_out(self.path)
        return result.value

    async def batch_limit(self) -> int | None:
        """How large a batch the primary's link takes; None while it cannot be asked."""
        if self._batch_limit is None and self.health.route is Route.PRIMARY:
            result = await self._links[0].run(
                Attempt(), _ask_batch_size, limit=self._options.attempt_timeout, deadline=None
            )
            self._batch_limit = result.value if result.ending is Ending.DONE else None
        return self._batch_limit

    async def close(self) -> None:
        """Stop the pings and close the links."""
        if self._alarm is not None:
            self._alarm.cancel()
        for task in list(self._pings):
            task.cancel()
        for link in (*self._links, self._ping_link):
            await link.close()


def _length(link: SendLink) -> int:
    return link.length


async def _open_link(sender: SdkSender) -> None:
    await sender.__aenter__()


async def _ask_batch_size(sender: SdkSender) -> int:
    return int((await sender.create_message_batch()).max_size_in_bytes)


async def _send_ping(sender: SdkSender) -> None:
    # A random session, so that entities with sessions take it too.
    await sender.send_messages(
        ServiceBusMessage(
            b"",
            content_type=PING_CONTENT_TYPE,
            time_to_live=_PING_LIFE,
            session_id=uuid4().hex,
            message_id=uuid4().hex,
        )
    )


def _timed_out(path: str) -> OperationTimeoutError:
    return OperationTimeoutError(
        message=f"Neither {path!r} nor the backlog took the message in the time given to the call. Give it "
        "more time, or shorten failover_interval."
    )
