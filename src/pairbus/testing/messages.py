"""What is in a queue, for assertions: seen inside the broker, so nothing is counted, locked or taken."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pairbus import words
from pairbus.amqp.message import scan
from pairbus.broker.engine.message import StoredMessage
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.queue import MessageQueue
from pairbus.broker.handle import NamespaceHandle
from pairbus.broker.links.wire import render_peeked
from pairbus.pairing.names import id_text
from pairbus.plumbing.json_text import parse_json

# Far longer than a message takes that is on its way; a test ends as soon as it is there.
_PATIENCE = 30.0
_PAUSE = 0.01
_ALL = 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenMessage:
    """A message as it lies in a queue, a subscription or their dead letters."""

    sequence_number: int
    #: `active`, `deferred` or `scheduled`.
    state: str
    #: The bytes of the body; of a value or a sequence, its AMQP encoding.
    body: bytes
    message_id: str
    session_id: str | None
    subject: str | None
    delivery_count: int
    application_properties: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()

    def json(self) -> Any:
        """The body, which is JSON."""
        return parse_json(self.body)

    @property
    def dead_letter_reason(self) -> str | None:
        """Why it is among the dead letters."""
        reason = self.application_properties.get(words.REASON)
        return None if reason is None else str(reason)


def messages_in(namespace: NamespaceHandle, path: str, *, dead_letters: bool = False) -> list[SeenMessage]:
    """The messages at a path in their order, in whatever state: a queue, or `topic/Subscriptions/name`."""
    chosen = f"{path}/{words.DEAD_LETTER_QUEUE}" if dead_letters else path

    def look(engine: Namespace, now: float) -> list[SeenMessage]:
        queue = engine.node(chosen)
        if not isinstance(queue, MessageQueue):
            raise TypeError(
                f"{path} is a topic; look into one of its subscriptions, {path}/Subscriptions/NAME"
            )
        return [_seen(message) for message in queue.peek(0, _ALL, now)]

    return namespace._run(look)


def assert_messages(
    namespace: NamespaceHandle,
    path: str,
    *,
    expected: Sequence[str | bytes] | int,
    dead_letters: bool = False,
    within: float = _PATIENCE,
) -> list[SeenMessage]:
    """Wait until exactly these bodies, or so many messages, are at a path, and return the messages.

    If that is not so `within` seconds, the AssertionError shows what is there instead.
    """

    def is_so(found: list[SeenMessage]) -> bool:
        if isinstance(expected, int):
            return len(found) == expected
        return [one.body for one in found] == [_bytes(body) for body in expected]

    deadline = time.monotonic() + within
    while not is_so(found := messages_in(namespace, path, dead_letters=dead_letters)):
        if time.monotonic() >= deadline:
            what = "dead letters" if dead_letters else "messages"
            there = "\n".join(f"  {one}" for one in found) or "  none"
            raise AssertionError(f"{path} of {namespace.name} has other {what} than {expected!r}:\n{there}")
        time.sleep(_PAUSE)
    return found


def assert_empty(namespace: NamespaceHandle, path: str, *, within: float = _PATIENCE) -> None:
    """Wait until a path has neither messages nor dead letters."""
    assert_messages(namespace, path, expected=0, within=within)
    assert_messages(namespace, path, expected=0, dead_letters=True, within=within)


def _bytes(body: str | bytes) -> bytes:
    return body.encode() if isinstance(body, str) else body


def _seen(message: StoredMessage) -> SeenMessage:
    sections = scan(bytes(render_peeked(message)))
    body = sections.data() if sections.body_kind == "data" else sections.body_bytes
    return SeenMessage(
        sequence_number=message.sequence_number,
        state=message.state.name.lower(),
        body=body,
        message_id=id_text(sections.properties.message_id),
        session_id=sections.properties.group_id,
        subject=sections.properties.subject,
        delivery_count=message.delivery_count,
        application_properties=dict(sections.application_properties),
    )
