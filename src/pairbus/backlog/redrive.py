"""Redriving: dead letters of backlog queues back into play, after their cause was mended.

A dead letter is sent to its backlog queue anew, as it was, and only then taken from the dead letters. A crash
in between leaves it in both places. Those that are not chosen are held until the end, or they would come
again and again, and are then given back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from pairbus import words
from pairbus.amqp.errors import DecodeError
from pairbus.amqp.message import (
    Header,
    MessageSections,
    encode_annotations,
    encode_application_properties,
    encode_header,
    scan,
)
from pairbus.conditions import NOT_FOUND
from pairbus.pairing.names import path_key
from pairbus.pump import PumpOptions, PumpPair, TransportError
from pairbus.pump.pump import open_transport
from pairbus.pump.transport import BacklogSource, Delivery, Destination, Transport, Unit

_AT_ONCE = 200
# Most queues have no dead letters: all that they take is the wait.
_QUEUES_AT_ONCE = 16
# The dead letters are on one place; when nothing comes for so long there is nothing more.
_WAIT = 1.0
_ADDED = {words.REASON, words.DESCRIPTION}
# Of what the service has written on it, all but these it writes anew.
_KEPT = {words.PARTITION_KEY, words.VIA_PARTITION_KEY}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterChoice:
    """Which dead letters are meant: all, or those for these paths, or with these reasons, or both."""

    paths: Sequence[str] = ()
    reasons: Sequence[str] = ()

    def includes(self, path: str, reason: str) -> bool:
        """Whether such a dead letter is meant."""
        wanted = {path_key(one) for one in self.paths}
        if wanted and path_key(path) not in wanted:
            return False
        return not self.reasons or reason.lower() in {one.lower() for one in self.reasons}


@dataclass(slots=True)
class Redriven:
    """How many went back into play, and how many stayed, by their reasons."""

    redriven: dict[str, int] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)


async def redrive(
    pair: PumpPair, queues: Sequence[str], choice: DeadLetterChoice, *, options: PumpOptions | None = None
) -> Redriven:
    """Put the chosen dead letters of these backlog queues back into them."""
    transport = open_transport(pair.secondary.resolve(), options or PumpOptions())
    done = Redriven()
    turns = asyncio.Semaphore(_QUEUES_AT_ONCE)

    async def take_turn(queue: str) -> None:
        async with turns:
            await _redrive_queue(transport, queue, choice, done)

    try:
        # One that fails does not call the others off in the middle of a message.
        results = await asyncio.gather(*map(take_turn, queues), return_exceptions=True)
    finally:
        await transport.close()
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return done


async def _redrive_queue(transport: Transport, queue: str, choice: DeadLetterChoice, done: Redriven) -> None:
    source = transport.source(f"{queue}/{words.DEAD_LETTER_QUEUE}")
    destination = transport.destination(queue)
    held: dict[bytes, Delivery] = {}
    seen: set[int] = set()
    try:
        while deliveries := await source.receive(_AT_ONCE, _WAIT):
            before = len(seen)
            chosen = _sort(deliveries, choice, done, held=held, seen=seen)
            await _move(source, destination, chosen, done)
            if len(seen) == before:  # the locks of the first ones have ended, and they come again
                break
    except TransportError as error:
        if error.condition != NOT_FOUND:
            raise
    finally:
        await source.release([*await source.stop_receiving(), *held.values()])
        await source.close()
        await destination.close()


def _sort(
    deliveries: Sequence[Delivery],
    choice: DeadLetterChoice,
    done: Redriven,
    *,
    held: dict[bytes, Delivery],
    seen: set[int],
) -> list[tuple[Delivery, bytes, str]]:
    """Those that are meant, with what to send and their reason; the others are held."""
    chosen = []
    for delivery in deliveries:
        number, path, reason, payload = _read(delivery)
        is_new = number not in seen
        seen.add(number)
        if payload is not None and choice.includes(path, reason):
            chosen.append((delivery, payload, reason))
            continue
        held[delivery.lock_token] = delivery
        if is_new:
            done.left[reason] = done.left.get(reason, 0) + 1
    return chosen


async def _move(
    source: BacklogSource,
    destination: Destination,
    chosen: Sequence[tuple[Delivery, bytes, str]],
    done: Redriven,
) -> None:
    outcomes = await destination.send([Unit([payload]) for _, payload, _ in chosen]) if chosen else []
    taken = [one for one, outcome in zip(chosen, outcomes, strict=True) if outcome is None]
    await source.complete([delivery for delivery, _, _ in taken])
    for _, _, reason in taken:
        done.redriven[reason] = done.redriven.get(reason, 0) + 1
    failed = [(one[0], outcome) for one, outcome in zip(chosen, outcomes, strict=True) if outcome is not None]
    if failed:
        await source.release([delivery for delivery, _ in failed])
        raise failed[0][1]


def _read(delivery: Delivery) -> tuple[int, str, str, bytes | None]:
    """Its number, its path, why it is here, and the message as it was; None if nobody can read it."""
    try:
        sections = scan(delivery.payload)
        properties = dict(sections.application_properties)
        annotations = {str(key): value for key, value in sections.annotations.items()}
        payload = _as_it_was(sections)
    except DecodeError:
        return 0, "", "unreadable", None
    number = int(annotations.get(words.SEQUENCE_NUMBER, 0))
    return number, str(properties.get("x-ms-path", "")), str(properties.get(words.REASON, "unknown")), payload


def _as_it_was(sections: MessageSections) -> bytes:
    header = sections.header
    annotations = {
        key: value
        for key, value in sections.annotations.items()
        if not str(key).startswith(words.ANNOTATION_PREFIX) or str(key) in _KEPT
    }
    properties = {key: value for key, value in sections.application_properties.items() if key not in _ADDED}
    return b"".join(
        (
            encode_header(Header(durable=header.durable, priority=header.priority, ttl=header.ttl)),
            encode_annotations(annotations) if annotations else b"",
            sections.properties_bytes,
            encode_application_properties(properties) if properties else b"",
            sections.body_bytes,
        )
    )
