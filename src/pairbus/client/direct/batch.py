"""Batches that hold their messages as the bytes that are sent."""

from collections.abc import Mapping
from typing import Any

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessageSizeExceededError

from pairbus.client.sending.message import PairedMessageBatch

from .encoding import Routing, encode_envelope, encode_message, routing_of

# What the SDK takes where nothing is said.
_DEFAULT_SIZE = 1024 * 1024


class EncodedBatch(ServiceBusMessageBatch):
    """The SDK's batch with its way of counting sizes, encoded by us. Messages in it already have an id."""

    def __init__(self, max_size_in_bytes: int | None = None) -> None:
        super().__init__(max_size_in_bytes)
        self._limit = max_size_in_bytes or _DEFAULT_SIZE
        self._bytes = 0
        #: Its messages.
        self.payloads: list[bytes] = []
        # Of the first message, as that was when it was added.
        self._routing: Routing | None = None

    def __len__(self) -> int:
        return len(self.payloads)

    def __repr__(self) -> str:
        return f"ServiceBusMessageBatch(max_size_in_bytes={self._limit}, message_count={len(self)})"

    @property
    def max_size_in_bytes(self) -> int:
        """How many bytes it holds."""
        return self._limit

    @property
    def size_in_bytes(self) -> int:
        """The size so far, with what the batch adds to each message."""
        return self._bytes

    def add_message(self, message: ServiceBusMessage | AmqpAnnotatedMessage | Mapping[str, Any]) -> None:
        """Try to add a message; MessageSizeExceededError if it does not fit any more."""
        if isinstance(message, Mapping):
            message = ServiceBusMessage(**message)
        payload = encode_message(message)
        grown = self._bytes + len(payload) + (5 if len(payload) < 256 else 8)
        if grown > self._limit:
            raise MessageSizeExceededError(
                message=f"ServiceBusMessageBatch has reached its size limit: {self._limit}"
            )
        if self._routing is None:
            self._routing = routing_of(message)
        self.payloads.append(payload)
        self._bytes = grown

    def encode(self) -> bytes:
        """The batch as one transfer."""
        assert self._routing is not None, "an empty batch is not sent"
        return encode_envelope(self._routing, self.payloads)


class AmqpMessageBatch(PairedMessageBatch, EncodedBatch):
    """What `create_message_batch` gives with `transport="amqp"`."""
