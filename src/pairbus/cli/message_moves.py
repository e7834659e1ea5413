"""The messages of one entity looked at, taken away and put back: what `pairbus messages` does.

All of it goes over our own AMQP, which passes messages on as the bytes that they are; sessions are received
through the SDK.

1. Peeks go from number to number, and change nothing.
2. A purge takes what was there when it began, and leaves what comes meanwhile: active messages are received
   and completed, deferred ones fetched by their numbers, scheduled ones cancelled (one that has come due is
   told as scheduled for ever). Whatever is still there then, because somebody else holds its lock, is counted
   and told.
3. An import sends in the order of its lines, and keeps account of those that the namespace has confirmed.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from pairbus import conditions, words
from pairbus.amqp.message import MessageSections, scan
from pairbus.errors import ConfigurationError, UnreachableError
from pairbus.plumbing.files import publish, read_given
from pairbus.plumbing.json_text import parse_json
from pairbus.plumbing.ranges import ranges_of
from pairbus.plumbing.wording import SIGN_IN
from pairbus.pump.browsing import PAGE
from pairbus.pump.judgement import Remedy, judge
from pairbus.pump.options import PumpOptions
from pairbus.pump.pump import opened_transport
from pairbus.pump.transport import BacklogSource, Destination, Peeked, Transport, Unit
from pairbus.pump.unwrapping import read_postmark
from pairbus.sdk.sessions import cancel_scheduled, purge_session
from pairbus.wire.errors import TokenMissing, TransportError

from .message_form import as_it_was_sent
from .namespaces import ChosenNamespace

_AT_ONCE = 200
# When nothing comes for so long, what is left is not for us.
_WAIT = 5.0
# How often throttled messages are tried; each time the namespace says how long to wait.
_MOST_ATTEMPTS = 30


@dataclass(frozen=True, slots=True)
class MessagePlace:
    """An entity of a namespace whose messages are meant, or one of its sub-queues."""

    namespace: ChosenNamespace
    path: str
    session: str | None = None

    @asynccontextmanager
    async def reached(self) -> AsyncIterator[Transport]:
        """The namespace, for as long as the block runs; what goes wrong is told in words."""
        try:
            async with opened_transport(self.namespace.for_transport().resolve(), PumpOptions()) as transport:
                yield transport
        except TransportError as error:
            raise in_words(error, self) from None

    def __str__(self) -> str:
        return f"{self.path} of {self.namespace.name}"


def in_words(error: TransportError, place: MessagePlace) -> Exception:
    """An error of the namespace as one that says what to mend."""
    mends = {
        conditions.NOT_FOUND: "`pairbus entity ls` shows what there is",
        conditions.UNAUTHORIZED: "its policy lacks the claim for this (Listen to look, Send to send)",
        conditions.AUTH_FAILED: "its key is wrong",
        conditions.NOT_ALLOWED: "name a queue, or TOPIC/Subscriptions/NAME",
    }
    told = error.description.rstrip(".") or error.condition
    if isinstance(error, TokenMissing):
        return UnreachableError(f"{place}: {told}; {SIGN_IN}")
    if error.condition in mends:
        return ConfigurationError(f"{place}: {told}; {mends[error.condition]}")
    return UnreachableError(f"{place}: {told}; is the namespace up, and its connection string right?")


async def peek_all(
    transport: Transport, place: MessagePlace, *, begin: int = 0, limit: int | None = None
) -> AsyncIterator[Peeked]:
    """The messages at a place from a number on, those of its session alone if it names one."""
    source = transport.source(place.path)
    number, left = begin, limit
    try:
        while left is None or left > 0:
            page = await source.peek(number, PAGE if left is None or place.session else min(left, PAGE))
            if not page:
                return
            number = page[-1].sequence_number + 1
            for one in page:
                if place.session is not None and one.sections.properties.group_id != place.session:
                    continue
                yield one
                left = None if left is None else left - 1
                if left == 0:
                    return
    finally:
        await source.close()


# -- purge


@dataclass(slots=True)
class PurgedMessages:
    """How many messages went away, and how many could not."""

    purged: int = 0
    left: int = 0


@dataclass(slots=True)
class _Found:
    """The numbers of messages by what has to be done with them."""

    everything: set[int] = field(default_factory=set)
    deferred: set[int] = field(default_factory=set)
    #: Also those whose time has come.
    scheduled: set[int] = field(default_factory=set)
    #: Those that a receiver is given.
    due: set[int] = field(default_factory=set)
    by_session: dict[str, set[int]] = field(default_factory=dict)


async def count_messages(place: MessagePlace) -> int:
    """How many messages there are at a place."""
    async with place.reached() as transport:
        return len((await _look(transport, place)).everything)


async def purge(place: MessagePlace) -> PurgedMessages:
    """Take away what is at a place."""
    async with place.reached() as transport:
        found = await _look(transport, place)
        if not found.everything:
            return PurgedMessages()
        source = transport.source(place.path)
        try:
            if place.session is None and await _purge_plain(source, found):
                await _purge_deferred(source, found)
            else:
                await _purge_sessions(place, found)
        finally:
            await source.close()
        rest = await _look(transport, place)
        scheduled = sorted(found.everything & rest.scheduled)
        if scheduled and not place.path.endswith(words.DEAD_LETTER_QUEUE):
            async with place.namespace.signed_in() as side:
                await cancel_scheduled(side, place.path, scheduled)
            rest = await _look(transport, place)
    left = len(found.everything & rest.everything)
    return PurgedMessages(len(found.everything) - left, left)


async def _look(transport: Transport, place: MessagePlace) -> _Found:
    found = _Found()
    async for one in peek_all(transport, place):
        number, sections, annotations = one.sequence_number, one.sections, one.sections.annotations
        found.everything.add(number)
        if one.is_deferred:
            found.deferred.add(number)
        else:
            if annotations.get(words.MESSAGE_STATE):
                found.scheduled.add(number)
            when = annotations.get(words.SCHEDULED_TIME)
            if not isinstance(when, int) or when <= annotations.get(words.ENQUEUED_TIME, 0):
                found.due.add(number)
        session = sections.properties.group_id
        if session is not None:
            found.by_session.setdefault(session, set()).add(number)
    return found


async def _purge_plain(source: BacklogSource, found: _Found) -> bool:
    """Receive and complete; False if the entity gives messages by sessions alone."""
    others, due = [], set(found.due)
    try:
        # Who knows of nothing that will come asks once all the same: it tells whether sessions are needed.
        while deliveries := await source.receive(_AT_ONCE, _WAIT if due else 0.0):
            meant = [one for one in deliveries if _number(one.payload) in found.everything]
            others += [one for one in deliveries if one not in meant]
            await source.complete(meant)
            due -= {_number(one.payload) for one in meant}
            if not (due and meant):  # all that was there is gone, and the rest has come since
                break
    except TransportError as error:
        if error.condition == conditions.NOT_ALLOWED and found.by_session:
            return False
        raise
    finally:
        await source.release([*await source.stop_receiving(), *others])
    return True


def _number(payload: bytes) -> int:
    return read_postmark(scan(payload)).sequence_number


async def _purge_deferred(source: BacklogSource, found: _Found) -> None:
    fetched = await source.fetch(sorted(found.deferred)) if found.deferred else []
    await source.complete([one for one in fetched if not isinstance(one, TransportError)])


async def _purge_sessions(place: MessagePlace, found: _Found) -> None:
    async with place.namespace.signed_in() as side:
        for session, numbers in found.by_session.items():
            deferred = sorted(numbers & found.deferred)
            due = numbers & found.due
            await purge_session(side, place.path, session, numbers=numbers, deferred=deferred, due=due)


# -- import


@dataclass(slots=True)
class ImportedMessages:
    """What became of the lines of an export, by their numbers."""

    imported: list[int] = field(default_factory=list)
    before: int = 0
    refused: dict[int, str] = field(default_factory=dict)
    #: The first line that was not sent, and why.
    stopped_at: int | None = None
    failure: TransportError | None = None
    #: Whether the journal, if there is one, has all that was imported.
    is_noted: bool = True


class ImportJournal:
    """The lines that were confirmed, on disk after each step: a repeated import leaves them out."""

    def __init__(self, file: Path | None, target: str) -> None:
        self._file = file
        self._target = target
        self._done: set[int] = set()
        if file is not None:
            if file.exists():
                self._done = self._read(file)
            # Before anything is sent: what cannot be noted would be sent again.
            try:
                self._write(file)
            except OSError as error:
                raise ConfigurationError(
                    f"--journal {file} cannot be written: {error.strerror}; nothing was sent"
                ) from None

    def __contains__(self, line: int) -> bool:
        return line in self._done

    def add(self, lines: Iterable[int]) -> None:
        """Keep that these lines are confirmed."""
        self._done.update(lines)
        if self._file is not None:
            self._write(self._file)

    def _write(self, file: Path) -> None:
        publish(file, json.dumps({"target": self._target, "lines": ranges_of(self._done)}))

    def _read(self, file: Path) -> set[int]:
        try:
            found = parse_json(read_given(file))
            target, ranges = found["target"], found["lines"]
            done = {line for first, last in ranges for line in range(first, last + 1)}
        except (OSError, ValueError, KeyError, TypeError):
            raise ConfigurationError(f"{file} is no journal of an import; name another file") from None
        if target != self._target:
            raise ConfigurationError(
                f"{file} is the journal of an import to {target}, not to {self._target}; name another file"
            )
        return done


async def import_messages(
    place: MessagePlace, lines: Iterable[tuple[int, MessageSections]], journal: ImportJournal
) -> ImportedMessages:
    """Send the messages of an export, in their order, except those that the journal has."""
    done = ImportedMessages()
    fresh = _fresh(lines, journal, done)
    async with place.reached() as transport:
        destination = transport.destination(place.path)
        try:
            while done.failure is None and (wave := list(islice(fresh, _AT_ONCE))):
                await _send_wave(destination, wave, journal, done)
        finally:
            await destination.close()
        if done.failure is not None and not (done.imported or done.refused):
            raise done.failure
    return done


async def _send_wave(
    destination: Destination,
    wave: list[tuple[int, MessageSections]],
    journal: ImportJournal,
    done: ImportedMessages,
) -> None:
    """Send some messages, those that are throttled again after a while."""
    for attempt in range(_MOST_ATTEMPTS):
        outcomes = await destination.send([Unit([as_it_was_sent(sections)]) for _, sections in wave])
        confirmed = [number for (number, _), error in zip(wave, outcomes, strict=True) if error is None]
        done.imported += confirmed
        try:
            journal.add(confirmed)
        except OSError as trouble:  # more would be sent that nobody knows of
            done.is_noted = False
            done.failure = TransportError("journal", f"the journal cannot be written: {trouble.strerror}")
            done.stopped_at = wave[-1][0] + 1
            return
        failed = [(one, error) for one, error in zip(wave, outcomes, strict=True) if error is not None]
        waits = [judge(error).wait for _, error in failed if judge(error).verdict is Remedy.BUSY]
        if not waits or attempt == _MOST_ATTEMPTS - 1:
            break
        await asyncio.sleep(max(waits))
        wave = [one for one, _ in failed]
    for (number, _), error in failed:
        if judge(error).verdict in (Remedy.POISON, Remedy.SUSPECT):
            done.refused[number] = error.description or error.condition
        elif done.failure is None:
            done.failure, done.stopped_at = error, number


def _fresh(
    lines: Iterable[tuple[int, MessageSections]], journal: ImportJournal, done: ImportedMessages
) -> Iterator[tuple[int, MessageSections]]:
    for number, sections in lines:
        if number in journal:
            done.before += 1
        else:
            yield number, sections
