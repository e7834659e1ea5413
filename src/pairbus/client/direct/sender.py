"""A sender on our own AMQP, with the methods of the SDK's that are used, and its errors.

1. One line a sender, as with the SDK: what breaks one breaks no other, and what ends one needs no other.
2. Any number of callers may send at once. Their transfers leave in order, and each waits for its own answer.
3. Deadlines are the callers': a caller that stops waiting cancels its call, which leaves nothing behind. A
   transfer that was on its way may still arrive.
4. A link that was lost is opened again by the next call, on the same line if that is still there. What is
   raised on the way to an open link comes out of `_open`, by which it is known that nothing was sent.
5. Calls under way when it is closed are lost: close a shared sender after the last call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from azure.servicebus.exceptions import ServiceBusError

from pairbus import conditions, words
from pairbus.amqp.errors import EncodeError
from pairbus.amqp.types import Array
from pairbus.plumbing.tasks import look_away
from pairbus.sdk.privates import ErrorLevel, LinkLimits, sdk_error, sdk_request_error, sdk_token_error
from pairbus.wire.answers import SendAnswer
from pairbus.wire.errors import (
    CONNECTION_LOST,
    SUSPECTED,
    UNANSWERED,
    TokenMissing,
    TokenRefused,
    TransportError,
    is_denial,
)
from pairbus.wire.line import AmqpLine, Place
from pairbus.wire.links import BATCH_FORMAT, SenderLink
from pairbus.wire.requests import RequestLink
from pairbus.wire.sign_in import open_line
from pairbus.wire.tokens import TokenSource

from .batch import EncodedBatch
from .encoding import Routing, encode_message, routing_of, scheduled_copy

# The SDK's words for what has no name in AMQP.
_WORDS = {
    CONNECTION_LOST: conditions.SOCKET_ERROR,
    UNANSWERED: conditions.SOCKET_ERROR,
    # Which of several messages it was that made the peer detach the link is not known.
    SUSPECTED: conditions.DETACH_FORCED,
}
# Longer than any caller waits: its own deadline comes first.
_PATIENCE = 300.0
# What the SDK takes for the largest where a link does not tell.
_LARGEST = 1024 * 1024
_LARGEST_BATCH, _LARGEST_STANDARD_BATCH = 1024 * 1024, 256 * 1024
_LISTS = (list, tuple)
_CLOSED = "The handler has already been shutdown. Please use ServiceBusClient to create a new instance."


@dataclass(frozen=True, slots=True)
class WayIn:
    """How to get into a namespace: where it is, with which tokens, and by which names."""

    place: Place
    tokens: TokenSource
    container_id: str
    user_agent: str


class AmqpSender:
    """Sends to one entity."""

    def __init__(self, way_in: WayIn, path: str) -> None:
        self.entity_name = path
        self._way_in = way_in
        self._line: AmqpLine | None = None
        self._link: SenderLink | None = None
        self._requests: RequestLink | None = None
        self._opening: asyncio.Task[SenderLink] | None = None
        self._asking = asyncio.Lock()
        self._is_closed = False

    async def __aenter__(self) -> AmqpSender:
        await self._open()
        return self

    async def __aexit__(self, *details: object) -> None:
        await self.close()

    @property
    def is_lost(self) -> bool:
        """Whether the next call has to connect again."""
        return self._link is None or self._link.lost is not None

    @property
    def link_limits(self) -> LinkLimits | None:
        """The largest message and batch that the link takes; None before it was open."""
        if self._link is None or self._link.link.remote_attach is None:
            return None
        message = self._link.max_message_size or _LARGEST
        told = (self._link.link.remote_attach.properties or {}).get(words.BATCH_SIZE)
        if isinstance(told, int) and told > 0:
            return LinkLimits(message, int(told))
        return LinkLimits(message, _LARGEST_BATCH if message >= _LARGEST_BATCH else _LARGEST_STANDARD_BATCH)

    # -- sending

    async def send_messages(self, message: Any, *, timeout: float | None = None) -> Sequence[bytes]:
        """Send a message, a list or a batch; done when the service has taken all of it. The messages as they
        were written, so that nobody writes them again to know what they weigh.
        """
        await self._open()
        if isinstance(message, _LISTS):
            batch = await self.create_message_batch()
            for one in message:
                batch.add_message(one)
            message = batch
        if isinstance(message, EncodedBatch):
            await self.send_written(message.encode(), is_batch=True)
            return message.payloads
        payload = encode_message(message, alone=True)
        await self.send_written(payload)
        return (payload,)

    def send_written(self, payload: bytes, *, is_batch: bool = False) -> Awaitable[Any]:
        """Send a message, or a batch, that is encoded already.

        On an open link it has left when this returns: a coroutine would cost more than its frame.
        """
        link, form = self._link, BATCH_FORMAT if is_batch else 0
        if link is None or link.lost is not None or self._is_closed:
            return self._post_when_open(payload, form)
        posted = _Posted(link)
        link.post(payload, posted, form)
        return posted

    async def _post_when_open(self, payload: bytes, form: int) -> None:
        link = await self._open()
        posted = _Posted(link)
        if link.lost is None:
            link.post(payload, posted, form)
        else:  # since it was opened
            posted.conclude(0, None, link.lost)
        await posted

    async def create_message_batch(self, max_size_in_bytes: int | None = None) -> EncodedBatch:
        """An empty batch, as large as the link takes."""
        await self._open()
        limits = self.link_limits
        assert limits is not None, "an open link has limits"
        if max_size_in_bytes and max_size_in_bytes > limits.batch:
            raise ValueError(
                f"Max message size: {max_size_in_bytes} is too large, "
                f"acceptable max batch size is: {limits.batch} bytes."
            )
        return EncodedBatch(max_size_in_bytes or limits.batch)

    # -- requests

    async def schedule_messages(self, messages: Any, schedule_time_utc: Any) -> list[int]:
        """Have a message, or several, enqueued at a time; their sequence numbers."""
        listed = list(messages) if isinstance(messages, Sequence) else [messages]
        entries = []
        for message in listed:
            stamped = scheduled_copy(message, schedule_time_utc)
            entries.append({**_named(routing_of(stamped)), "message": encode_message(stamped)})
        answer = await self._ask("schedule-message", {"messages": entries}, "Scheduling messages failed.")
        found = {str(key): value for key, value in answer.items()} if isinstance(answer, dict) else {}
        return [int(number) for number in found.get("sequence-numbers", ())]

    async def cancel_scheduled_messages(self, sequence_numbers: Any) -> None:
        """Cancel what was scheduled."""
        numbers = [sequence_numbers] if isinstance(sequence_numbers, int) else list(sequence_numbers)
        body = {"sequence-numbers": Array(numbers, int)}
        await self._ask("cancel-scheduled-message", body, "Service request failed.")

    async def _ask(self, operation: str, body: dict[str, Any], what: str) -> Any:
        requests = await self._open_requests()
        try:
            request = {"operation": f"{words.OPERATION_PREFIX}{operation}"}
            answer, found = await requests.ask(request, body, timeout=_PATIENCE)
        except TransportError as error:
            raise as_sdk_error(error, _level(self._line)) from error
        except EncodeError as error:
            raise ServiceBusError(message=f"Handler failed: {error}.", error=error) from error
        status = answer.get(words.STATUS)
        if status == 200:
            return found
        condition = answer.get(words.STATUS_CONDITION)
        text = str(answer.get(words.STATUS_TEXT) or "")
        number = status if isinstance(status, int) else 0
        raise sdk_request_error(what, number, None if condition is None else str(condition), text)

    async def _open_requests(self) -> RequestLink:
        # Named like its elder: what is raised here was raised before anything was sent.
        async def _open() -> RequestLink:
            link = await self._open()
            try:
                return await RequestLink.open(
                    link.line, f"{self.entity_name}/{words.MANAGEMENT}", timeout=_PATIENCE
                )
            except TransportError as error:
                raise as_sdk_error(error, "link") from error

        async with self._asking:
            if self._requests is None or self._requests.lost is not None:
                self._requests = await _open()
            return self._requests

    # -- opening and closing

    async def _open(self) -> SenderLink:
        if self._is_closed:
            raise ValueError(_CLOSED)
        if self._link is not None and self._link.lost is None:
            return self._link
        if self._opening is None or self._opening.done():
            self._opening = asyncio.get_running_loop().create_task(self._attach())
            self._opening.add_done_callback(look_away)
        try:
            return await asyncio.shield(self._opening)
        except TransportError as error:
            raise as_sdk_error(error, _level(self._line)) from error

    async def _attach(self) -> SenderLink:
        way, line = self._way_in, self._line
        if line is None or line.lost is not None:
            self._line = None
            line = self._line = await open_line(
                way.place,
                way.tokens,
                timeout=_PATIENCE,
                container_id=way.container_id,
                user_agent=way.user_agent,
            )
        elif self._link is not None and is_denial(self._link.lost):
            line.distrust(self.entity_name)
        await line.authorize(self.entity_name)
        link = self._link = await SenderLink.open(line, self.entity_name, timeout=_PATIENCE)
        return link

    async def close(self) -> None:
        """Close the line, and cut it if that is cancelled."""
        self._is_closed = True
        try:
            if self._opening is not None and not self._opening.done():
                self._opening.cancel()
                await asyncio.wait({self._opening})
            if self._line is not None:
                await self._line.close()
        finally:
            if self._line is not None:
                self._line.cut(CONNECTION_LOST, "the sender was closed")


class _Posted(SendAnswer):
    """A message or a batch on its way, and the answer to it."""

    __slots__ = ()

    def failure(self, error: TransportError) -> Exception:
        link = cast(SenderLink, self.postman)
        is_of_message = self.fate == "refused" or link.lost is None
        return as_sdk_error(error, "message" if is_of_message else _level(link.line))


def _named(routing: Routing) -> dict[str, Any]:
    """What a request says of a message beside it: always an id, and what else there is."""
    found = {"session-id": routing.session_id, "partition-key": routing.partition_key}
    return {"message-id": routing.message_id, **{name: value for name, value in found.items() if value}}


def _level(line: AmqpLine | None) -> ErrorLevel:
    return "connection" if line is None or line.lost is not None else "link"


def as_sdk_error(error: TransportError, level: ErrorLevel) -> ServiceBusError:
    """Our error as the exception of the SDK, with ours and its causes behind it."""
    if isinstance(error, TokenRefused):
        raised = sdk_token_error(error.status, error.description)
    elif isinstance(error, TokenMissing) and isinstance(error.__cause__, Exception):
        cause = error.__cause__
        raised = ServiceBusError(message=f"Handler failed: {cause}.", error=cause)
    else:
        word = _WORDS.get(error.condition)
        where: ErrorLevel = "connection" if word == conditions.SOCKET_ERROR else level
        raised = sdk_error(where, word or error.condition, error.description)
    raised.__cause__ = error
    return raised
