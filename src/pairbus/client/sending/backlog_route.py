"""The way to the backlog: wrap, split, choose a queue of the rotation, send, write the redirect record.

1. All senders of a client share one link to each backlog queue, and one rotation.
2. A queue that fails leaves the rotation, and so does one that is silent for as long as it may be, which a
   caller with little time does not wait for. All who wait for it choose another one, the failed message
   first, until one takes it, the caller's time is over, or the round is: each queue was tried once, or
   its time has gone by. Queues are behind one address, so where one does not answer
   the links to the others are opened side by side, and the first that opens gets the message. A link of the
   SDK is a connection: `_SIDE_BY_SIDE` of them are tried at a time. Where these are silent until the round
   is over, so are the rest, which nobody asks.
3. A link tells how large a message it takes. Nothing is wrapped before one has, so that what is too large is
   known before it is sent; what another queue refuses that takes less is wrapped anew.
4. Where no queue is left, they are *looked for* in the background, by opening a link now and then. The first
   that opens is back in the rotation, so that sends fail no longer than the secondary does.
5. A throttled secondary is waited for with the turn kept, so that order holds, until the round is over. All
   its queues are throttled alike: none leaves the rotation for it, and with the round that it has used up
   end those of all who wait behind it.
6. Where the order of sessions is kept, a call is bound to the queue in which its session waits: it tries that
   until its round is over, or no other one opens either, unless the queue is full, disabled or gone.
7. The SDK is given a single message as bytes: it takes many times as long as we do to write one. Those who
   wait in line go in one batch, see `rounds.py`.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator
from functools import cached_property, partial
from itertools import cycle
from typing import Any, Final, cast

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.exceptions import MessageSizeExceededError, OperationTimeoutError

from pairbus.client.state.records import Records
from pairbus.client.status import SendCounts
from pairbus.pairing.errors import BacklogUnavailableError, tell_taken
from pairbus.pairing.failures import Action, Fate, find_idle_closure, judge_backlog
from pairbus.pairing.headroom import BATCH_RESERVE
from pairbus.pairing.names import path_key
from pairbus.pairing.rotation import Rotation
from pairbus.sdk.failures import describe
from pairbus.sdk.privates import LinkLimits, link_limits
from pairbus.sdk.side import SdkSender, SdkSide, WrittenSender
from pairbus.timers import sleep_by

from .calls import EntityCall
from .link import SdkOperation, SendLink
from .message import Message
from .pinger import open_link
from .redirects import Redirects
from .rounds import Bond, Convoy, Round, Shipment, send_batch
from .surroundings import Surroundings
from .ticket import Ending, Ticket
from .wrapping import WrappedGroup, Wrapping

_DONE: Final = Ending.DONE  # see `link.py`
# Until a link has said otherwise: the Standard tier.
DEFAULT_LIMIT = 262_144
# How many queues are asked whether somebody has paired before us.
_ASKED_QUEUES = 2
# How many links are opened at a time after a queue was silent.
_SIDE_BY_SIDE = 16
# The first and the longest pause between two looks for a queue that answers, and how long each may take: the
# SDK needs a second to open a link.
_FIRST_LOOK, _LONGEST_LOOK = 1.0, 5.0
_LOOK_LIMIT = 3.0


class BacklogRoute:
    """The backlog queues of one client."""

    def __init__(
        self, side: SdkSide, queues: list[str], *, surroundings: Surroundings, records: Records
    ) -> None:
        self._side = side
        self._around = surroundings
        self._options = options = surroundings.options
        self._timers = surroundings.timers
        self._observers = surroundings.observers
        self._wall_clock = surroundings.wall_clock
        self._redirects = Redirects(surroundings, records)
        #: Hears of each attempt.
        self.observe = self._redirects.observe
        self._new_batch = partial(side.make_batch, ServiceBusMessageBatch)
        self.rotation = Rotation(queues, cool_down=options.rotation_cool_down, random=surroundings.random)
        self.queues = tuple(queues)
        #: The largest message that a backlog queue takes, as far as is known.
        self.limit = DEFAULT_LIMIT
        #: The largest batch.
        self.batch_limit = DEFAULT_LIMIT
        self._links: dict[str, SendLink] = {}
        self._limits: dict[str, LinkLimits] = {}
        # By path, until the limits change.
        self._wrappings: dict[str, Wrapping] = {}
        self._usable = len(queues)
        #: Called when a queue is there again after none was.
        self.on_return: Callable[[], object] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._look_pause = _FIRST_LOOK
        # Senders whose queue did not answer, until a link to another one is open.
        self._openings: dict[str, asyncio.Future[None]] = {}
        # Since when a queue has not answered: to a caller with little time that tells nothing yet.
        self._silent_since: dict[str, float] = {}
        # The last throttled answer, and how many rounds ended by such answers.
        self._throttling, self._throttled_rounds = "", 0
        self._convoys: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def send(
        self,
        path: str,
        call: EntityCall,
        *,
        counts: SendCounts,
        begun: Shipment | None = None,
        bond: Bond | None = None,
    ) -> None:
        """Have all messages of a call in backlog queues, in order, or raise; what was taken is on record when
        this returns, and how often the primary may have taken it before. Where no queue is left in the middle
        of it, the error says how many were taken. `begun` has set out with all; `bond` is for rule 6.
        """
        taken = 0
        if not self._limits:
            await self._on_a_queue(Round(path, call.deadline, bond=bond and Bond(bond.queue)))
        while taken < len(call.messages):
            wrapping = self._wrapping(path) if begun is None else begun.wrapping
            try:
                if begun is not None:
                    await self._ship(begun)
                    return
                for group in wrapping.wrap_all(call.messages[taken:], call.when):
                    await self._ship(Shipment(self, call, wrapping, group, counts, bond))
                    taken += len(group.messages)
            except Exception as error:
                is_narrower = self.limit < wrapping.limit or self.batch_limit < wrapping.batch_limit
                if is_narrower and isinstance(error, MessageSizeExceededError):
                    begun = None
                    continue  # for the queue that it came to, of which nothing was known
                if taken:
                    tell_taken(error, taken, len(call.messages))
                raise

    def set_out(self, path: str, call: EntityCall, *, counts: SendCounts) -> Shipment | None:
        """Begin to send a call of one message in place, if that can be done at once (`Router.set_out`). Its
        caller has the SDK send, and says how that ended: `arrived`, or `send` with what had `begun`.
        """
        sender, now = path_key(path), self._timers.now()
        if sender in self._openings:
            return None
        queue = self.rotation.choose(sender, now)
        link = self._links.get(queue)
        if link is None or link.is_busy or queue not in self._limits:
            return None
        wrapping = self._wrapping(path)
        wrapped = wrapping.enclose(call.written[0]) if call.is_plain and call.written else None
        if wrapped is None:
            wrapped = wrapping.wrap(call.messages[0], call.when, alone=True)
        wanted = Shipment(self, call, wrapping, WrappedGroup([wrapped]), counts)
        if not link.set_out(wanted, now, now + self._options.send_timeout):
            return None
        wanted.set_out(now, self._options.send_timeout)
        wanted.tried.add(queue)
        wanted.queue = queue
        return wanted

    def arrived(self, wanted: Shipment, queue: str) -> Awaitable[None] | None:
        """The SDK has sent what had set out. What is to be waited for until it is on record, if anything."""
        link, now = self._links[queue], self._timers.now()
        link.arrived(wanted, now)
        try:
            self.observe(wanted, queue, _DONE)
        finally:
            link.pass_turn()
        self._succeeded(queue, now)
        return self._redirects.record_at_once(wanted, queue)

    @cached_property
    def _as_bytes(self) -> bool:
        """Whether rule 7 holds; our own senders write messages by themselves."""
        return self._side.takes_written

    def _wrapping(self, path: str) -> Wrapping:
        found = self._wrappings.get(path)
        if found is None:
            found = self._wrappings[path] = Wrapping(
                path,
                limit=self.limit,
                batch_limit=self.batch_limit,
                new_batch=self._new_batch,
                compresses=self._options.compress_oversized,
                clock=self._wall_clock,
                as_bytes=self._as_bytes,
            )
        return found

    async def note_unanswered(
        self, path: str, messages: list[Message], *, times: int, deadline: float | None
    ) -> None:
        """Put on record how often messages that wait in the spool may have been taken already. No queue is
        known to have them: the first one stands for the pair.
        """
        await self._redirects.record_unanswered(
            path, self.queues[0], messages, times=times, deadline=deadline
        )

    async def find(self, deadline: float | None) -> list[str]:
        """Which of the first queues are there: those to which a link opens."""
        limit, asked = self._options.send_timeout, self.queues[:_ASKED_QUEUES]
        endings = await asyncio.gather(*(self._open(queue, Ticket(), limit, deadline) for queue in asked))
        return [queue for queue, ending in zip(asked, endings, strict=True) if ending is Ending.DONE]

    def wake(self) -> None:
        """Let all who wait look again: the client has been closed, or has faulted."""
        for link in self._links.values():
            link.wake()
            link.send_away()

    def evacuate(self) -> None:
        """Call everybody away, from calls under way as well."""
        for link in self._links.values():
            link.evacuate()

    async def close(self, grace: float) -> None:
        """Close all links; what waits for one is called away. None is opened any more."""
        self._is_closed = True
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait({self._looking})
        await asyncio.gather(*(link.close(grace) for link in self._links.values()))

    # -- sending

    def transmit(self, wanted: Shipment, sender: SdkSender) -> Awaitable[Any]:
        """Have the SDK send it: rule 7."""
        if wanted.parcel is not None and wanted.parcel.payload is not None:  # as nearly always
            return cast(WrittenSender, sender).send_written(wanted.parcel.payload)
        if wanted.batch is not None:
            return sender.send_messages(wanted.batch)
        if len(wanted.messages) > 1:
            return send_batch(sender, wanted.messages[0].routing, wanted.payloads)
        (message,) = wanted.messages
        if wanted.wrapping.as_bytes:  # here, where what cannot be written fails as the SDK's send would
            payload = message.encode(self.batch_limit - BATCH_RESERVE)
            if payload is not None:
                return cast(WrittenSender, sender).send_written(payload)
        return sender.send_messages(message.native)

    async def _ship(self, wanted: Shipment) -> None:
        queue: str | None = None
        try:
            queue = await self._on_a_queue(wanted)
        finally:
            await self._redirects.record(wanted, queue)

    async def _on_a_queue(self, wanted: Round) -> str:
        """Have something done on a queue of the rotation; the queue that did it."""
        sender, bond = path_key(wanted.path), wanted.bond
        queue = wanted.queue
        while True:
            if queue is None:
                now = self._timers.now()
                self._check(wanted, now)
                queue = None if bond is None else self._bound_queue(wanted, bond, now)
                if queue is None and sender in self._openings:
                    await self._wait_for_opening(sender, wanted)
                    continue
                queue = queue or self.rotation.choose(sender, now, tried=wanted.tried)
                wanted.tried.add(queue)
            ending = await self._try_queue(queue, wanted)
            if ending is _DONE:
                if bond is not None:
                    bond.queue = queue
                    self.rotation.restore(queue)
                self._succeeded(queue, self._timers.now())
                return queue
            failed, queue = queue, None
            if bond is not None and bond.queue == failed and await self._keeps_to(failed, wanted, bond):
                continue
            is_silent = ending is Ending.OUT_OF_TIME and wanted.stops_at > self._timers.now()
            if is_silent and sender not in self._openings:  # or somebody has begun it already
                await self._open_others(sender, wanted)

    def _bound_queue(self, wanted: Round, bond: Bond, now: float) -> str | None:
        """Rule 6. While the queue is out of the rotation, the time of the round runs."""
        if (queue := bond.queue) is not None and not self.rotation.is_usable(queue, now):
            if not self.rotation.usable(now):
                raise self.rotation.exhausted(now)
            wanted.set_out(now, self._options.send_timeout)
        return queue

    async def _keeps_to(self, queue: str, wanted: Round, bond: Bond) -> bool:
        """After a failure of the queue that a call is bound to: whether it tries that again."""
        if wanted.error is not None and bond.is_broken_by(describe(wanted.error), wanted.path):
            return False
        now = self._timers.now()
        wanted.failures += 1
        self._link(queue).rest(self._options.retry_delay_after(wanted.failures))
        wanted.set_out(now, self._options.send_timeout)  # also if it stood in line for others
        for other in self.rotation.usable(now) if now < wanted.stops_at else ():
            if other == queue or await self._open_or_remove(other, wanted.stops_at):
                break
        return True

    async def _try_queue(self, queue: str, wanted: Round) -> Ending:
        """One queue: DONE, or why another one has to be tried. Raises what is the caller's to see."""
        link = self._link(queue)
        has_set_out, wanted.queue = wanted.queue is not None, None
        if not has_set_out:
            wanted.begin()
            if not link.take_free_turn():
                throttled = self._throttled_rounds
                ending = await self._wait_in_line(link, queue, wanted)
                if ending is not Ending.TURN:
                    if throttled != self._throttled_rounds and ending is Ending.ABANDONED:
                        raise self._throttled(link)
                    return ending
            wanted.set_out(self._timers.now(), self._options.send_timeout)
        try:
            while True:
                if not has_set_out and (left := await self._rest_out(link, wanted)) is not None:
                    return left
                met: Ending | None = None
                make = link.resume if has_set_out else link.call
                has_set_out = False
                try:
                    met = await make(
                        wanted,
                        self._learning(queue, wanted.transmit),
                        limit=self._options.send_timeout,
                        deadline=wanted.stops_at,
                    )
                finally:  # also if the caller is cancelled: the message may have been taken
                    wanted.tell(queue, met)
                if met is _DONE or self._leaves(queue, link, wanted, met):
                    return met
        finally:
            link.pass_turn()

    async def _rest_out(self, link: SendLink, wanted: Round) -> Ending | None:
        """With the turn: wait for the end of a rest. Why another queue has to be tried, if there is no time
        left for this one.
        """
        rest = await link.rest_out(wanted, wanted.stops_at) if link.is_resting else None
        if rest is Ending.ABANDONED:
            return rest
        if self._timers.now() >= wanted.stops_at or rest is Ending.OUT_OF_TIME:
            self._end_if_throttled(link, wanted)
            return Ending.OUT_OF_TIME
        return None

    async def _wait_in_line(self, link: SendLink, queue: str, wanted: Round) -> Ending:
        """TURN, or how it ended without one: called away, or in a convoy."""
        ending: Ending | None = None
        if wanted.bond is None or self.rotation.is_usable(queue, self._timers.now()):
            wanted.halt(self._timers.now())
        try:
            ending = await link.wait_turn(wanted, None if wanted.stops_at == math.inf else wanted.stops_at)
            return ending
        finally:
            wanted.leave_convoy(ending)
            wanted.tell(queue, ending)

    def _end_if_throttled(self, link: SendLink, wanted: Round) -> None:
        """Rule 5: the link rests for longer than the round goes on, and not for the sake of rule 6."""
        if not wanted.failures and link.rests_until >= wanted.stops_at == wanted.ends:
            self._throttled_rounds += 1
            link.send_away()
            raise self._throttled(link)

    def _throttled(self, link: SendLink) -> BacklogUnavailableError:
        wait = max(link.rests_until - self._timers.now(), 0.0)
        return BacklogUnavailableError(len(self.queues), retry_after=wait, last_failure=self._throttling)

    # -- several at once

    def _lead(self, queue: str, link: SendLink) -> bool:
        """Send the first in line on their way together; False if there are not several."""
        if queue not in self._limits:
            return False
        now, limit = self._timers.now(), self._options.send_timeout
        convoy = Convoy(self.batch_limit - BATCH_RESERVE, now=now, send_timeout=limit)
        link.take_along(convoy.takes)
        if len(convoy.rounds) < 2:
            link.readmit(convoy.disband())
            return False
        for each in convoy.rounds:
            each.set_out(now, limit)
        link.take_turn()
        task = asyncio.get_running_loop().create_task(self._send_convoy(link, queue, convoy))
        self._convoys.add(task)
        task.add_done_callback(self._convoys.discard)
        return True

    async def _send_convoy(self, link: SendLink, queue: str, convoy: Convoy) -> None:
        ending = Ending.ABANDONED
        try:
            ending = await link.call(convoy, convoy.transmit, limit=convoy.limit, deadline=None)
        finally:
            self._convoy_ended(link, queue, convoy, ending)
            link.pass_turn()

    def _convoy_ended(self, link: SendLink, queue: str, convoy: Convoy, ending: Ending) -> None:
        """Let everybody in it go on, in order, before those behind it."""
        rounds = convoy.disband()
        action = Action.REMOVE
        if ending is Ending.FAILED and convoy.error is not None and not self._around.sides.have_ended:
            action = judge_backlog(describe(convoy.error), self._options).action
        if action is Action.REMOVE:
            for each in rounds:
                each.end(ending)
        else:
            now = self._timers.now()
            for each in rounds:
                each.tell(queue, ending)
                each.begin()
                each.halt(now)
                if action is Action.RAISE:
                    each.parcel = None
            link.readmit(rounds)
        if ending is not Ending.DONE and action is not Action.RAISE and not self._around.sides.have_ended:
            self._leaves(queue, link, convoy, ending)

    # -- a queue that does not answer

    async def _open_others(self, sender: str, wanted: Round) -> None:
        """Open links to the queues that are left; the sender goes on with the first that opens."""
        now, ends = self._timers.now(), wanted.stops_at
        left = [queue for queue in self.rotation.usable(now) if queue not in wanted.tried]
        waiting = iter(left)
        loop = asyncio.get_running_loop()
        self._openings[sender] = followers = loop.create_future()
        pending = {loop.create_task(self._open_one_of(waiting, ends)) for _ in left[:_SIDE_BY_SIDE]}
        try:
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for opened in filter(None, [task.result() for task in done]):
                    self.rotation.move(sender, opened)
                    return
            rest = list(waiting)
            if set(rest).issuperset(self.rotation.usable(self._timers.now())):  # those asked have left
                for queue in rest:
                    self._remove(queue, self._link(queue), "no answer from any of those asked")
        finally:
            for task in pending:
                task.cancel()
            del self._openings[sender]
            followers.set_result(None)

    async def _open_one_of(self, waiting: Iterator[str], ends: float) -> str | None:
        """Try one queue after the other until a link opens: the queue."""
        for queue in waiting:
            if await self._open_or_remove(queue, ends):
                return queue
            if self._timers.now() >= ends:
                break
        return None

    async def _wait_for_opening(self, sender: str, wanted: Round) -> None:
        """What was behind the failed message stays behind it, and follows it to its queue."""
        wanted.halt(self._timers.now())
        waiter = wanted.waiter(asyncio.get_running_loop())
        self._openings[sender].add_done_callback(lambda _: wanted.end(Ending.TURN))
        timer = None if wanted.deadline is None else self._timers.call_at(wanted.deadline, wanted.expire)
        try:
            await waiter
        finally:
            if timer is not None:
                timer.cancel()

    async def _open_or_remove(self, queue: str, ends: float) -> bool:
        """Whether a link opens; a queue where it does not leaves the rotation."""
        ticket = Ticket()
        ending = await self._open(queue, ticket, ends - self._timers.now(), ends)
        return ending is Ending.DONE or not self._leaves(queue, self._link(queue), ticket, ending)

    def _leaves(self, queue: str, link: SendLink, ticket: Ticket, ending: Ending) -> bool:
        """After a failed call: whether to try another queue; False to try this one again."""
        called_at = ticket.called_at
        if ending is Ending.ABANDONED or called_at is None:
            return True
        if ticket.error is None:
            silent_for = self._timers.now() - self._silent_since.setdefault(queue, called_at)
            if silent_for >= min(self._options.send_timeout, _LOOK_LIMIT):
                self._remove(queue, link, f"no answer for {silent_for:.3g} s")
            return True
        failure = describe(ticket.error)
        verdict = judge_backlog(failure, self._options)
        if verdict.action is Action.RAISE:
            self._check_sides()  # where the side has ended, this tells why
            raise ticket.error
        if verdict.action is Action.THROTTLED:
            self._check_sides()
            link.rest(verdict.wait)
            self._throttling = failure.summary
            return False
        link.discard_after(ticket)
        self._throttling = failure.summary
        self._remove(queue, link, failure.summary)
        return True

    def _check(self, wanted: Round, now: float) -> None:
        self._check_sides()
        if wanted.deadline is not None and now >= wanted.deadline:
            raise OperationTimeoutError(
                message="The backlog did not take the message in the time given to the call."
            )
        if now >= wanted.ends:
            raise self.rotation.exhausted(now)

    def _check_sides(self) -> None:
        if self._around.sides.have_ended:
            self._around.sides.check("primary", "secondary")

    def _learning(self, queue: str, operation: SdkOperation) -> SdkOperation:
        """The operation, and before it the question how much the link takes, if nobody has asked yet."""
        if queue in self._limits:
            return operation

        async def learn_and_perform(sender: SdkSender) -> Any:
            batch = await sender.create_message_batch()  # opens the link
            size = int(batch.max_size_in_bytes)
            self._limits[queue] = link_limits(sender) or LinkLimits(size, size)
            self.limit = min(limits.message for limits in self._limits.values())
            self.batch_limit = min(limits.batch for limits in self._limits.values())
            self._wrappings.clear()
            return await operation(sender)

        return learn_and_perform

    async def _open(self, queue: str, ticket: Ticket, limit: float, deadline: float | None) -> Ending:
        if self._is_closed:
            return Ending.ABANDONED
        operation = self._learning(queue, open_link)
        return await self._link(queue).run(ticket, operation, limit=limit, deadline=deadline)

    # -- the rotation

    def _remove(self, queue: str, link: SendLink, reason: str) -> None:
        now = self._timers.now()
        self._silent_since.pop(queue, None)
        if queue not in self.rotation.usable(now):
            return  # by another call that was under way at the same time
        self.rotation.fail(queue, now, reason=reason)
        self._tell_rotation(now)
        link.send_away()
        if not self.rotation.usable(now) and self._looking is None and not self._is_closed:
            self._looking = asyncio.get_running_loop().create_task(self._look_for_queues())

    async def _look_for_queues(self) -> None:
        """Rule 4: open links, one at a time, until one opens or a cool-down is over."""
        queues, limit = cycle(self.queues), min(_LOOK_LIMIT, self._options.send_timeout)
        try:
            while not self.rotation.usable(self._timers.now()):
                await sleep_by(self._timers, self._look_pause)
                self._look_pause = min(self._look_pause * 2, _LONGEST_LOOK)
                queue = next(queues)
                if await self._open(queue, Ticket(), limit, None) is Ending.DONE:
                    self.rotation.restore(queue)
                else:
                    self._link(queue).discard()
        finally:
            self._looking = None
        self._tell_rotation(self._timers.now())
        if self.on_return is not None:
            self.on_return()

    def _succeeded(self, queue: str, now: float) -> None:
        self._look_pause = _FIRST_LOOK
        self._silent_since.pop(queue, None)
        self.rotation.succeed(queue, now)
        if self._usable < len(self.queues):
            self._tell_rotation(now)

    def _tell_rotation(self, now: float) -> None:
        usable = len(self.rotation.usable(now))
        if usable != self._usable:
            self._usable = usable
            self._observers.tell(lambda observer: observer.rotation_changed(usable, len(self.queues)))

    def _link(self, queue: str) -> SendLink:
        link = self._links.get(queue)
        if link is None:
            link = self._links[queue] = SendLink(
                lambda: self._side.open_sender(queue),
                graveyard=self._around.graveyard,
                timers=self._timers,
                width=self._side.width,
                idle_closure=self._idle_closure,
                lead=partial(self._lead, queue) if self._as_bytes else None,
            )
        return link

    def _idle_closure(self, error: BaseException, idle_for: float) -> Fate | None:
        return find_idle_closure(describe(error), self._options, idle_for=idle_for)
