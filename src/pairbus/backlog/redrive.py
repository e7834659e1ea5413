"""Redriving: dead letters of backlog queues back into play, after their cause was mended.

A dead letter is sent to its backlog queue anew, as it was, and only then taken from the dead letters. A crash
in between leaves it in both places; whose lock was lost in between comes again, and is not sent again. Those
that are not chosen are held until the end, or they would come again and again, and are then given back. What
another one has locked, such as a redrive that was killed, does not come at all: a peek at the end finds it.
Those that are buried meanwhile stay: where a syphon runs and the cause was not mended, they would go round.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

from pairbus import words
from pairbus.amqp.errors import DecodeError
from pairbus.amqp.message import (
    MessageSections,
    encode_annotations,
    encode_application_properties,
    encode_header,
    scan,
)
from pairbus.conditions import MESSAGE_LOCK_LOST, NOT_FOUND
from pairbus.pairing.envelope import ACCOUNTED
from pairbus.pairing.names import path_key
from pairbus.pump.browsing import find_last
from pairbus.pump.options import PumpOptions
from pairbus.pump.pair import PumpPair
from pairbus.pump.pump import open_transport
from pairbus.pump.transport import Delivery, Peeked, Transport, Unit
from pairbus.wire.errors import TransportError

from .survey import survey_queues

_AT_ONCE = 200
# Most queues have no dead letters: all that they take is the wait.
_QUEUES_AT_ONCE = 16
# The dead letters are on one place; when nothing comes for so long there is nothing more.
_WAIT = 1.0
_ADDED = {words.REASON, words.DESCRIPTION, ACCOUNTED}
# The service writes these anew. Its schedule, if it has one, is in the envelope.
_LEFT_OUT = words.POSTMARKS | {words.SCHEDULED_TIME}


class _ChosenLetter(NamedTuple):
    """A dead letter that goes back, as it was."""

    delivery: Delivery
    payload: bytes
    reason: str
    path: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterChoice:
    """Which dead letters are meant, by whatever of this is given; ages are seconds."""

    paths: Sequence[str] = ()
    reasons: Sequence[str] = ()
    older_than: float = 0.0
    newer_than: float = inf

    def includes(self, path: str, reason: str, age: float) -> bool:
        """Whether such a dead letter is meant."""
        wanted = {path_key(one) for one in self.paths}
        if wanted and path_key(path) not in wanted:
            return False
        if self.reasons and reason.lower() not in {one.lower() for one in self.reasons}:
            return False
        # Clocks of two machines differ a little: what is of no age at all is as old as it must be.
        return self.older_than <= max(0.0, age) < self.newer_than


@dataclass(slots=True)
class Redriven:
    """How many went back into play, and how many stayed, by reason and path."""

    by_path: Counter[tuple[str, str]] = field(default_factory=Counter)
    left_by_path: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: Age in seconds of the oldest of both.
    oldest: dict[tuple[str, str], float] = field(default_factory=dict)
    #: Of those that stayed, how many are meant but did not come: somebody has them locked, or they are new.
    locked: int = 0

    @property
    def redriven(self) -> Counter[str]:
        """By reason."""
        return _by_reason(self.by_path)

    @property
    def left(self) -> Counter[str]:
        """By reason."""
        return _by_reason(self.left_by_path)

    def see(self, reason: str, path: str, age: float) -> None:
        """One of that age was met."""
        key = reason, path
        self.oldest[key] = max(self.oldest.get(key, 0.0), age)


def _by_reason(counts: Counter[tuple[str, str]]) -> Counter[str]:
    return Counter(reason for reason, _ in counts.elements())


class _Pace:
    """Limits the rate over all queues. Whoever takes messages waits before: a lock may end sooner."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._next = 0.0
        self._taking = asyncio.Lock()

    @property
    def most(self) -> int:
        """How many may be taken at a time: of a slow pace, a second's worth."""
        return _AT_ONCE if self._rate is None else max(1, min(_AT_ONCE, int(self._rate)))

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait until more may go, and keep others waiting until it is noted how many do."""
        if self._rate is None:
            yield
            return
        async with self._taking:
            await asyncio.sleep(self._next - asyncio.get_running_loop().time())
            yield

    def note(self, count: int) -> None:
        """So many go now."""
        if self._rate is not None:
            self._next = max(asyncio.get_running_loop().time(), self._next) + count / self._rate


async def survey_dead_letters(
    pair: PumpPair, queues: Sequence[str], choice: DeadLetterChoice, *, options: PumpOptions, now: float
) -> Redriven:
    """What `redrive` would do; nothing is locked."""
    done = Redriven()
    async for one in survey_queues(pair, queues, options, now=now, active=False):
        reason, path, age = one.reason or "unknown", path_key(one.path), now - one.enqueued
        done.see(reason, path, age)
        counts = done.by_path if choice.includes(path, reason, age) else done.left_by_path
        counts[reason, path] += 1
    return done


async def redrive(
    pair: PumpPair,
    queues: Sequence[str],
    choice: DeadLetterChoice,
    *,
    options: PumpOptions | None = None,
    max_rate: float | None = None,
    done: Redriven | None = None,
) -> Redriven:
    """Put the chosen dead letters of these backlog queues back into them, so many a second at most.

    What was done so far can be seen in `done` meanwhile.
    """
    options = options or PumpOptions()
    transport = open_transport(pair.secondary.resolve(), options)
    done = Redriven() if done is None else done
    pace = _Pace(max_rate)
    turns = asyncio.Semaphore(_QUEUES_AT_ONCE)
    seen: dict[str, set[int]] = {queue: set() for queue in queues}

    async def take_turn(queue: str) -> None:
        async with turns:
            work = _QueueRedrive(transport, queue, choice, done=done, pace=pace, seen=seen[queue])
            await work.run()

    try:
        # One that fails does not call the others off in the middle of a message.
        results = await asyncio.gather(*map(take_turn, queues), return_exceptions=True)
    finally:
        await transport.close()
    for result in results:
        if isinstance(result, BaseException):
            raise result
    await _count_unseen(pair, seen, choice, done, options)
    return done


async def _count_unseen(
    pair: PumpPair,
    seen: Mapping[str, set[int]],
    choice: DeadLetterChoice,
    done: Redriven,
    options: PumpOptions,
) -> None:
    """Those that are there and did not come."""
    now = time.time()
    async for one in survey_queues(pair, [*seen], options, now=now, active=False):
        if one.sequence_number in seen[one.queue]:
            continue
        reason, path, age = one.reason or "unknown", path_key(one.path), now - one.enqueued
        done.see(reason, path, age)
        done.left_by_path[reason, path] += 1
        done.locked += choice.includes(path, reason, age)


class _QueueRedrive:
    """The dead letters of one queue."""

    def __init__(
        self,
        transport: Transport,
        queue: str,
        choice: DeadLetterChoice,
        *,
        done: Redriven,
        pace: _Pace,
        seen: set[int],
    ) -> None:
        self._source = transport.source(f"{queue}/{words.DEAD_LETTER_QUEUE}")
        self._destination = transport.destination(queue)
        self._queue = queue
        self._choice = choice
        self._done = done
        self._pace = pace
        self._seen = seen
        self._sent: set[int] = set()  # and not taken from the dead letters yet
        self._last = 0  # what goes back gets a number beyond this one
        self._held: dict[bytes, Delivery] = {}

    async def run(self) -> None:
        try:
            if (first := await self._look(0)) is not None:
                self._last = (await find_last(self._look, first)).sequence_number
                await self._take_all()
        except TransportError as error:
            if error.condition != NOT_FOUND:
                raise
        finally:
            left = [*await self._source.stop_receiving(), *self._held.values()]
            with suppress(TransportError):  # who cannot be reached lets their locks end by itself
                await self._source.release(left)
            await self._source.close()
            await self._destination.close()

    async def _look(self, number: int) -> Peeked | None:
        """The first dead letter from a number on."""
        return next(iter(await self._source.peek(number, 1)), None)

    async def _take_all(self) -> None:
        # Those that are held come again when their locks end, before what is behind them: once around.
        again = 0
        while again <= len(self._seen):
            before = len(self._seen)
            async with self._pace.turn():
                deliveries = await self._source.receive(self._pace.most, _WAIT, at_once=True)
                chosen, sent = self._sort(deliveries)
                self._pace.note(len(chosen))
            await self._move(chosen)
            await self._settle(sent)
            if not deliveries:
                break
            again = again + len(deliveries) if len(self._seen) == before and not sent else 0
        if self._sent:
            raise TransportError(
                MESSAGE_LOCK_LOST,
                f"{len(self._sent):,} messages went back into {self._queue} and could not be taken from its "
                "dead letters: look before you redrive these again",
            )

    def _sort(self, deliveries: Sequence[Delivery]) -> tuple[list[_ChosenLetter], list[_ChosenLetter]]:
        """Those that are meant, and those that have been sent; the others are held."""
        chosen: list[_ChosenLetter] = []
        sent: list[_ChosenLetter] = []
        now = time.time()
        for delivery in deliveries:
            number, path, reason, enqueued, payload = _read(delivery)
            path, age, is_new = path_key(path), now - enqueued, number not in self._seen
            self._seen.add(number)
            if is_new:
                self._done.see(reason, path, age)
            is_sent = number in self._sent
            is_late = number > self._last
            is_chosen = self._choice.includes(path, reason, age)
            if payload is not None and (is_sent or (is_chosen and not is_late)):
                found = _ChosenLetter(delivery, payload, reason, path, number)
                (sent if is_sent else chosen).append(found)
                continue
            self._held[delivery.lock_token] = delivery
            if is_new:
                self._done.left_by_path[reason, path] += 1
                self._done.locked += is_chosen and is_late
        return chosen, sent

    async def _move(self, chosen: Sequence[_ChosenLetter]) -> None:
        outcomes = await self._destination.send([Unit([one.payload]) for one in chosen]) if chosen else []
        fates = list(zip(chosen, outcomes, strict=True))
        taken = [one for one, outcome in fates if outcome is None]
        self._sent.update(one.number for one in taken)
        self._done.by_path.update((one.reason, one.path) for one in taken)
        await self._settle(taken)
        failed = [(one.delivery, outcome) for one, outcome in fates if outcome is not None]
        if failed:
            await self._source.release([delivery for delivery, _ in failed])
            raise failed[0][1]

    async def _settle(self, sent: Sequence[_ChosenLetter]) -> None:
        """Take those from the dead letters that were sent. Whose lock was lost comes again."""
        outcomes = await self._source.complete([one.delivery for one in sent]) if sent else []
        self._sent -= {one.number for one, outcome in zip(sent, outcomes, strict=True) if outcome is None}


def _read(delivery: Delivery) -> tuple[int, str, str, float, bytes | None]:
    """Its number, path, reason, since when, and the message as it was; None if nobody can read it."""
    try:
        sections = scan(delivery.payload)
        properties = dict(sections.application_properties)
        annotations = {str(key): value for key, value in sections.annotations.items()}
        payload = _as_it_was(sections)
    except DecodeError:
        return 0, "", "unreadable", time.time(), None
    number = int(annotations.get(words.SEQUENCE_NUMBER, 0))
    enqueued = float(annotations.get(words.ENQUEUED_TIME, 0)) / 1000
    path, reason = str(properties.get("x-ms-path", "")), str(properties.get(words.REASON, "unknown"))
    return number, path, reason, enqueued, payload


def _as_it_was(sections: MessageSections) -> bytes:
    header = sections.header
    annotations = {key: value for key, value in sections.annotations.items() if str(key) not in _LEFT_OUT}
    properties = {key: value for key, value in sections.application_properties.items() if key not in _ADDED}
    return b"".join(
        (
            encode_header(replace(header, delivery_count=0)),
            encode_annotations(annotations) if annotations else b"",
            sections.properties_bytes,
            encode_application_properties(properties) if properties else b"",
            sections.body_bytes,
        )
    )
