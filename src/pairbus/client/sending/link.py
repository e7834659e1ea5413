"""One sender behind a line of callers, with a deadline that holds.

Theory of operation
-------------------

1. SDK senders are not safe for several callers at once. So there is a line: one caller at a time has the
   *turn*, the others wait in order. Whoever has the turn may make several calls before it passes it on. A
   sender of our own AMQP has room for many: there are as many turns as its *width*, but only while it is
   known to work. Else one goes ahead, and the others follow when it has shown the way.
2. Whoever waits for the SDK can be called away at any moment: when its time is over, when a failover abandons
   it, when it is cancelled. What the SDK then does with the cancellation concerns nobody.
3. A sender that has to connect first may take its time with that. Its call runs in a task of its own, in the
   context of its caller, which simply stops waiting for it. On a sender that has just shown that it is
   connected a call is made in place, by the caller's own task. There a cancellation ends it at once, and a
   task a call would cost as much as all the rest of this client. Should the SDK linger, it is reminded.
4. A sender whose call was given up is in an unknown state. It is buried, and the next call opens a new one.
   A link that opens after that sends nothing: what was given up before it was sent goes another way, once.
   A call in a task that a failover abandoned is listened to for the rest of its time: what it meets after all
   may be what the caller has to mend.
5. A link that failed may be given a *rest*. Whoever has the turn waits for its end before it calls, so that a
   thousand callers behind a dead peer knock once a rest, not a thousand times.
6. A link that was closed while nobody used it is opened again once, at once. Nobody hears of it, unless the
   message may have left before that was noticed: that attempt has an unknown outcome, which is told.
7. One watchdog a link, set for the end of the first call: a timer a call would cost more than the rest of
   this file. If it comes too early it looks again; if far too late, this process stood still, and what was
   answered meanwhile is read first; once a call, or one that stands still now and then would never end it.
8. A sender with several callers that is buried for the sake of one is left to the others until their calls
   end: it closes after them. Only a call that has waited for a while is a reason to bury it; a caller that
   is cancelled sooner has other reasons than the peer.
9. Where several wait in line, whoever uses the link may take the turn for some of them at once (`lead`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from pairbus.pairing.failures import Fate
from pairbus.pairing.health import ABSENCE
from pairbus.plumbing.tasks import look_away
from pairbus.sdk.graveyard import Graveyard
from pairbus.sdk.privates import LinkLimits, link_limits
from pairbus.sdk.side import SdkSender
from pairbus.timers import TimerHandle, Timers

from .ticket import Ending, Ticket

# How soon the SDK is told again that nobody waits for it.
_REMINDER = 1.0
# How long those in line wait, for the sake of order, for a call that is being given up.
_MOMENT = 0.25
# A peer that is well has answered by then.
_PATIENCE = 1.0
_OWN_CANCELLATION = "the SDK cancelled its own call"
# A name of a module: to find a member of an enumeration takes Python 3.11 ten times as long.
_DONE: Final = Ending.DONE

SdkOperation = Callable[[SdkSender], Awaitable[Any]]


class _GivenUp(Exception):
    """Nobody waits for a call any more whose link has just opened."""


class SendLink:
    """A line in front of one SDK sender."""

    def __init__(
        self,
        open_sender: Callable[[], SdkSender],
        *,
        graveyard: Graveyard,
        timers: Timers,
        width: int = 1,
        idle_closure: Callable[[BaseException, float], Fate | None] | None = None,
        on_late: Callable[[BaseException | None], object] | None = None,
        lead: Callable[[SendLink], bool] | None = None,
    ) -> None:
        """`width` is how many calls a sender takes at once; `idle_closure` tells what became of a call whose
        error after so many idle seconds is rule 6's, and None where it is not; `on_late` hears what the SDK
        raised, or None for a success, in a call that had been abandoned; `lead` is asked whether it has taken
        the turn for the first in line.
        """
        self._open_sender = open_sender
        self._graveyard = graveyard
        self._timers = timers
        self._idle_closure = idle_closure
        self._on_late = on_late
        self._lead = lead
        self._loop = asyncio.get_running_loop()
        self._sender: SdkSender | None = None
        self._waiting: deque[Ticket] = deque()
        self._width = width
        self._taken = 0  # turns
        #: Failures in a row; whoever uses the link counts them.
        self.failures = 0
        self._failed: SdkSender | None = None
        self._is_closing = False
        # Who waits for a call, until when, and what closing waits for while somebody does.
        self._callers: dict[Ticket, float] = {}
        self._parting: asyncio.Future[None] | None = None
        self._evacuation: TimerHandle | None = None
        # Whether the present sender is connected, as far as its last call tells.
        self._is_proven = False
        self._resting: dict[Ticket, None] = {}
        self._rest_timer: TimerHandle | None = None
        self._rest_until = 0.0
        #: When the present sender last did what it was asked to; None for one that has done nothing yet.
        self.last_success: float | None = None
        self._watchdog: TimerHandle | None = None
        self._watchdog_at = self._listened_at = 0.0
        # Calls that nobody waits for, with their senders, until their time is over.
        self._left_behind: dict[asyncio.Task[Any], tuple[SdkSender, TimerHandle]] = {}
        # Senders that are used no more but by those whose calls are under way.
        self._retired: list[SdkSender] = []

    @property
    def limits(self) -> LinkLimits | None:
        """What the present sender takes, if it tells."""
        return None if self._sender is None else link_limits(self._sender)

    @property
    def length(self) -> int:
        """How many wait or have the turn."""
        return len(self._waiting) + self._taken

    @property
    def is_calling(self) -> bool:
        """Whether a call is under way."""
        return bool(self._callers)

    # -- the line

    @property
    def is_busy(self) -> bool:
        """Whether all turns are taken."""
        return self._taken > 0 and (self._taken >= self._width or not self._works)

    @property
    def _works(self) -> bool:
        """Whether the sender is connected, as far as is known."""
        return self._is_proven and (self._width == 1 or not getattr(self._sender, "is_lost", False))

    def take_turn(self) -> None:
        """Have a turn of a link that is not busy."""
        self._taken += 1

    def take_free_turn(self) -> bool:
        """Have a turn, if the link is not busy: whether it was so."""
        if self._taken and self.is_busy:
            return False
        self._taken += 1
        return True

    async def wait_turn(self, ticket: Ticket, deadline: float | None) -> Ending:
        """Wait in line, before `deadline`: TURN, OUT_OF_TIME or ABANDONED. Take no turn without `pass_turn`.

        Only for a busy link; of one that is not, take it.
        """
        waiter = ticket.waiter(self._loop)
        self._waiting.append(ticket)
        timer = None if deadline is None else self._timers.call_at(deadline, ticket.expire)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.result() is Ending.TURN:
                self.pass_turn()
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def pass_turn(self) -> None:
        """Give the turn to the first in line, if there is anybody."""
        self._taken -= 1
        if self._evacuation is not None and not self._callers:
            self._end_evacuation()
        while self._waiting and not self.is_busy:
            if self._lead is not None and len(self._waiting) > 1 and not self.is_resting and self._lead(self):
                break
            if self._waiting and self._waiting.popleft().end(Ending.TURN):
                self._taken += 1
        if self._is_closing and not self._taken:
            self.discard()

    def take_along(self, takes: Callable[[Ticket], bool]) -> None:
        """Take out of the line, from its front, all that somebody takes."""
        while self._waiting and (not self._waiting[0].is_waiting or takes(self._waiting[0])):
            self._waiting.popleft()

    def readmit(self, tickets: Sequence[Ticket]) -> None:
        """Put those who were taken along back to the front of the line; they have not ceased to wait."""
        self._waiting.extendleft(reversed(tickets))

    def send_away(self) -> None:
        """Abandon all who wait in line."""
        while self._waiting:
            self._waiting.popleft().abandon()

    def evacuate(self) -> None:
        """Abandon everybody, in order: those in line after those whose calls are under way, which take a
        moment to get out of it.
        """
        self.wake()
        if not self._callers:
            self.send_away()
            return
        for ticket in list(self._callers):
            ticket.abandon()
        for ticket in self._waiting:
            ticket.is_abandoned = True
        if self._evacuation is None:
            self._evacuation = self._timers.call_at(self._timers.now() + _MOMENT, self._end_evacuation)

    def _end_evacuation(self) -> None:
        if self._evacuation is not None:
            self._evacuation.cancel()
            self._evacuation = None
        self.send_away()

    # -- with the turn

    async def call(
        self, ticket: Ticket, operation: SdkOperation, *, limit: float, deadline: float | None
    ) -> Ending:
        """Have the SDK do something, for at most `limit` seconds: DONE, FAILED, OUT_OF_TIME or ABANDONED.

        What it gave is the ticket's `value`, what it raised its `error`.
        """
        if ticket.is_abandoned or self._is_closing:  # between being given its turn and taking it
            return Ending.ABANDONED
        now = self._timers.now()
        ends = now + limit
        if deadline is not None and deadline < ends:
            if deadline <= now:
                return Ending.OUT_OF_TIME
            ends = deadline
        ticket.error = None
        sender = self._sender if self._works else None
        self._callers[ticket] = ends
        if self._watchdog is None or ends < self._watchdog_at:
            self._set_watchdog(ends)
        ticket.enter(sender, now, self.last_success)
        if sender is None:
            try:
                ending = await self._call_in_task(ticket, operation, ends)
                if ticket.sender is self._sender:
                    self._is_proven = ending is _DONE
                    if ending is _DONE:
                        self.last_success = self._timers.now()
            finally:
                self._leave(ticket)
            if not self._reopens(ticket, ending):
                return ending
            return await self.call(ticket, operation, limit=limit, deadline=deadline)
        try:
            ticket.value = await operation(sender)
        except BaseException as error:  # noqa: BLE001 - it is raised again, or judged as the SDK's
            ticket.error = error
        if ticket.error is not None:
            return await self.resume(ticket, operation, limit=limit, deadline=deadline)
        self.arrived(ticket, self._timers.now())
        return _DONE

    async def resume(
        self, ticket: Ticket, operation: SdkOperation, *, limit: float, deadline: float | None
    ) -> Ending:
        """Go on with a call in place that has met the ticket's error. Raises what concerns the caller's task
        and not the call.
        """
        ending = self._judge(ticket, ticket.vacate())
        if ending is not None and ticket.sender is self._sender:
            self._is_proven = False
        self._leave(ticket)
        if ending is None:
            raise ticket.error or AssertionError("something was raised")
        if not self._reopens(ticket, ending):
            return ending
        return await self.call(ticket, operation, limit=limit, deadline=deadline)

    def set_out(self, ticket: Ticket, now: float, ends: float) -> bool:
        """Take the turn and begin a call in place, on the ticket's sender, if that can be done at once.

        It ends with `arrived` or `resume`, and the turn is to be passed on. False if it has to be made by
        `call`.
        """
        if self._taken >= self._width or self._rest_until > now or self._is_closing or not self._is_proven:
            return False
        if self._width > 1 and getattr(self._sender, "is_lost", False):
            return False
        self._taken += 1
        self._callers[ticket] = ends
        if self._watchdog is None or ends < self._watchdog_at:
            self._set_watchdog(ends)
        ticket.enter(self._sender, now, self.last_success)
        return True

    def arrived(self, ticket: Ticket, now: float) -> None:
        """The SDK has done what it was asked to in place."""
        ticket.vacate()
        if ticket.sender is self._sender:
            self._is_proven = True
            self.last_success = now
        del self._callers[ticket]
        if self._retired or self._resting or self._parting is not None:
            self._look_around()

    def _judge(self, ticket: Ticket, reason: Ending | None) -> Ending | None:
        """How a call in place ended; None if its error is to be raised."""
        error = ticket.error
        if isinstance(error, Exception):  # whatever it is, the table of failures judges it
            return Ending.FAILED
        is_ours = isinstance(error, asyncio.CancelledError) and not ticket.is_cancelled
        if is_ours or self._is_spoilt(ticket):
            self._bury_sender(of=ticket.sender)
        if not is_ours:  # somebody else wants the task to end
            return None
        ticket.error = None if reason is not None else ConnectionAbortedError(_OWN_CANCELLATION)
        return reason or Ending.FAILED

    def _leave(self, ticket: Ticket) -> None:
        del self._callers[ticket]
        self._look_around()

    def _look_around(self) -> None:
        """A call has ended: others may have waited for that."""
        if self._retired:
            self._bury_retired()
        if self._resting:
            self._look_at_rest()
        if self._parting is not None and not self._callers and not self._parting.done():
            self._parting.set_result(None)

    def _reopens(self, ticket: Ticket, ending: Ending) -> bool:
        """Rule 6: whether a call is to be made again at once, since its link was found closed."""
        fate = self._fate_if_idle(ticket) if ending is Ending.FAILED else None
        if fate is None:
            return False
        ticket.unknown += fate == "unknown"
        self.discard_after(ticket)
        return True

    def _is_spoilt(self, ticket: Ticket) -> bool:
        """Whether its sender is not used again: rule 8, and after what ends a program, but for its loop."""
        if not isinstance(ticket.error, asyncio.CancelledError):
            return not isinstance(ticket.error, GeneratorExit)
        return self._width == 1 or self._timers.now() - (ticket.called_at or 0.0) >= _PATIENCE

    async def _call_in_task(self, ticket: Ticket, operation: SdkOperation, ends: float) -> Ending:
        waiter = ticket.waiter(self._loop)
        task = self._loop.create_task(self._perform(operation, waiter, ticket))
        try:
            ending = await waiter
        except asyncio.CancelledError:
            self._give_up(task, ticket)
            raise
        if ending is not Ending.ANSWERED:
            if ending is Ending.ABANDONED and self._on_late is not None and not self._is_closing:
                self._leave_behind(task, ticket, ends)
            else:
                self._give_up(task, ticket)
            ticket.error = None
            return ending
        ticket.error = ConnectionAbortedError(_OWN_CANCELLATION) if task.cancelled() else task.exception()
        if ticket.error is not None:
            return Ending.FAILED
        ticket.value = task.result()
        return _DONE

    async def _perform(self, operation: SdkOperation, waiter: asyncio.Future[Ending], ticket: Ticket) -> Any:
        try:
            if self._sender is None:
                self._sender = self._open_sender()
            ticket.sender = sender = self._sender
            await sender.__aenter__()
            if waiter.done():
                raise _GivenUp
            ticket.is_sent = True
            return await operation(sender)
        finally:
            # The task is done when the waiter wakes up.
            if not waiter.done():
                waiter.set_result(Ending.ANSWERED)

    def _fate_if_idle(self, ticket: Ticket) -> Fate | None:
        # The next sender has no success yet, so that this is not said twice in a row.
        called_at, worked_at = ticket.called_at, ticket.worked_at
        if self._idle_closure is None or worked_at is None or called_at is None or ticket.error is None:
            return None
        return self._idle_closure(ticket.error, called_at - worked_at)

    async def run(
        self, ticket: Ticket, operation: SdkOperation, *, limit: float, deadline: float | None = None
    ) -> Ending:
        """Wait in line, make one call and pass the turn on."""
        if not self.take_free_turn():
            ending = await self.wait_turn(ticket, deadline)
            if ending is not Ending.TURN:
                return ending
        try:
            return await self.call(ticket, operation, limit=limit, deadline=deadline)
        finally:
            self.pass_turn()

    # -- rests

    def rest(self, seconds: float) -> None:
        """Let whoever has the turn wait before the next call."""
        self._rest_until = max(self._rest_until, self._timers.now() + seconds)

    @property
    def rests_until(self) -> float:
        """The end of the last rest."""
        return self._rest_until

    @property
    def is_resting(self) -> bool:
        """Whether the next call has to wait: for the end of the rest, or for one that shows the way."""
        if self._rest_until > 0.0 and self._rest_until > self._timers.now():
            return True
        return bool(self._callers) and not self._works

    async def rest_out(self, ticket: Ticket, deadline: float | None) -> Ending:
        """With the turn: wait for the end of the rest: RESTED, OUT_OF_TIME or ABANDONED."""
        while self.is_resting:
            if ticket.is_abandoned:
                return Ending.ABANDONED
            waiter = ticket.waiter(self._loop)
            timer = None if deadline is None else self._timers.call_at(deadline, ticket.expire)
            self._resting[ticket] = None
            self._look_at_rest()
            try:
                ending = await waiter
            finally:
                del self._resting[ticket]
                if timer is not None:
                    timer.cancel()
                if not self._resting:
                    self._stop_rest_timer()
            if ending is not Ending.RESTED:
                return ending
        return Ending.RESTED

    def _look_at_rest(self) -> None:
        """Let all who rest go on, in their order, when the rest is over; one timer for all of them."""
        self._stop_rest_timer()
        if not self.is_resting:
            self._end_rests()
        elif self._rest_until > self._timers.now():
            self._rest_timer = self._timers.call_at(self._rest_until, self._look_at_rest)

    def wake(self, until: float = 0.0) -> None:
        """End the rest: something has changed. `until` nobody goes on even so."""
        self._rest_until = min(self._rest_until, until)
        self._end_rests()

    def _end_rests(self) -> None:
        for ticket in list(self._resting):
            ticket.end(Ending.RESTED)

    def _stop_rest_timer(self) -> None:
        if self._rest_timer is not None:
            self._rest_timer.cancel()
            self._rest_timer = None

    # -- the sender

    def discard(self) -> None:
        """Use a new sender from now on; not while a call is under way on one that takes no other."""
        if self._width > 1 or not self._callers:
            self._bury_sender()

    def count_failure(self, ticket: Ticket) -> None:
        """One more failure in a row; those that were under way on one sender when it failed are one."""
        if ticket.sender is None or ticket.sender is not self._failed:
            self.failures += 1
        self._failed = ticket.sender

    def discard_after(self, ticket: Ticket) -> None:
        """The same, unless that is done since the ticket's last call."""
        if ticket.sender is self._sender:
            self.discard()

    def take_over(self, other: SendLink) -> None:
        """Use the sender of another link, which has just shown that it is connected; unless there is one."""
        if self._sender is None and other._is_proven:
            self._sender, self.last_success, self._is_proven = other._sender, other.last_success, True
            other._forget_sender()

    async def close(self, grace: float) -> None:
        """Send away who waits, give the call that is under way so many seconds to end, and close.

        The grace is real time: whoever closes a client waits for it.
        """
        self._is_closing = True
        self.send_away()
        if self._callers:
            self._parting = self._loop.create_future()
            await asyncio.wait({self._parting}, timeout=grace)
        for ticket in (*self._callers, *self._resting):
            ticket.abandon()
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None
        for task in list(self._left_behind):
            self._end_late(task)
        self.discard()  # or else whoever has the turn does it

    def _give_up(self, task: asyncio.Task[Any], ticket: Ticket) -> None:
        """Nobody waits for this call any more, and nobody knows what it has done to its sender."""
        task.add_done_callback(look_away)
        if self._width > 1 or ticket.sender is not self._sender or self._sender is None:
            task.cancel()
            self._bury_sender(of=ticket.sender)
        else:
            self._bury_sender(after=task)

    def _leave_behind(self, task: asyncio.Task[Any], ticket: Ticket, ends: float) -> None:
        """Nobody waits for this call any more, but what it meets within its own time is told."""
        sender: SdkSender | None = ticket.sender
        if sender is None:
            self._give_up(task, ticket)
            return
        if sender is self._sender:
            self._forget_sender()
        timer = self._timers.call_at(ends, lambda: self._end_late(task))
        self._left_behind[task] = (sender, timer)
        task.add_done_callback(self._hear_late)

    def _hear_late(self, task: asyncio.Task[Any]) -> None:
        left = self._left_behind.pop(task, None)
        if left is None or task.cancelled():
            return
        sender, timer = left
        timer.cancel()
        self._retire(sender)
        error = task.exception()
        if self._on_late is not None and not isinstance(error, _GivenUp):
            self._on_late(error)

    def _end_late(self, task: asyncio.Task[Any]) -> None:
        sender, timer = self._left_behind.pop(task)
        timer.cancel()
        task.add_done_callback(look_away)
        self._retire(sender, after=task)

    def _bury_sender(self, after: asyncio.Task[Any] | None = None, *, of: SdkSender | None = None) -> None:
        if self._sender is not None and of in (None, self._sender):
            self._retire(self._sender, after=after)
            self._forget_sender()

    def _retire(self, sender: SdkSender, after: asyncio.Task[Any] | None = None) -> None:
        """Bury a sender, when the last call that is under way on it has ended if there may be several."""
        if self._width == 1:
            self._graveyard.bury(sender, after=after)
            return
        if after is not None:
            after.cancel()
        if sender not in self._retired:
            self._retired.append(sender)
        self._bury_retired()

    def _bury_retired(self) -> None:
        used = {id(ticket.sender) for ticket in self._callers}
        used |= {id(sender) for sender, _ in self._left_behind.values()}
        for sender in [sender for sender in self._retired if id(sender) not in used]:
            self._retired.remove(sender)
            self._graveyard.bury(sender)

    def _forget_sender(self) -> None:
        self._sender = None
        self._is_proven = False
        self.last_success = None

    # -- the watchdog

    def _set_watchdog(self, when: float) -> None:
        if self._watchdog is not None:
            self._watchdog.cancel()
        self._watchdog_at = when
        self._watchdog = self._timers.call_at(when, self._look)

    def _look(self) -> None:
        self._watchdog, now = None, self._timers.now()
        is_late = now - self._watchdog_at >= ABSENCE
        for ticket in [ticket for ticket, ends in self._callers.items() if ends <= now]:
            self._callers[ticket] = now + _REMINDER
            if not is_late or (ticket.called_at or 0.0) < self._listened_at:
                ticket.expire()
        if is_late:
            self._listened_at = now
        if self._callers:
            self._set_watchdog(min(self._callers.values()))
