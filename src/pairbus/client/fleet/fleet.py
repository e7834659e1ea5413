"""One prober for a fleet: of the clients of a pair one pings an entity that is down, and tells the others.

Theory of operation
1. The clients meet at the queue of the syphon's lease, `PRIMARY/x-pairbus-syphon` on the secondary, in
   sessions of it. None of them knows how many others there are, and none is in charge.
2. Whoever would ping asks for the slot first (`pairbus.pairing.slots`): the lock of a session, which costs
   nothing, had or refused. Who has it pings, the others put their pings off until the next slot, and one of
   them holds another lock, by which the prober sees that it is not the only one.
3. Meanwhile each waits for word: for any session of that queue that has a message and is not locked. Such a
   wait holds no lock, uses no credit, and is not billed.
4. Who has pinged with success leaves two copies of the word, each in a session of its own, which wakes two
   that wait. Each takes its copy, believes it, and leaves two more. So N are reached in as many steps as N
   has binary digits, with N deliveries and no more than 2 N sends. Copies that nobody takes live for
   `WORD_LIFE`. Who has taken one takes no other for a while, in which all hear of it, and passes nothing on
   that it has heard before.
5. A good ping gives its slot free when the word has gone round, or at once if it cannot be told, so that
   those whom no word reached can have it, one after the other. Word makes a failback quick; without any it
   comes with the next slot or the one after.
6. A word says when its ping was made, by the secondary's clock: who failed over later does not believe it.
   What else may be doubted, and what is then done, is decided by `EntityHealth`.
7. Where none of this can be had (no such queue, no claim to listen, no sessions, a secondary that is down or
   too slow, a way that only the SDK knows), a client pings by itself, as it would alone, and says so.
8. The line is opened when an entity becomes suspect, and closed when none has been down for a while. While
   all is well a client has none.
9. Whatever else is found in that queue was left by a syphon that has died, to tell who it was: it is taken
   away.
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pairbus import conditions
from pairbus.client.status import FleetStatus
from pairbus.errors import PairbusError
from pairbus.options import PingRole
from pairbus.pairing.names import path_key
from pairbus.pairing.slots import Slot, entity_digest, slot_at
from pairbus.plumbing.json_text import parse_json
from pairbus.timers import Timers
from pairbus.wire.errors import TransportError

from .line import FleetLine, FleetLock

log = logging.getLogger(__name__)
#: Seconds: enough for the word to go round, and little for one that is out of date.
WORD_LIFE = 5.0
_COPIES = 2
_GOES_ROUND = 2.0
# Far more than any fleet needs: each step doubles those who know.
_MOST_HOPS = 24
# Several entities that come back together are told of together.
_GATHERED = 0.05
# Below the time after which Azure detaches a link on which nothing happens.
_LISTENED = 60.0
# Rule 8.
_LINGER = 30.0
_FIRST_REST = 1.0
_LONGEST_REST = 60.0
_TRY_AGAIN = 900.0
# What asking may take; then the ping goes out as if there was no fleet.
_LEAST_PATIENCE = 2.0
_MOST_PATIENCE = 5.0
# When a whole fleet fails over at once, all of it connects to the secondary.
_TO_OPEN = 3.0
# These stay as they are, whoever asks.
_NEVER = {
    conditions.NOT_FOUND,
    conditions.UNAUTHORIZED,
    conditions.AUTH_FAILED,
    conditions.NOT_ALLOWED,
    conditions.NOT_IMPLEMENTED,
    conditions.ENTITY_DISABLED,
    conditions.INVALID_FIELD,
}


@dataclass(slots=True, eq=False)
class _Member:
    """An entity that this client has failed over."""

    path: str
    told: Callable[[int], object]
    since: float
    role: PingRole = "alone"
    slot: Slot | None = None
    lock: FleetLock | None = None

    def let_go(self) -> None:
        self.slot = None
        if self.lock is not None:
            self.lock.release()
            self.lock = None


class Fleet:
    """What one client knows of its fleet, and does for it."""

    def __init__(
        self,
        open_line: Callable[[], Awaitable[FleetLine]],
        *,
        interval: float,
        timers: Timers,
        random: Callable[[], float],
        on_role: Callable[[str, PingRole | None], object],
    ) -> None:
        """`interval` is that of pings; `on_role` hears who pings an entity, None when nobody does any more.
        Does no I/O.
        """
        self._open_line = open_line
        self._interval = interval
        self._timers = timers
        self._random = random
        self._on_role = on_role
        self._patience = min(_MOST_PATIENCE, max(_LEAST_PATIENCE, interval / 2))
        self._members: dict[str, _Member] = {}
        self._line: FleetLine | None = None
        # What the clock of the secondary is ahead of the timers.
        self._ahead = 0.0
        self._why: str | None = None
        self._task: asyncio.Task[None] | None = None
        # Whether it is known if there is a line.
        self._is_settled = asyncio.Event()
        self._stir = asyncio.Event()
        self._wanted_until = 0.0
        self._listens_from = 0.0
        self._words: dict[str, tuple[int, float]] = {}
        # Of slots whose ping was good: rule 5.
        self._kept: list[FleetLock] = []
        self._telling: set[asyncio.Task[None]] = set()
        self._is_gathering = False
        self._is_over = False

    # -- what entities say

    def warm(self) -> None:
        """An entity may fail over soon."""
        self._wanted_until = self._loop_time() + _LINGER
        self._begin()

    def join(self, path: str, told: Callable[[int], object]) -> None:
        """An entity has failed over; `told` is called with what others say of it: how many good pings in a
        row, or 0 for an answer that is none.
        """
        self._members[path_key(path)] = _Member(path, told, self._timers.now())
        self._begin()
        self._stir.set()

    def leave(self, path: str) -> None:
        """An entity is back, or nobody cares any more."""
        member = self._members.pop(path_key(path), None)
        if member is None:
            return
        member.let_go()
        self._on_role(path, None)
        if not self._members:
            self._wanted_until = self._loop_time() + _LINGER
            self._stir.set()

    async def ask(self, path: str) -> float | None:
        """Whether to ping now: None, or when to ask again, in the time of the timers. Soon answered."""
        member = self._members.get(path_key(path))
        if member is None:
            return None
        line = await self._line_in_time()
        if line is None:
            self._play(member, "alone")
            return None
        slot = slot_at(path, self._interval, self._timers.now() + self._ahead)
        try:
            async with asyncio.timeout(self._patience):
                due = await self._ask_for(slot, member, line)
        except (TransportError, TimeoutError) as error:
            self._doubt(line, error)
            self._play(member, "alone")
            return None
        return None if due is None else due - self._ahead

    async def _ask_for(self, slot: Slot, member: _Member, line: FleetLine) -> float | None:
        """None if the slot is ours; else when to ask again, by the secondary's clock."""
        had, first_asked = member.slot, slot.begin + slot.window
        if had is not None and (had == slot or slot.follows(had)) and await _has_company(line, slot):
            due = first_asked + (slot.interval if had == slot else 0.0)
            if self._timers.now() + self._ahead < due:
                return due
        if had != slot:
            lock = await line.lock(slot.session)
            member.let_go()
            if lock is None:
                self._play(member, "listener")
                member.lock = await line.lock(slot.company)
                return slot.end + slot.window * self._random()
            member.slot, member.lock = slot, lock
            if self._members.get(path_key(member.path)) is not member:
                member.let_go()
        self._play(member, "prober")
        return None

    def tell(self, path: str, good: int) -> None:
        """Let the others know: so many good pings in a row, or 0 for an answer that each has to see."""
        member = self._members.get(path_key(path))
        if good and member is not None and member.slot is not None and member.lock is not None:
            self._kept.append(member.lock)
            member.lock = None
        self._words[entity_digest(path)] = good, self._timers.now() + self._ahead
        self._pass_on(0)

    # -- what a client shows

    def role(self, path: str) -> PingRole | None:
        """Who pings an entity that is down: this client for all, another, or this one for itself."""
        member = self._members.get(path_key(path))
        return None if member is None else member.role

    def status(self) -> FleetStatus:
        """A picture of this moment."""
        if self._line is not None:
            return FleetStatus(state="joined", why=None)
        return FleetStatus(state="idle" if self._why is None else "alone", why=self._why)

    # -- word

    def _hear(self, text: bytes) -> None:
        try:
            found = parse_json(text)
            hops = int(found["hops"])
            words = {str(key): (int(good), float(at)) for key, (good, at) in found["words"].items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            log.debug("what is no word was taken away from the queue of the lease")  # rule 9
            return
        self._listens_from = self._loop_time() + _GOES_ROUND
        news = {key: word for key, word in words.items() if word[1] > self._words.get(key, (0, 0.0))[1]}
        self._words |= news
        if news and hops < _MOST_HOPS:
            self._pass_on(hops + 1)
        for member in list(self._members.values()):
            told = words.get(entity_digest(member.path))
            if told is not None and self._local(told[1]) >= member.since:
                member.told(told[0])

    def _pass_on(self, hops: int) -> None:
        if self._is_gathering:
            return  # it goes with the rest
        if self._line is None or self._is_over:
            self._free()
            return
        self._is_gathering = True
        task = asyncio.get_running_loop().create_task(self._post(hops))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _post(self, hops: int) -> None:
        try:
            await asyncio.sleep(_GATHERED)
        finally:
            self._is_gathering = False
        now = self._timers.now() + self._ahead
        self._words = {key: word for key, word in self._words.items() if now - word[1] < 2 * WORD_LIFE}
        line = self._line
        if line is None or not self._words:
            self._free()
            return
        text = json.dumps({"hops": hops, "words": self._words}).encode()
        try:
            async with asyncio.timeout(_MOST_PATIENCE):
                await line.post(text, copies=_COPIES, life=WORD_LIFE)
            asyncio.get_running_loop().call_later(_GOES_ROUND, self._free)
        except (PairbusError, TimeoutError) as error:
            log.info("other clients could not be told that an entity is back, and find out: %s", error)
            self._free()

    def _free(self) -> None:
        """Rule 5."""
        kept, self._kept = self._kept, []
        for lock in kept:
            lock.release()

    # -- the line

    async def _line_in_time(self) -> FleetLine | None:
        self._begin()
        if self._line is None and not self._is_settled.is_set():
            try:
                async with asyncio.timeout(min(_MOST_PATIENCE, max(_TO_OPEN, 2 * self._interval))):
                    await self._is_settled.wait()
            except TimeoutError:
                self._is_settled.set()  # this was waited for once, and will not be again
        return self._line

    def _begin(self) -> None:
        if not self._is_over and (self._task is None or self._task.done()):
            self._is_settled.clear()
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(_note_end)

    def _is_wanted(self) -> bool:
        return not self._is_over and (bool(self._members) or self._loop_time() < self._wanted_until)

    async def _run(self) -> None:
        rest = _FIRST_REST
        while self._is_wanted():
            line: FleetLine | None = None
            try:
                line = await self._open_line()
                await self._get_to_know(line)
                rest = _FIRST_REST
                await self._listen(line)
            except Exception as error:  # noqa: BLE001 - rule 7: whatever it is, this client can ping
                self._note(error)
                if isinstance(error, TransportError) and error.condition in _NEVER:
                    rest = _TRY_AGAIN
            finally:
                self._line = None
                for member in self._members.values():
                    member.let_go()
                self._is_settled.set()
                if line is not None:
                    await line.close()
            if self._is_wanted():
                await self._wait(rest * (0.5 + self._random()))
                rest = min(_LONGEST_REST, 2 * rest) if rest < _TRY_AGAIN else _FIRST_REST

    async def _get_to_know(self, line: FleetLine) -> None:
        """A lock says what time it is there. How long locks last is part of it, and the same for all."""
        lock = await line.lock(f"clock:{uuid.uuid4().hex}")
        if lock is None:
            raise TimeoutError("a session that nobody knows is locked")
        self._ahead = lock.ends - self._timers.now()
        lock.release()
        self._line, self._why = line, None
        self._is_settled.set()

    async def _listen(self, line: FleetLine) -> None:
        while self._is_wanted() and self._line is line:
            pause = self._listens_from - self._loop_time()
            if pause > 0 or not self._members:
                await self._wait(max(pause, 0.1) if self._members else _LINGER)
                continue
            self._stir.clear()
            hearing = asyncio.ensure_future(line.hear(_LISTENED))
            stirring = asyncio.ensure_future(self._stir.wait())
            try:
                await asyncio.wait({hearing, stirring}, return_when=asyncio.FIRST_COMPLETED)
                if hearing.done() and (text := hearing.result()) is not None:
                    self._hear(text)
            finally:
                await _end(hearing, stirring)

    def _doubt(self, line: FleetLine, error: Exception) -> None:
        """Something was refused, or not answered: another line may do better."""
        self._note(error)
        if self._line is line:
            self._line = None
            self._stir.set()

    def _note(self, error: Exception) -> None:
        why = str(error) or "no answer in time"
        if self._why != why:
            log.info("this client pings by itself: %s", why)
        self._why = why
        for member in self._members.values():
            self._play(member, "alone")

    def _play(self, member: _Member, role: PingRole) -> None:
        if member.role != role:
            member.role = role
            self._on_role(member.path, role)

    async def _wait(self, seconds: float) -> None:
        """Or until something has changed."""
        self._stir.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stir.wait()

    def _local(self, then: float) -> float:
        return then - self._ahead

    def _loop_time(self) -> float:
        return asyncio.get_running_loop().time()

    async def close(self) -> None:
        """Leave all, say what was to be said, and close the line."""
        self._is_over = True
        if self._telling:
            await asyncio.wait(self._telling, timeout=_MOST_PATIENCE)
        for member in list(self._members.values()):
            self.leave(member.path)
        self._stir.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=_MOST_PATIENCE)
            await _end(self._task)


async def _has_company(line: FleetLine, slot: Slot) -> bool:
    lock = await line.lock(slot.company)
    if lock is not None:
        lock.release()
    return lock is None


async def _end(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _note_end(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("what was to spare pings has ended; this client pings by itself", exc_info=error)
