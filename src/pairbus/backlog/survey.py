"""Looking at the backlog without touching it: what lies there, for whom, and what could not be sent.

A peek locks nothing and shows messages in every state. It costs an operation a page.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass

from pairbus import words
from pairbus.amqp.errors import DecodeError
from pairbus.conditions import NOT_FOUND
from pairbus.pairing.errors import MalformedEnvelope
from pairbus.pairing.names import id_text
from pairbus.pump.browsing import browse
from pairbus.pump.options import PumpOptions
from pairbus.pump.pair import PumpPair
from pairbus.pump.pump import opened_transport
from pairbus.pump.transport import Peeked, Transport
from pairbus.pump.unwrapping import open_envelope, read_postmark
from pairbus.wire.errors import TransportError

# The largest message of the Standard tier; Premium takes more, if the entity says so.
_STANDARD_SIZE = 262_144


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSighting:
    """A message that was seen in a backlog queue or in its dead letters."""

    queue: str
    is_dead: bool
    is_deferred: bool
    sequence_number: int
    message_id: str
    path: str
    session: str | None
    enqueued: float
    bytes: int
    #: Why it cannot be sent as it is, or why it is among the dead letters.
    reason: str | None = None


async def survey_queues(
    pair: PumpPair,
    queues: Sequence[str],
    options: PumpOptions,
    *,
    now: float,
    active: bool = True,
    dead_letters: bool = True,
) -> AsyncGenerator[MessageSighting, None]:
    """All messages of these queues, page by page; a missing queue counts as empty."""
    async with opened_transport(pair.secondary.resolve(), options) as transport:
        for queue in queues:
            for path, is_dead in ((queue, False), (f"{queue}/{words.DEAD_LETTER_QUEUE}", True)):
                if not (dead_letters if is_dead else active):
                    continue
                async for one in peek_all(transport, path):
                    yield _sight(one, queue, is_dead=is_dead, options=options, now=now)


async def peek_all(transport: Transport, path: str) -> AsyncIterator[Peeked]:
    """The messages of an entity in whatever state; a missing one has none."""
    source = transport.source(path)
    try:
        async for page in browse(source):
            for one in page:
                yield one
    except TransportError as error:
        if error.condition != NOT_FOUND:
            raise
    finally:
        await source.close()


def _sight(one: Peeked, queue: str, *, is_dead: bool, options: PumpOptions, now: float) -> MessageSighting:
    path, session, message_id, enqueued = "", None, "", 0.0
    reason: str | None = None
    sections = one.sections
    size = len(sections.payload)
    try:
        mark = read_postmark(sections)
        enqueued = mark.enqueued_ms / 1000
        message_id = id_text(sections.properties.message_id)
        opened = open_envelope(sections, mark, policy_of=options.policy_of, now_ms=int(now * 1000))
        path, session, size = opened.path, opened.session_id, len(opened.payload)
        if opened.expired:
            reason = "expired"
        elif size > _STANDARD_SIZE:
            reason = "too large for the Standard tier"
        if is_dead:
            reason = str(sections.application_properties.get(words.REASON) or "unknown")
    except (DecodeError, MalformedEnvelope) as error:
        reason = f"malformed: {error}"
    return MessageSighting(
        queue=queue,
        is_dead=is_dead,
        is_deferred=one.is_deferred,
        sequence_number=one.sequence_number,
        message_id=message_id,
        path=path,
        session=session,
        enqueued=enqueued,
        bytes=size,
        reason=reason,
    )
