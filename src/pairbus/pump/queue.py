"""The pump of one backlog queue: a shell that carries out what its lanes plan.

Theory of operation
1. One task receives. Each step of a plan is a task of its own. Whatever has happened, `_advance` asks the
   lanes what may be done next and starts it; it does not wait for anything.
2. The order of safety: the primary has confirmed, then the receipt is on the disk, then the message is
   completed. A crash in between sends a message twice at worst.
3. A message whose completion fails (its lock was lost) comes again, or is fetched if it was put aside. Its
   number is remembered from when the primary has it, so that it is completed then and not sent a second time.
   Where it fails for another reason it is tried again while the lock lasts, which outlives its link. Who ends
   with such messages fetches those that were put aside once more; the others it leaves to the next pump,
   which knows nothing of them and sends them again.
4. What was put aside by others, or is locked by them, is looked for where deliveries leave a gap, and beyond
   the last one when the queue gives nothing more (see `intake`). A drain asks then anyway; who stays asks
   once, when the link opens, whether there is anything at all, and if so waits a moment for what comes of it
   before the long poll begins.
5. The end: credit is taken back, what waits is given back, what is on the way is awaited and completed.
6. A queue that cannot be read is tried again after a pause, and disturbs nobody else.
7. A drain asks for what there is, until the queue says that there is no more, and then whether anything is
   left. As long as something is, or where a transport cannot ask like that, it waits for a while, which
   grows, so that a thousand queues do not spend their time on asking; and it begins with more where there
   are many, since each is opened and served in its turn. Nothing is asked while a message is in hand; when
   the last one is done with, the queue is asked at once. Of many queues some begin at a time (see `turns`).
"""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Iterable, Sequence
from math import ceil, inf
from operator import attrgetter
from typing import Any

from pairbus import conditions
from pairbus.plumbing.tasks import wait_at_most
from pairbus.plumbing.wording import counted
from pairbus.wire.errors import CONNECTION_LOST, SUSPECTED, UNANSWERED, TransportError

from .asking import Asking
from .burials import Burials
from .doubts import Doubts
from .intake import PEEK_PAGE, Intake, Letter, NumberGap, Stray
from .judgement import Remedy, judge
from .lanes import Lanes
from .parcel import Parcel, ReceiptBook, deliveries_of
from .rate import SHORTEST_LOCK, Pace
from .station import Station
from .steps import Bury, Defer, Fetch, LaneStep, Recheck, Renew, Send
from .transport import BacklogSource, Delivery, Refusal, Unit
from .turns import Turn

log = logging.getLogger(__name__)
# Rule 7: a message that somebody else had under lock is noticed so soon after it comes back.
_LONGEST_QUIET = 1.0
# What one of many queues takes of a pump and of a namespace before it has given anything.
_TURN = 0.001
# How long a receive waits while something is in hand: what ends that calls the receive off.
_BUSY_QUIET = 5.0
# And so soon while a drain waits for paths that are down.
_PATIENT_QUIET = 30.0
# Rule 4: how long a queue that holds something must give nothing before it is looked at.
_FIRST_QUIET = 1.0
# Rule 3: a completion that ends like this is not tried again. And the longest pause before another try.
_NO_LOCK = {conditions.MESSAGE_LOCK_LOST, conditions.SESSION_LOCK_LOST, conditions.MESSAGE_NOT_FOUND}
_LONGEST_PAUSE = 5.0
_end_of_lock = attrgetter("locked_until")


class QueuePump:
    """Moves the messages of one backlog queue."""

    def __init__(self, queue: str, source: BacklogSource, station: Station) -> None:
        self.queue = queue
        self.lanes: Lanes[Parcel] = Lanes(station.conditions)
        self._source = source
        self._station = station
        self._options = station.options
        self._book = ReceiptBook(station.pair, queue, station.receipts.writer)
        self._pace = Pace(lock_duration=SHORTEST_LOCK, most=station.options.max_in_hand)
        self._intake = Intake(self.lanes, self._pace, station)
        self._burials = Burials(source, self._book, station)
        self._doubts = Doubts(self._book, station, self._start)
        self._tasks: set[asyncio.Task[None]] = set()
        self._asking = Asking()
        self._hopes = station.options.drain  # rule 7: what there is has not all come yet, as far as is known
        self._rested = asyncio.Event()  # nothing is in hand any more, or the pump is to stop
        self._quiet = station.options.drain_wait + station.queues * _TURN  # rule 7
        self._has_more = False  # rule 4: something may lie beyond the last delivery
        self._room = asyncio.Event()
        self._counted = 0  # what the station knows of what we have in hand
        self._finishing = 0  # messages that the primary has, and whose completion is on the way
        self._wake: asyncio.TimerHandle | None = None
        self._is_stopping = False
        self._failures = 0
        self._is_active = False
        self._turn = Turn(station.turns, source)
        station.conditions.listen(lambda path: self._advance_soon())

    async def run(self) -> None:
        """Pump until stopped, or in a drain until there is nothing more to do."""
        self._station.note_asking(1)
        try:
            if self._options.drain:
                await self._turn.take()
            while not self._is_stopping:
                try:
                    await self._serve()
                    break
                except TransportError as error:
                    self._turn.end()
                    self._note_failure(error)
                    if self._options.drain and self._failures > 3 and self._has_given_up():
                        break
                    doublings = min(self._failures - 1, 10)  # days of failures must not overflow a float
                    await self._nap(min(30.0, self._options.first_back_off * 2**doublings))
        finally:
            await self._finish()

    def stop(self) -> None:
        """End cleanly: receive no more, and let what is on the way arrive."""
        self._is_stopping = True
        self._room.set()
        self._rested.set()
        self._asking.call_off()

    # -- receiving

    async def _serve(self) -> None:
        self._intake.reopen()
        if self._options.scan and not self._options.drain:
            async with self._station.looking:
                self._has_more = bool(await self._asking.ask(self._source.peek(0, 1)))
        if self._failures:
            self._advance()
        while not self._is_stopping:
            room = self._credit()
            if room <= 0:
                self._turn.end()
                self._room.clear()
                with self._station.standing():
                    await self._room.wait()
                continue
            granted = self._station.entrance.admit(self.queue, room)
            if not granted:
                await self._nap(self._station.entrance.wait())
                continue
            deliveries = await self._receive(granted)
            self._station.entrance.note_arrivals(self.queue, len(deliveries))
            if deliveries or not self._options.drain:
                self._note_success()
            if deliveries:
                await self._take_batch(deliveries)
            elif not self._is_stopping and await self._is_over():
                return

    async def _take_batch(self, deliveries: list[Delivery]) -> None:
        """Nothing of them stays here: they go, one by one, when they are done with."""
        self._station.locked.discard(self.queue)
        self._quiet = self._options.drain_wait
        self._hopes = self._options.drain
        self._note_activity(True)
        letters = self._intake.read(deliveries)
        if self._options.scan and (gap := self._intake.find_gap(letters)) is not None:
            await self._look_at(gap, deliveries)
        self._take_in(letters)
        self._count()
        self._turn.note(len(deliveries))
        self._advance()

    async def _is_over(self) -> bool:
        """Nothing has come: whether that is the end of a drain."""
        self._turn.end()
        self._note_activity(bool(self.lanes.held))
        self._pace.rest()
        if self._hopes:
            self._hopes = False
            await self._rest()
        if self._options.drain and await self._is_drained():
            return True
        self._quiet = min(2 * self._quiet, self._longest_quiet())
        if self._has_more:
            await self._intake.look_beyond(self._source)
            self._has_more = False
            self._advance()
        return False

    async def _look_at(self, gap: NumberGap, deliveries: list[Delivery]) -> None:
        """Rule 4. If that cannot be done now, what came behind the gap goes back and comes again."""
        try:
            await self._intake.look_through(self._source, gap)
        except (TransportError, asyncio.CancelledError):
            with contextlib.suppress(TransportError):
                await self._source.release(deliveries)
            raise

    def _has_given_up(self) -> bool:
        is_patient = self._options.patience > 0 and self._station.patience_left > 0
        return not self.lanes.held and not is_patient

    def _longest_quiet(self) -> float:
        # A queue that only waits for a path is woken when that is back: it need not ask often.
        if self._station.is_patient(self.lanes.deferred_by_path()):
            return max(_LONGEST_QUIET, min(_PATIENT_QUIET, self._station.patience_left))
        return max(_LONGEST_QUIET, self._options.drain_wait, 10 * _TURN * self._station.queues)

    async def _receive(self, room: int) -> list[Delivery]:
        wait = self._options.poll
        if self._options.drain:
            # Who hopes is not called away by the end of what is in hand, and need not wait for it either.
            is_soon = self._is_idle or self._hopes
            wait = self._quiet if is_soon else max(self._quiet, _BUSY_QUIET)
        if self._has_more:
            wait = min(wait, _FIRST_QUIET)
        pieces = ceil(wait / self._station.longest_wait)
        receive = self._source.receive(room, wait / max(1, pieces), at_once=self._hopes)
        return await self._asking.ask(receive)

    async def _rest(self) -> None:
        """Wait until nothing is in hand any more, for a while."""
        if self._is_idle or self._is_stopping:
            return
        self._rested.clear()
        with self._station.standing():
            await wait_at_most(self._rested, _BUSY_QUIET)

    def _note_activity(self, is_active: bool) -> None:
        self._station.active += is_active - self._is_active
        self._is_active = is_active

    def _credit(self) -> int:
        station, lanes, own = self._station, self.lanes, self._count()
        # A queue always gets its least, so that none starves while others are full.
        credit = min(self._pace.credit(station.share()), max(self._pace.least, own + station.room()))
        room = credit - own
        if lanes.held:
            average = max(1, lanes.held_bytes // lanes.held)
            room = min(room, (self._options.max_bytes_in_hand - lanes.held_bytes) // average)
        return room

    def _count(self) -> int:
        """What is in hand; the station is told."""
        own = self.lanes.held + self._finishing
        if own != self._counted:
            change, self._counted = own - self._counted, own
            self._station.count_in_hand(change)
        return own

    @property
    def _is_idle(self) -> bool:
        """Whether nothing is in hand and nothing is under way."""
        return not (self.lanes.held or self._finishing or self._tasks)

    async def _is_drained(self) -> bool:
        """Whether nothing is left to do: nothing in hand, and all that is on the queue is put aside."""
        if not self._is_idle:
            return False
        if not self.lanes.is_settled(self._station.monotonic()):
            return False
        number, most = 0, 1  # the first one shows most often that there is still something to do
        scheduled = 0
        while page := await self._source.peek(number, most):
            self._note_success()
            most = PEEK_PAGE
            due = [one for one in page if not one.is_scheduled]
            scheduled += len(page) - len(due)
            if any(not one.is_deferred for one in due):
                self._station.locked.add(self.queue)
                return False  # locked by somebody; it comes when that lock ends
            if any(not self.lanes.knows(one.sequence_number) for one in due):
                await self._intake.look_through(self._source, NumberGap())
                self._advance()
                return False
            number = page[-1].sequence_number + 1
        self._note_success()
        self._station.locked.discard(self.queue)
        if scheduled:  # by no client of ours
            told = f"{counted(scheduled, 'message is', 'messages are')} scheduled there for a later time"
            self._station.tally.queue_errors[self.queue] = told
        if self._station.is_patient(self.lanes.deferred_by_path()):
            return False
        # A path may have been tried meanwhile; then what comes of that is waited for.
        return self._is_idle and self.lanes.is_settled(self._station.monotonic())

    # -- steps

    def _take_in(self, letters: Iterable[Letter], *, fetched: bool = False) -> None:
        for stray in self._intake.take_in(letters, fetched=fetched):
            self._finishing += 1
            self._start(self._settle_stray(stray))
        if suspects := self._intake.take_suspects():
            self._doubts.note(suspects)

    async def _settle_stray(self, stray: Stray) -> None:
        try:
            number = stray.mark.sequence_number
            if stray.is_moved:
                (error,) = await self._source.complete([stray.delivery])
                if error is None:
                    self._intake.unsettled.discard(number)
            else:
                error = await self._burials.bury_stray(stray)
            if error is not None:
                self._note_unsettled(number, is_deferred=stray.is_fetched)
        finally:
            self._finishing -= 1

    def _note_unsettled(self, number: int, *, is_deferred: bool) -> None:
        """A message that is done with could not be settled. It comes by itself, unless it was put aside."""
        if is_deferred:
            self.lanes.note_unsettled(number)
            self._advance_soon()

    def _advance_soon(self) -> None:
        asyncio.get_running_loop().call_soon(self._advance_unasked)

    def _advance_unasked(self) -> None:
        """Nobody waits for this: an error would be the loop's, and the queue would stand still."""
        try:
            self._advance()
        except Exception as error:  # noqa: BLE001 - it is raised where the run is waited for
            self._station.fail(error)

    def _advance(self) -> None:
        if self._is_stopping:
            return
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        now = self._station.monotonic()
        turnstile = self._station.turnstile
        room = turnstile.room(self._advance_unasked)
        for step in self.lanes.plan(now, room):
            if isinstance(step, Send):
                self._take_room(step, is_limited=room is not None)
            self._start(self._perform(step))
        if room is not None and room.is_short:
            turnstile.wait(self._advance_unasked)
        due = self.lanes.wake_at(now)
        if due != inf:
            delay = max(0.01, due - now)
            self._wake = asyncio.get_running_loop().call_later(delay, self._advance_unasked)
        self._room.set()

    def _take_room(self, step: Send[Parcel], *, is_limited: bool) -> None:
        size = sum(held.size for unit in step.units for held in unit) if is_limited else 0
        self._station.limiter.take(sum(map(len, step.units)), size)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._station.note_end(task)
        self._count()
        if self._options.drain and self._is_idle:
            self._rested.set()
            if not self._hopes:
                self._asking.call_off()
        self._room.set()

    async def _perform(self, step: LaneStep[Parcel]) -> None:
        match step:
            case Send():
                await self._send(step.path, step.units)
                return
            case Defer():
                await self._defer(step)
            case Renew():
                await self._renew(step)
            case Fetch():
                await self._fetch(step)
            case Recheck():
                await self._recheck(step)
            case Bury():
                await self._bury(step)
        self._advance()

    async def _send(self, path: str, units: list[list[Parcel]]) -> None:
        fresh, begun = self._still_locked(units), self._station.now()
        if not fresh:
            self._advance()
            return
        outcomes = await self._station.destination(path).send(
            [Unit([parcel.opened.payload for parcel in unit], unit[0].session_id) for unit in fresh]
        )
        now = self._station.monotonic()
        self._station.tally.of(path).note_transfer(begun, self._station.now())
        moved: list[Parcel] = []
        for unit, error in zip(fresh, outcomes, strict=True):
            for held in unit:
                held.attempts += 1
            if error is None:
                moved += unit
            else:
                self._refused(path, unit, error, now)
        if moved:
            self._station.conditions.sent(path, now)
            self._station.headway_at = now
            self.lanes.moved(moved)
            # At once: a lock may have ended, and the message be on its way to us, before a completion fails.
            self._intake.unsettled.update(held.number for held in moved)
            self._intake.unrecorded.update((held.number, held) for held in moved)
            self._finishing += len(moved)
            self._pace.count(len(moved), now)
        self._advance()
        if moved:
            await self._complete(path, moved)

    def _still_locked(self, units: list[list[Parcel]]) -> list[list[Parcel]]:
        """Those whose locks last; the others go back to their lanes, which renew them."""
        now = self._station.monotonic()
        deadline = now + self.lanes.margin / 2
        fresh = []
        for unit in units:
            if (unit[0] if len(unit) == 1 else min(unit, key=_end_of_lock)).locked_until > deadline:
                fresh.append(unit)
            else:
                self.lanes.unsent(unit, now)
        return fresh

    def _refused(self, path: str, unit: list[Parcel], error: TransportError, now: float) -> None:
        judgement = judge(error)
        if error.condition in (UNANSWERED, CONNECTION_LOST, SUSPECTED) and not error.is_unsent:
            self._station.tally.unknown += len(unit)
            self._doubts.note(unit)
        if judgement.verdict is Remedy.POISON:
            self._station.conditions.sent(path, now)  # it answers
            if len(unit) == 1:
                self._start(self._bury(Bury(list(unit), judgement)))
                return
        else:
            self._station.note_trouble(path, judgement, now)
        self._station.tally.retries += len(unit)
        self.lanes.refused(unit, judgement)

    async def _complete(self, path: str, moved: list[Parcel]) -> None:
        """Rule 2: receipts, then completion."""
        now = self._station.now()
        try:
            await self._station.record([self._book.moved(parcel, now) for parcel in moved])
            recorded = await self._doubts.written(moved)
            for held in recorded:
                self._intake.unrecorded.pop(held.number, None)
            lost = await self._complete_all(recorded)
            tally = self._station.tally.of(path)
            for held in lost:
                self._station.tally.lost_locks += 1
                self._note_unsettled(held.number, is_deferred=held.was_deferred)
            tally.bytes += sum(held.size for held in moved)
            tally.moved += len(moved)
        finally:
            self._finishing -= len(moved)

    async def _complete_all(self, moved: list[Parcel]) -> list[Parcel]:
        """Rule 3: those that are not known to be completed."""
        lost: list[Parcel] = []
        left, pause = moved, self._options.first_back_off
        while True:
            outcomes = await self._outcomes(
                self._source.complete([parcel.delivery for parcel in left]), len(left)
            )
            is_last, now = self._is_stopping, self._station.monotonic()
            again: list[Parcel] = []
            for held, error in zip(left, outcomes, strict=True):
                if error is None:
                    self._intake.unsettled.discard(held.number)
                elif is_last or error.condition in _NO_LOCK or held.locked_until < now + pause:
                    lost.append(held)
                else:
                    again.append(held)
            if again:
                await self._nap(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            # What has come again meanwhile was completed as a stray.
            left = [held for held in again if held.number in self._intake.unsettled]
            if not left:
                return lost

    async def _defer(self, step: Defer[Parcel]) -> None:
        messages = await self._doubts.written(step.messages)
        outcomes = await self._outcomes(self._source.defer(deliveries_of(messages)), len(messages))
        now = self._station.monotonic()
        for held, error in zip(messages, outcomes, strict=True):
            if error is None:
                self.lanes.put_aside([held])
                self._station.tally.of(held.path).note_waiting(held.mark.enqueued_ms / 1000)
            else:
                self._lost(held, now)

    def _lost(self, held: Parcel, now: float) -> None:
        self._station.tally.lost_locks += 1
        self.lanes.lost(held, now)

    async def _outcomes(self, work: Coroutine[Any, Any, list[Refusal]], count: int) -> list[Refusal]:
        try:
            return await work
        except TransportError as error:
            return [error] * count

    async def _renew(self, step: Renew[Parcel]) -> None:
        deliveries = deliveries_of(step.messages)
        renewed: Sequence[float | TransportError]
        try:
            renewed = await self._source.renew(deliveries)
        except TransportError as error:
            renewed = [error] * len(deliveries)
        now = self._station.monotonic()
        for held, until in zip(step.messages, renewed, strict=True):
            if isinstance(until, TransportError):
                self._lost(held, now)
            else:
                self.lanes.renewed(held, self._intake.lock_end(until))

    async def _fetch(self, step: Fetch) -> None:
        try:
            found = await self._source.fetch(step.numbers)
            self._note_success()
        except TransportError as error:
            self._note_failure(error)
            await self._nap(self._options.first_back_off)  # or the next plan would ask again at once
            found = [error] * len(step.numbers)
        now = self._station.monotonic()
        fetched = self._intake.read(one for one in found if isinstance(one, Delivery))
        self._take_in(fetched, fetched=True)
        for number, one in zip(step.numbers, found, strict=True):
            if isinstance(one, TransportError):
                is_missing = one.condition == conditions.MESSAGE_NOT_FOUND
                self.lanes.unfetched(number, now, is_missing=is_missing)

    async def _recheck(self, step: Recheck) -> None:
        for number in step.numbers:
            try:
                page = await self._source.peek(number, 1)
            except TransportError as error:
                self._note_failure(error)
                return  # the lanes ask again
            is_there = bool(page) and page[0].sequence_number == number
            self.lanes.rechecked(
                number,
                self._station.monotonic(),
                is_there=is_there,
                is_deferred=is_there and page[0].is_deferred,
            )

    async def _bury(self, step: Bury[Parcel]) -> None:
        parcels = await self._doubts.written(step.messages)
        for parcel, error in zip(parcels, await self._burials.bury(parcels, step.why), strict=True):
            if error is None:
                self.lanes.buried([parcel])
            else:
                self._lost(parcel, self._station.monotonic())
        self._advance()

    # -- the end

    async def _finish(self) -> None:
        self._is_stopping = True
        if self._wake is not None:
            self._wake.cancel()
        await self._give_back(await self._source.stop_receiving())
        self._count()
        self._station.note_asking(-1)
        while self._tasks:
            await asyncio.wait(self._tasks)
        await self._intake.settle_rest(self.queue, self._source)
        await self._give_back([])
        self._station.count_in_hand(-self._counted)
        self._counted = 0
        self._turn.end()
        self._note_activity(False)
        await self._source.leave()

    async def _give_back(self, left: list[Delivery]) -> None:
        """These, and all that waits."""
        left += deliveries_of(await self._doubts.written(self.lanes.take_waiting()))
        if left:
            with contextlib.suppress(TransportError):  # a queue that cannot be reached keeps its locks anyway
                await self._source.release(left)

    async def _nap(self, seconds: float) -> None:
        """Wait, but not longer than the pump lives."""
        await wait_at_most(self._station.stopped, seconds)

    def _note_success(self) -> None:
        """It has answered. A drain takes no silence for that: a queue that is throttled gives nothing."""
        self._failures = 0
        self._station.tally.queue_errors.pop(self.queue, None)

    def _note_failure(self, error: TransportError) -> None:
        self._failures += 1
        self._station.tally.queue_errors[self.queue] = error.words
        if error.condition == conditions.SERVER_BUSY:
            self._station.limiter.trouble(self._station.monotonic(), "secondary", is_busy=True)
        # The first one of a row is news; a queue that stays away would fill the log.
        level = logging.WARNING if self._failures == 1 else logging.DEBUG
        log.log(level, "a backlog queue cannot be read: %s: %s", self.queue, error)
