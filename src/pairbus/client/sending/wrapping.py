"""Messages of a call as a backlog queue takes them: wrapped, compressed if they must be, in groups that fit.

1. What is near the limit is measured; all else is known to fit by the size of its body.
2. A message that goes by itself is written at once where its sender takes bytes, and has nothing that an
   envelope hides: then no copy is made of it. Any other is copied, and written when it is sent, where what
   cannot be written fails as the SDK's own send does. Several that fit are written at once, too.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessageSizeExceededError

from pairbus.amqp.message import encode_data
from pairbus.client.direct.encoding import (
    PlainEnvelope,
    Routing,
    enclose_plain,
    encode_all,
    encode_in_envelope,
    encode_to_enclose,
    fit,
    routing_of,
)
from pairbus.pairing.envelope import Natives, compress_body, wrap
from pairbus.pairing.headroom import BATCH_RESERVE, CERTAIN_ROOM, check_fit, split_batch
from pairbus.sdk.side import is_tracing

from .headers import check_headers_for_backlog
from .message import (
    Message,
    body_bytes,
    data_of,
    measure,
    message_id_of,
    natives_of,
    wrapped_copy,
    wrapped_plainly,
)

_PLAIN = Natives()


class WrappedMessage:
    """A wrapped message, as the SDK takes it or as bytes, and what its record says."""

    __slots__ = ("_native", "_routing", "message_id", "payload", "session_id", "size")

    def __init__(
        self,
        native: AmqpAnnotatedMessage | None,
        message_id: str,
        session_id: str | None,
        size: int,
        payload: bytes | None = None,
    ) -> None:
        """`size` is that of the body. Without a `native` there is a `payload`."""
        self._native = native
        self.message_id = message_id
        self.session_id = session_id
        self.size = size
        #: Once it is written.
        self.payload = payload
        self._routing: Routing | None = None

    @property
    def native(self) -> AmqpAnnotatedMessage:
        """What the SDK is given, where it does not take bytes."""
        assert self._native is not None, "it is given as bytes"
        return self._native

    @property
    def routing(self) -> Routing:
        """What the service routes it by."""
        if self._routing is None:
            native = self._native
            self._routing = Routing(self.message_id, None, None) if native is None else routing_of(native)
        return self._routing

    def encode(self, limit: int) -> bytes | None:
        """Its bytes; None if the SDK has to write it. Raises what the SDK raises if it cannot be written."""
        if self.payload is None:
            self.payload = encode_to_enclose(self.native, limit)
        return self.payload


class WrappedGroup(NamedTuple):
    """What is sent together: the messages, and the batch in which the SDK is given several of them, unless
    all of them are written.
    """

    messages: list[WrappedMessage]
    batch: ServiceBusMessageBatch | None = None


class Wrapping:
    """How messages are wrapped for a path, while backlog queues take so much."""

    def __init__(
        self,
        path: str,
        *,
        limit: int,
        batch_limit: int,
        new_batch: Callable[[int], ServiceBusMessageBatch],
        compresses: bool,
        clock: Callable[[], float],
        as_bytes: bool = False,
    ) -> None:
        """`limit` and `batch_limit` are those of a queue; `new_batch` makes an empty batch of so many bytes;
        `clock` gives Unix seconds. `as_bytes`: the sender takes bytes.
        """
        self.path = path
        self.limit = limit
        self.batch_limit = batch_limit
        self._new_batch = new_batch
        self._compresses = compresses
        self._clock = clock
        #: Whether messages that go alone are given as bytes, rule 2.
        self.as_bytes = as_bytes
        # Nothing else is known to fit, whatever its properties are.
        self._certain = min(limit, batch_limit) - CERTAIN_ROOM
        self._envelope = PlainEnvelope.of(wrap(path, _PLAIN).aliases)

    def wrap_all(self, messages: list[Message], scheduled_for: datetime | None) -> Iterable[WrappedGroup]:
        """What is sent together, in order. MessageTooLargeForBacklog if one fits no envelope."""
        if len(messages) == 1:
            return (WrappedGroup([self.wrap(messages[0], scheduled_for, alone=True)]),)
        return self._split([self.wrap(message, scheduled_for) for message in messages])

    def enclose(self, written: bytes) -> WrappedMessage | None:
        """A message in its envelope that has an id and data alone, as `written` for the primary, and goes
        alone; None if it is to be wrapped otherwise.
        """
        if not self.as_bytes or len(written) > self._certain:
            return None
        message_id, size, payload = enclose_plain(written, self._envelope)
        return WrappedMessage(None, message_id, None, size, payload)

    def wrap(
        self, message: Message, scheduled_for: datetime | None, *, alone: bool = False
    ) -> WrappedMessage:
        """A message in its envelope, which goes `alone` or not; MessageTooLargeForBacklog if it fits none."""
        check_headers_for_backlog(self.path, message)
        size = body_bytes(message)
        if alone and self.as_bytes and scheduled_for is None and size <= self._certain:
            found = encode_in_envelope(message, self._envelope)
            if found is not None and len(found[1]) <= self.batch_limit - BATCH_RESERVE:
                return WrappedMessage(None, found[0], None, size, found[1])
        natives = _PLAIN
        copy = wrapped_plainly(message, self._envelope.aliases) if scheduled_for is None else None
        if copy is None:
            natives = natives_of(message, scheduled_for)
            copy = wrapped_copy(message, wrap(self.path, natives), created_ms=int(self._clock() * 1000))
        if size > self.limit - CERTAIN_ROOM and measure(copy, alone=alone) > self.limit:
            copy = self._compress(message, natives)
        return WrappedMessage(copy, message_id_of(message), natives.session_id, size)

    def _compress(self, message: Message, natives: Natives) -> AmqpAnnotatedMessage:
        sections = data_of(message) if self._compresses else None
        body = None if sections is None else compress_body(b"".join(map(encode_data, sections)))
        copy = wrapped_copy(
            message, wrap(self.path, natives), created_ms=int(self._clock() * 1000), body=body
        )
        size, name = measure(copy), message_id_of(message)
        check_fit(self.path, message_id=name, size=size, overhead=0, backlog_limit=self.limit)
        return copy

    def _split(self, wrapped: list[WrappedMessage]) -> Iterator[WrappedGroup]:
        natives = [one.native for one in wrapped]
        payloads = encode_all(natives) if self.as_bytes and not is_tracing() else None
        if payloads is not None and fit(payloads, self.batch_limit - BATCH_RESERVE):
            for one, payload in zip(wrapped, payloads, strict=True):
                one.payload = payload
            yield WrappedGroup(wrapped)
            return
        try:
            yield WrappedGroup(wrapped, self._batch(wrapped))
            return
        except MessageSizeExceededError:
            sizes = [*map(measure, natives)]
        plan = split_batch(sizes, limit=self.batch_limit)
        # What is too large for any batch may still go by itself.
        alone = [range(index, index + 1) for index in plan.oversized]
        for indices in sorted([*plan.groups, *alone], key=lambda each: each.start):
            chosen = [wrapped[index] for index in indices]
            yield WrappedGroup(chosen, None if len(chosen) == 1 else self._batch(chosen))

    def _batch(self, wrapped: list[WrappedMessage]) -> ServiceBusMessageBatch:
        # The SDK does not count the envelope of a batch, which repeats ids of its first message.
        batch = self._new_batch(self.batch_limit - BATCH_RESERVE)
        for one in wrapped:
            batch.add_message(one.native)
        return batch
