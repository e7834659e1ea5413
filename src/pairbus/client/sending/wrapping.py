"""Messages of a call as a backlog queue takes them: wrapped, compressed if they must be, in groups that fit.

What is near the limit is measured; all else is known to fit by the size of its body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessageSizeExceededError

from pairbus.amqp.message import encode_data
from pairbus.pairing.envelope import Natives, Wrapped, compress_body, wrap
from pairbus.pairing.headroom import BATCH_RESERVE, CERTAIN_ROOM, check_fit, split_batch

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


class WrappedMessage(NamedTuple):
    """A wrapped message and what its record says."""

    message: AmqpAnnotatedMessage
    message_id: str
    session_id: str | None


class WrappedGroup(NamedTuple):
    """What is sent together: what the SDK is given, and the messages in it."""

    native: AmqpAnnotatedMessage | ServiceBusMessageBatch
    messages: list[WrappedMessage]


class Wrapping(NamedTuple):
    """How the messages of one call are wrapped for `path`: the largest message and batch, and the time."""

    path: str
    limit: int
    batch_limit: int
    #: Makes an empty batch of this many bytes.
    new_batch: Callable[[int], ServiceBusMessageBatch]
    compresses: bool
    now_ms: int

    def wrap(self, message: Message, scheduled_for: datetime | None) -> WrappedMessage:
        """A message in its envelope; MessageTooLargeForBacklog if it fits none."""
        natives = _PLAIN
        copy = wrapped_plainly(message, _plain_envelope(self.path)) if scheduled_for is None else None
        if copy is None:
            natives = natives_of(message, scheduled_for)
            copy = wrapped_copy(message, wrap(self.path, natives), created_ms=self.now_ms)
        if body_bytes(message) > self.limit - CERTAIN_ROOM and measure(copy) > self.limit:
            copy = self._compress(message, natives)
        return WrappedMessage(copy, message_id_of(message), natives.session_id)

    def _compress(self, message: Message, natives: Natives) -> AmqpAnnotatedMessage:
        sections = data_of(message) if self.compresses else None
        body = None if sections is None else compress_body(b"".join(map(encode_data, sections)))
        copy = wrapped_copy(message, wrap(self.path, natives), created_ms=self.now_ms, body=body)
        size, name = measure(copy), message_id_of(message)
        check_fit(self.path, message_id=name, size=size, overhead=0, backlog_limit=self.limit)
        return copy

    def groups(self, wrapped: list[WrappedMessage]) -> Iterable[WrappedGroup]:
        """What is sent together, in order."""
        return (WrappedGroup(wrapped[0].message, wrapped),) if len(wrapped) == 1 else self._split(wrapped)

    def _split(self, wrapped: list[WrappedMessage]) -> Iterator[WrappedGroup]:
        try:
            yield WrappedGroup(self._batch(wrapped), wrapped)
            return
        except MessageSizeExceededError:
            sizes = [measure(one.message) for one in wrapped]
        plan = split_batch(sizes, limit=self.batch_limit)
        # What is too large for any batch may still go by itself.
        alone = [range(index, index + 1) for index in plan.oversized]
        for indices in sorted([*plan.groups, *alone], key=lambda each: each.start):
            chosen = [wrapped[index] for index in indices]
            yield WrappedGroup(chosen[0].message if len(chosen) == 1 else self._batch(chosen), chosen)

    def _batch(self, wrapped: list[WrappedMessage]) -> ServiceBusMessageBatch:
        # The SDK does not count the envelope of a batch, which repeats ids of its first message.
        batch = self.new_batch(self.batch_limit - BATCH_RESERVE)
        for one in wrapped:
            batch.add_message(one.message)
        return batch


@lru_cache(maxsize=1024)
def _plain_envelope(path: str) -> Wrapped:
    """That of a message which has nothing but its path to be kept."""
    return wrap(path, _PLAIN)
