"""One prober for a fleet: of the clients of a pair one pings an entity that is down, and tells the others.

Theory of operation
1. The clients meet at the queue of the syphon's lease, `PRIMARY/x-pairbus-syphon` on the secondary, in
   sessions of it. None of them knows how many others there are, and none is in charge.
2. Whoever would ping asks for the slot first (`pairbus.pairing.slots`): the lock of a session, which costs
   nothing, had or refused. Who has it pings when the slot begins, the others put their pings off until they
   may ask for the next one, and one of them holds another lock, by which the prober sees that it is not the
   only one.
3. Meanwhile each waits for word: for any session of that queue that has a message and is not locked. Such a
   wait holds no lock, uses no credit, and is not billed.
4. Who has pinged with success leaves two copies of the word, each in a session of its own, which wakes two
   that wait. Each takes its copy, believes it, and leaves two more. So N are reached in as many steps as N
   has binary digits. A copy has all words that its writer knows. Who takes one that has no news for it puts
   one in its place if it knows more than that one says, and else none; so words that go round at the same
   time become one. Who has told, or had news, leaves what there is to the others for a moment. Copies that
   nobody takes live for `WORD_LIFE`.
5. A word may be lost, or not be told at all (a queue that is full). So a good ping gives its slot free when
   the word should have gone round, or at once if it cannot be told; a connection that ends gives it free too.
   Those who missed a slot ask for it once more when all that should have happened: who gets it then pings.
6. A word says when its ping was made, by the secondary's clock: who failed over later does not believe it.
   What else may be doubted, and what is then done, is decided by `EntityHealth`.
7. Where none of this can be had (no such queue, no claim to listen, no sessions, a secondary that is down or
   too slow, a way that only the SDK knows), a client pings by itself, as it would alone, and says so.
8. The line is opened when an entity becomes suspect, and closed when none has been down for a while. While
   all is well a client has none.
9. Whatever else is found in that queue was left by a syphon that has died, to tell who it was: it is taken
   away.
"""

import asyncio
import json
import logging
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from pairbus import conditions
from pairbus.client.status import FleetStatus
from pairbus.errors import PairbusError
from pairbus.options import PingRole
from pairbus.pairing.names import path_key
from pairbus.pairing.slots import GONE_ROUND, Slot, entity_digest, slot_at, window_of
from pairbus.plumbing.json_text import parse_json
from pairbus.plumbing.tasks import cancel_all, wait_at_most
from pairbus.timers import Timers
from pairbus.wire.errors import TransportError

from .line import FleetLine, FleetLock

log = logging.getLogger(__name__)
#: Seconds: enough for the word to go round, and little for one that is out of date.
WORD_LIFE = 5.0
_COPIES = 2
# Words of one entity that are no further apart are one.
_SAME = 2.0
# A lock ends after a minute. What it says of its end is when it was had, by the time that is used here.
_COMPANY_LASTS = 45.0
# What who had news leaves to the others: some steps of the word.
_LEFT_TO_OTHERS = 0.2
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
# How much later than without a fleet a ping may go out, because nobody answers.
_PATIENCE = 1.0
_TO_TELL = 5.0
# Timers are no more exact than that.
_A_MOMENT = 0.01
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
    has_pinged: bool = False
    # The slot that another has.
    missed: Slot | None = None

    def let_go(self) -> None:
        self.slot, self.missed, self.has_pinged = None, None, False
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
        """`interval` is that of pings; `on_role` hears who pings an entity, None for nobody. Does no I/O."""
        self._open_line = open_line
        self._interval = interval
        self._timers = timers
        self._random = random
        self._on_role = on_role
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
        """An entity has failed over; `told` hears how many good pings in a row others had, 0: a bad one."""
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
        try:
            async with asyncio.timeout(_PATIENCE):
                line = await self._line_in_time()
                if line is not None:
                    due = await self._ask_for(member, line)
                    return None if due is None else due - self._ahead
        except (TransportError, TimeoutError) as error:
            self._doubt(self._line, error)
        self._play(member, "alone")
        return None

    async def _ask_for(self, member: _Member, line: FleetLine) -> float | None:
        """None to ping now; else when to ask again, by the secondary's clock."""
        now = self._there()
        target = slot_at(member.path, self._interval, now + window_of(self._interval))
        had = member.slot
        if had == target and not member.has_pinged:
            return self._take_turn(member, target)
        if had is not None and (had == target or target.follows(had)):
            due = await self._let_others_first(member, had, target, line)
            if due is None or due > now + _A_MOMENT:
                return due
        lock = await line.lock(target.session)
        if lock is None:
            return await self._miss(member, target, line)
        member.let_go()
        member.slot, member.lock = target, lock
        self._check_out(member)
        return self._take_turn(member, target)

    def _check_out(self, member: _Member) -> None:
        """One that left while it waited for a lock keeps none."""
        if not self._has(member):
            member.let_go()

    def _has(self, member: _Member) -> bool:
        return self._members.get(path_key(member.path)) is member

    def _take_turn(self, member: _Member, slot: Slot) -> float | None:
        self._play(member, "prober")
        if slot.begin > self._there() + _A_MOMENT:
            return slot.begin
        member.has_pinged = True
        return None

    async def _let_others_first(
        self, member: _Member, had: Slot, target: Slot, line: FleetLine
    ) -> float | None:
        """For who had the last turn. One that is alone pings now, and for that keeps no slot to come."""
        if had == target:
            is_alone = not await _is_locked(line, target.company)
        else:
            is_alone = not (await _is_locked(line, target.session) or await _is_locked(line, target.company))
        if not is_alone:
            return target.end if had == target else target.begin
        if target.begin <= self._there() and had != target:
            return target.begin
        self._play(member, "prober")
        return None

    async def _miss(self, member: _Member, slot: Slot, line: FleetLine) -> float:
        """Another has the slot."""
        if member.slot is not None:
            member.let_go()
        self._play(member, "listener")
        is_news, member.missed = member.missed != slot, slot
        now = self._there()
        if slot.begin <= now:
            await self._keep_company(member, slot, line)
        look, ask = slot.look_at(now, self._random()), slot.ask_at(self._random())
        return look if is_news and look < ask else ask

    async def _keep_company(self, member: _Member, slot: Slot, line: FleetLine) -> None:
        """Rule 2: see to it that this lock is held by somebody until the slot ends."""
        if member.lock is not None:
            if slot.end - member.lock.ends < _COMPANY_LASTS:
                return
            member.lock.release()
        member.lock = await line.lock(slot.company)
        self._check_out(member)

    def tell(self, path: str, good: int) -> None:
        """Let the others know: so many good pings in a row, or 0 for an answer that each has to see."""
        member = self._members.get(path_key(path))
        if good and member is not None and member.slot is not None and member.lock is not None:
            self._kept.append(member.lock)
            member.lock = None
        word = {entity_digest(path): (good, self._there())}
        is_news = bool(_beyond(word, self._fresh_words()))
        self._words |= word
        if is_news:
            # It still listens if other entities are down, and must not be the one that takes its own word.
            self._leave_to_others(_GATHERED)
        if is_news and not self._is_gathering:  # else it goes with the rest
            self._is_gathering = True
            self._do(self._post(0, _COPIES, after=_GATHERED))

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
        mine = self._fresh_words()
        news = _beyond(words, mine)
        self._words |= news
        if news:
            self._leave_to_others()
        copies = _COPIES if news else 1 if _beyond(mine, words) else 0
        if copies and hops < _MOST_HOPS:
            self._do(self._post(hops + 1, copies))
        for member in list(self._members.values()):
            told = words.get(entity_digest(member.path))
            if told is not None and told[1] - self._ahead >= member.since:
                member.told(told[0])

    def _leave_to_others(self, after: float = 0.0) -> None:
        self._listens_from = self._loop_time() + after + _LEFT_TO_OTHERS
        self._stir.set()

    def _fresh_words(self) -> dict[str, tuple[int, float]]:
        now = self._there()
        self._words = {key: word for key, word in self._words.items() if now - word[1] < WORD_LIFE}
        return self._words

    async def _post(self, hops: int, copies: int, *, after: float = 0.0) -> None:
        if after:
            await asyncio.sleep(after)
            self._is_gathering = False
        line, words = self._line, self._fresh_words()
        if line is None or not words:
            self._free()
            return
        text = json.dumps({"hops": hops, "words": words}).encode()
        try:
            async with asyncio.timeout(_TO_TELL):
                await line.post(text, copies=copies, life=WORD_LIFE)
            asyncio.get_running_loop().call_later(GONE_ROUND, self._free)
        except (PairbusError, TimeoutError) as error:
            log.info("other clients could not be told that an entity is back, and find out: %s", error)
            self._free()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        if self._is_over:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work)
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

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
                await self._is_settled.wait()
            finally:
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
                await cancel_all(hearing, stirring)

    def _doubt(self, line: FleetLine | None, error: Exception) -> None:
        """Something was refused, or not answered: another line may do better."""
        self._note(error)
        if line is not None and self._line is line:
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
        if member.role != role and self._has(member):
            member.role = role
            self._on_role(member.path, role)

    async def _wait(self, seconds: float) -> None:
        """Or until something has changed."""
        self._stir.clear()
        await wait_at_most(self._stir, seconds)

    def _there(self) -> float:
        """The time by the clock of the secondary."""
        return self._timers.now() + self._ahead

    def _loop_time(self) -> float:
        return asyncio.get_running_loop().time()

    async def close(self) -> None:
        """Leave all, say what was to be said, and close the line."""
        self._is_over = True
        if self._telling:
            await asyncio.wait(self._telling, timeout=_TO_TELL)
        for member in list(self._members.values()):
            self.leave(member.path)
        self._stir.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=_TO_TELL)
            await cancel_all(self._task)


def _beyond(
    these: dict[str, tuple[int, float]], those: dict[str, tuple[int, float]]
) -> dict[str, tuple[int, float]]:
    """Those of these words that are not known there, or newer than what goes round anyhow."""
    return {
        key: (good, at)
        for key, (good, at) in these.items()
        if key not in those or (good == 0) != (those[key][0] == 0) or at > those[key][1] + _SAME
    }


async def _is_locked(line: FleetLine, session: str) -> bool:
    """Whether somebody has it."""
    lock = await line.lock(session)
    if lock is not None:
        lock.release()
    return lock is None


def _note_end(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("what was to spare pings has ended; this client pings by itself", exc_info=error)
