"""Everything that is read of the SDK beyond its public API: one function for each such thing, and why.

`tests/sdk/test_privates.py` holds each of them against the SDK that is installed, so that a version that
moves one is found there and not in an outage. If one is gone the client goes on without it, slower or less
exact, as its text says; only `transport="amqp"` cannot do without the last four, whose modules are therefore
imported late. `pyproject.toml` bounds the version of the SDK for their sake, and a guard keeps every other
module away from what the SDK marks as its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from decimal import Decimal
from functools import partial
from operator import attrgetter
from struct import Struct
from types import TracebackType
from typing import Any, Literal, NamedTuple, cast

from azure.servicebus import __version__ as VERSION
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import ServiceBusError

from pairbus.plumbing.tasks import look_away

# Modules of the SDK that turn what the caller gave into bytes.
_ENCODERS = frozenset({"_encode", "_amqp_message", "message"})
# What its AMQP raises for the outcome of one message.
_OF_A_MESSAGE = frozenset({"MessageException", "MessageSendFailed"})
# The function of the SDK's clients, senders and receivers that connects, authenticates and attaches.
_OPENER = "_open"
# What a message is made of. Its attributes are called so, with a mark before them.
_PARTS = (
    "body_type",
    "data_body",
    "header",
    "annotations",
    "properties",
    "application_properties",
    "delivery_annotations",
    "footer",
)
_read_parts: Callable[[Any], tuple[Any, ...]] = attrgetter(*(f"_{name}" for name in _PARTS))
# Of what is done in place of the SDK, each version has to be looked at.
_KNOWN_VERSIONS, _KNOWN_TRANSPORT = ("7.15.0",), "PyamqpTransportAsync"
_u32 = Struct(">I").pack
_frame_head = Struct(">IBBH").pack
_BATCH_FORMAT = 0x80013700
# What a transfer does not say: of several frames, of settlement, of states.
_UNSAID = {
    "settled": False,
    "more": False,
    **dict.fromkeys(("rcv_settle_mode", "state", "resume", "aborted", "batchable")),
}
_UNSETTLED = b"\x56\x00\x56\x00" + 5 * b"\x40"  # the same, written
log = logging.getLogger(__name__)


def batch_keywords(client: Any) -> dict[str, Any]:
    """What a batch has to be made with, so that the senders of an SDK client take it as it is.

    Without it, a sender makes another batch of the same messages: the send costs twice the encoding.
    """
    transport = getattr(client, "_amqp_transport", None)
    return {} if transport is None else {"amqp_transport": transport}


def takes_written(client: Any) -> bool:
    """Whether the senders of an SDK client can take messages that are encoded already (`take_written`)."""
    transport = getattr(client, "_amqp_transport", None)
    return VERSION in _KNOWN_VERSIONS and getattr(transport, "__name__", None) == _KNOWN_TRANSPORT


def take_written(sender: Any) -> None:
    """Give a sender a method `send_written(payload, is_batch=False, timeout=None)`: `send_messages` for a
    message, or a batch, that is encoded already.

    A third of what the SDK takes for a send is to convert and to write the message and its frame, which it
    writes twice; it takes us a tenth of that. All else is done by the SDK: what it checks, how long it waits,
    what it raises. It does not trace such a message. Only for a sender whose client `takes_written`: without
    it, each send costs so much more, calls to the backlog do not travel together, and what a pump moves
    through the SDK is written anew by it, some types as others.
    """
    create = sender._create_handler

    def create_handler(auth: Any) -> None:
        create(auth)
        handler = sender._handler
        transfer = handler._transfer_message_async

        def transfer_message(delivery: Any, timeout: float = 0) -> Awaitable[Any]:
            _Transfers.teach(handler._link)
            return cast(Awaitable[Any], transfer(delivery, timeout))

        handler._transfer_message_async = transfer_message

    sender._create_handler = create_handler
    sender.send_written = partial(_send_written, sender)


class _Written:
    """What is passed on inside the SDK for a message that is encoded: by its sender, and by its link."""

    __slots__ = ("_code", "payload")

    def __init__(self, payload: bytes, *, is_batch: bool) -> None:
        self.payload = payload
        self._code = _BATCH_FORMAT if is_batch else 0

    @property
    def _message(self) -> _Written:
        return self


def _send_written(
    sender: Any, payload: bytes, *, is_batch: bool = False, timeout: float | None = None
) -> Awaitable[None]:
    # What `send_messages` does with a message once that is converted.
    sender._check_live()
    sending: Awaitable[None] = sender._do_retryable_operation(
        sender._send,
        message=_Written(payload, is_batch=is_batch),
        timeout=timeout,
        operation_requires_timeout=True,
        apply_try_timeout=True,
        require_last_exception=True,
    )
    return sending


class _Transfers:
    """How a link transfers what is written: as it does with a message that it has encoded."""

    def __init__(self, link: Any) -> None:
        from azure.servicebus._pyamqp.constants import SessionState, SessionTransferState

        self._link = link
        self._encode_and_transfer = link._outgoing_transfer
        self._mapped, self._okay = SessionState.MAPPED, SessionTransferState.OKAY

    @classmethod
    def teach(cls, link: Any) -> None:
        """Have a link and its connection take what is written, and what they took before as before."""
        if "_outgoing_transfer" in vars(link):
            return
        link._outgoing_transfer = cls(link).transfer
        transport = link._session._connection._transport
        encode_and_send = transport.send_frame

        def send_frame(channel: int, frame: Any, **settings: Any) -> Any:
            if type(frame) is bytes:
                return transport.write(frame)
            return encode_and_send(channel, frame, **settings)

        transport.send_frame = send_frame
        transport.receive_frame = _hear_cancellations(transport.receive_frame)

    async def transfer(self, delivery: Any) -> Any:
        link, written = self._link, delivery.message
        if type(written) is not _Written:
            return await self._encode_and_transfer(delivery)
        session, tag = link._session, _u32(link.delivery_count + 1)
        connection, number = session._connection, session.next_outgoing_id
        head = _transfer_head(link.handle, number, tag, written._code)
        size = 8 + len(head) + len(written.payload)
        is_usual = size <= connection._remote_max_frame_size and session.remote_incoming_window > 0
        if is_usual and session.state is self._mapped and not link.network_trace:
            delivery.frame = {"delivery_id": number}
            frame = b"%b%b%b" % (_frame_head(size, 2, 0, session.channel), head, written.payload)
            await connection._process_outgoing_frame(session.channel, frame)
            session.next_outgoing_id += 1
            session.remote_incoming_window -= 1
            session.outgoing_window -= 1
            delivery.transfer_state = self._okay
        else:  # in several frames, later, or with a word about it
            delivery.frame = {
                **_UNSAID,
                "handle": link.handle,
                "delivery_tag": tag,
                "message_format": written._code,
                "payload": written.payload,
            }
            await session._outgoing_transfer(
                delivery, link.network_trace_params if link.network_trace else None
            )
        if delivery.transfer_state is self._okay:
            link.delivery_count += 1
            link.current_link_credit -= 1
            delivery.sent = True
        return False  # it is not settled with that


def _hear_cancellations(receive_frame: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Let who is cancelled just when a frame has come be cancelled.

    The SDK waits for frames by `asyncio.wait_for`, which before Python 3.12 gives what has come and forgets
    the cancellation. Without this, such a send goes on until it is answered, or cancelled once more.
    """

    async def receive(timeout: float | None = None, **settings: Any) -> Any:
        try:
            async with asyncio.timeout(timeout):
                return await receive_frame(**settings)
        except TimeoutError:
            return None, None  # as it says it

    return receive


def _transfer_head(handle: int, number: int, tag: bytes, form: int) -> bytes:
    """A transfer of one frame, not settled, without its payload."""
    fields = b"%b%b\xa0\x04%b%b%b" % (_uint(handle), _uint(number), tag, _uint(form), _UNSETTLED)
    return b"\x00\x53\x14\xc0%c\x0b%b" % (len(fields) + 1, fields)


def _uint(value: int) -> bytes:
    if value > 255:
        return b"\x70" + _u32(value)
    return b"\x52%c" % value if value else b"\x43"


def message_parts(raw: Any) -> tuple[Any, ...]:
    """A message at a glance: the type of its body, the data that it is if it is that, header, annotations,
    properties, application properties, delivery annotations and footer.

    To ask for one after the other, and for a new generator of data each time, takes a quarter of what it
    takes to write a message. Without it that is done.
    """
    try:
        return _read_parts(raw)
    except AttributeError:
        return tuple(getattr(raw, "body" if name == "data_body" else name) for name in _PARTS)


class LinkLimits(NamedTuple):
    """The largest message and the largest batch that a link takes, in bytes."""

    message: int
    batch: int


def link_limits(sender: Any) -> LinkLimits | None:
    """What an open sender takes; None if it does not tell.

    There is no public word for the largest single message, which Premium lets differ from a batch, and none
    for either that does not make a batch. Without it nothing is refused before it is sent. A sender of our
    own has a word for it.
    """
    told = getattr(sender, "link_limits", None)
    if isinstance(told, LinkLimits):
        return told
    message = int(getattr(sender, "_max_message_size_on_link", 0) or 0)
    batch = int(getattr(sender, "_max_batch_size_on_link", 0) or 0)
    return LinkLimits(message, batch) if message and batch else None


def is_settled_by_request(message: Any) -> bool:
    """Whether the SDK settles a received message by a request of its own, as it does after a fetch by number.

    Without this, those requests are missing in the bill.
    """
    return bool(getattr(message, "_is_deferred_message", False))


def connection_of(sender: Any) -> Any:
    """The connection of a sender, while it has one; None otherwise.

    There is no public way to close it whatever the peer does, and the SDK's own clean-up forgets one that it
    could not close. Without this, a client that fails over for hours runs out of sockets.
    """
    return getattr(getattr(sender, "_handler", None), "_connection", None)


def sever(connection: Any) -> None:
    """Cut what is still open of a connection, TCP or WebSocket."""
    transport = getattr(connection, "_transport", None)
    stream = getattr(getattr(transport, "writer", None), "transport", None)
    if stream is not None:
        stream.abort()
    websocket = getattr(transport, "session", None)
    if websocket is not None and not websocket.closed:
        _in_background(websocket.close())


_closing: set[asyncio.Future[Any]] = set()


def _in_background(work: Awaitable[Any]) -> None:
    task = asyncio.ensure_future(work)
    _closing.add(task)
    task.add_done_callback(_forget)


def _forget(task: asyncio.Future[Any]) -> None:
    _closing.discard(task)
    look_away(task)


def keep_open_when_refused(sender: Any) -> None:
    """Let a sender that does not retry keep its link where the service has refused a message alone.

    The SDK closes it, and takes half a second or more to open the next. Without this, what follows a refused
    message waits for that, each time.
    """
    handle = getattr(sender, "_handle_exception", None)
    if handle is None:
        return

    async def handle_or_keep(error: Exception) -> Any:
        if any(type(inner).__name__ in _OF_A_MESSAGE for inner in wrapped_by(error)):
            raise error
        return await handle(error)

    sender._handle_exception = handle_or_keep


def wrapped_by(error: BaseException) -> Iterator[BaseException]:
    """What an error of the SDK wraps: public errors by one attribute, those of its AMQP by another.

    Without this, a bad certificate and a refused port look the same.
    """
    for inner in (
        getattr(error, "inner_exception", None),
        getattr(error, "inner_error", None),
        error.__cause__,
    ):
        if isinstance(inner, BaseException):
            yield inner


def was_encoding(error: BaseException) -> bool:
    """Whether an error came up through the code that encodes: then it is the caller's, whatever its class.

    Without this, a property that AMQP has no type for, or whose own `__str__` fails, counts towards a
    failover.
    """
    return any(_module(frame) in _ENCODERS for frame in _frames(error))


def was_opening(error: BaseException) -> bool:
    """Whether an error came up through the SDK's function that opens a link: then nothing was sent.

    Without this, such a send counts as one of unknown outcome, and its message may be sent again.
    """
    return any(frame.tb_frame.f_code.co_name == _OPENER for frame in _frames(error))


def _frames(error: BaseException) -> Iterator[TracebackType]:
    """The frames that an error has passed, the one that raised it last."""
    trace = error.__traceback__
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _module(frame: TracebackType) -> str:
    """The name of a frame's module, without its package."""
    return str(frame.tb_frame.f_globals.get("__name__", "")).rpartition(".")[2]


def encode_by_sdk(raw: AmqpAnnotatedMessage, *, alone: bool = False) -> bytes:
    """A message as the SDK writes it, with its span where the SDK is told to trace.

    What our own AMQP sends is to be what the SDK would send, of every type that the SDK knows. What it cannot
    write it refuses in one way when the message is sent `alone`, and in another for batches and requests.
    """
    from azure.servicebus._common.tracing import trace_message
    from azure.servicebus._pyamqp._encode import encode_payload
    from azure.servicebus._transport._pyamqp_transport import PyamqpTransport

    transport: Any = PyamqpTransport
    outgoing: Any = trace_message(transport.to_outgoing_amqp_message(raw), amqp_transport=transport)
    try:
        return bytes(encode_payload(bytearray(), outgoing))
    except Exception as error:
        if not alone:
            raise
        raise ServiceBusError(message=f"Handler failed: {error}.", error=error) from error


def decimal_bytes(value: Decimal) -> bytes:
    """A number as the 16 bytes of AMQP's decimal128, which only the SDK reckons with."""
    from azure.servicebus._pyamqp._encode import encode_decimal128

    if not value.is_finite():  # which it reads and does not write
        return (b"\x7c" if value.is_nan() else b"\xf8" if value < 0 else b"\x78") + bytes(15)
    written = bytearray()
    encode_decimal128(written, value, with_constructor=False)
    return bytes(written)


#: Where a refusal was heard: of the whole connection, of a link, or of one message.
ErrorLevel = Literal["connection", "link", "message"]


def sdk_error(level: ErrorLevel, condition: str, description: str) -> ServiceBusError:
    """What the SDK raises for what a peer has said.

    An application that changes to our own AMQP catches the same classes, with the same conditions.
    """
    from azure.servicebus._pyamqp import error as amqp_error

    kinds: dict[ErrorLevel, type[amqp_error.AMQPException]] = {
        "connection": amqp_error.AMQPConnectionError,
        "link": amqp_error.AMQPLinkError,
        "message": amqp_error.MessageException,
    }
    kind, told = kinds[level], condition.encode()
    try:
        known: Any = amqp_error.ErrorCondition(told)
    except ValueError:
        return _as_raised(kind(told, description=description))
    return _as_raised(
        (amqp_error.MessageSendFailed if level == "message" else kind)(known, description=description)
    )


def sdk_token_error(status: int, description: str) -> ServiceBusError:
    """What the SDK raises if `$cbs` does not take a token."""
    from azure.servicebus._pyamqp import error as amqp_error

    failure: Any = amqp_error.TokenAuthFailure
    return _as_raised(failure(status, description))


def sdk_request_error(what: str, status: int, condition: str | None, description: str) -> ServiceBusError:
    """What the SDK raises for a request that `$management` refuses."""
    from azure.servicebus._transport._pyamqp_transport import PyamqpTransport

    refuse: Any = PyamqpTransport.handle_amqp_mgmt_error
    try:
        refuse(log, what, None if condition is None else condition.encode(), description, status)
    except ServiceBusError as error:
        return error
    raise AssertionError("the SDK raises it")


def _as_raised(error: Exception) -> ServiceBusError:
    from azure.servicebus._transport._pyamqp_transport import PyamqpTransport

    return PyamqpTransport.create_servicebus_exception(log, error)
