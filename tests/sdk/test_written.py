"""A sender of the SDK that takes messages as bytes does all else as it did: the same bytes on the wire, the
same errors, the same waits.

The first test fails with a version of the SDK that does something else where `pairbus.sdk.privates` stands in
for it. Then read what has changed, mend `take_written`, and put the new digest here and the version there; as
long as that is not done the client sends by the public way.
"""

import asyncio
import hashlib
import inspect
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus._pyamqp._encode import encode_frame
from azure.servicebus._pyamqp.aio._client_async import AMQPClientAsync, SendClientAsync
from azure.servicebus._pyamqp.aio._connection_async import Connection
from azure.servicebus._pyamqp.aio._sender_async import PendingDelivery, SenderLink
from azure.servicebus._pyamqp.aio._session_async import Session
from azure.servicebus._pyamqp.aio._transport_async import AsyncTransportMixin
from azure.servicebus._pyamqp.performatives import TransferFrame
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.aio._base_handler_async import BaseHandler
from azure.servicebus.aio._transport._pyamqp_transport_async import PyamqpTransportAsync
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.broker import Broker, NamespaceHandle, QueueSettings
from pairbus.client.direct.encoding import encode_envelope, routing_of
from pairbus.sdk import privates
from pairbus.sdk.privates import (
    encode_by_sdk,
    keep_open_when_refused,
    take_written,
    takes_written,
)
from tests.examples import examples
from tests.waiting import PATIENCE, eventually

# What is done in place of these, or counts on what they do.
STOOD_IN_FOR = (
    ServiceBusSender.send_messages,
    ServiceBusSender._send,
    ServiceBusSender._open,
    ServiceBusSender._create_handler,
    BaseHandler._check_live,
    BaseHandler._do_retryable_operation,
    PyamqpTransportAsync.send_messages_async,
    SendClientAsync._transfer_message_async,
    SendClientAsync._send_message_impl_async,
    SendClientAsync._client_run_async,
    SendClientAsync._on_send_complete_async,
    AMQPClientAsync._do_retryable_operation_async,
    SenderLink._outgoing_transfer,
    SenderLink._incoming_disposition,
    SenderLink.update_pending_deliveries,
    SenderLink.send_transfer,
    PendingDelivery,
    Session._outgoing_transfer,
    Connection._process_outgoing_frame,
    Connection._send_frame,
    AsyncTransportMixin.send_frame,
    AsyncTransportMixin.receive_frame,
    Connection._read_frame,
    encode_frame,
)
DIGEST = "27b4ff6bc503ea0a"
# A frame with nothing in it.
HEARTBEAT = bytes.fromhex("0000000802000000")


def test_what_is_done_in_place_of_the_sdk_is_what_it_does() -> None:
    sources = "\n".join(inspect.getsource(each) for each in STOOD_IN_FOR)
    assert hashlib.sha256(sources.encode()).hexdigest()[:16] == DIGEST


@pytest.fixture
def namespace() -> Iterator[NamespaceHandle]:
    with Broker({"contoso": 0}) as broker:
        broker["contoso"].create_queue("orders")
        yield broker["contoso"]


@asynccontextmanager
async def sender_to(namespace: NamespaceHandle, queue: str = "orders", **keywords: Any) -> AsyncIterator[Any]:
    client = ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0, **keywords)
    async with client:
        assert takes_written(client)
        sender: Any = client.get_queue_sender(queue)
        keep_open_when_refused(sender)
        take_written(sender)
        async with sender:
            yield sender


def message(name: str, size: int = 10, **parts: Any) -> ServiceBusMessage:
    return ServiceBusMessage(b"x" * size, message_id=name, **parts)


def written(name: str, size: int = 10, **parts: Any) -> bytes:
    return encode_by_sdk(message(name, size, **parts).raw_amqp_message)


def ids(namespace: NamespaceHandle, queue: str = "orders") -> list[str]:
    found = namespace._run(lambda engine, now: engine.node(queue).peek(0, 100, now))  # type: ignore[union-attr]
    return [each.message_id for each in found]


@settings(max_examples=examples(400), deadline=None)
@given(
    st.integers(0, 300),
    st.integers(0, 2**32 - 1),
    st.binary(min_size=4, max_size=4),
    st.sampled_from([0, 0x80013700]),
)
def test_a_frame_begins_as_the_sdk_writes_it(handle: int, number: int, tag: bytes, form: int) -> None:
    unsaid: dict[str, Any] = privates._UNSAID
    frame = TransferFrame(
        handle=handle, delivery_id=number, delivery_tag=tag, message_format=form, payload=b"", **unsaid
    )
    assert privates._transfer_head(handle, number, tag, form) == encode_frame(frame)[1]


async def frames_of(sender: Any, calls: list[tuple[str, Any]]) -> list[bytes]:
    """What goes out while these are called."""
    transport, found = sender._handler._connection._transport, []
    write = transport.write

    async def note(frame: bytes) -> None:
        found.append(bytes(frame))
        await write(frame)

    transport.write = note
    for name, given_ in calls:
        if name == "batch":
            await sender.send_written(given_, is_batch=True)
        else:
            await getattr(sender, name)(given_)
    return list(found)  # without what closes it


SIZES = (0, 1, 1000, 65_000, 200_000)  # the last two go in several frames


async def test_the_same_frames_go_out(namespace: NamespaceHandle) -> None:
    by_sdk: list[tuple[str, Any]] = []
    as_bytes: list[tuple[str, Any]] = []
    for number, size in enumerate((*SIZES, *SIZES)):
        parts: dict[str, Any] = (
            {"session_id": "s"} if number % 2 else {"application_properties": {"n": number}}
        )
        by_sdk.append(("send_messages", message(str(number), size, **parts)))
        as_bytes.append(("send_written", written(str(number), size, **parts)))
    as_bytes[3] = by_sdk[3]  # one after the other on one link
    async with sender_to(namespace) as one:
        expected = await frames_of(one, by_sdk)
    async with sender_to(namespace) as other:
        assert await frames_of(other, as_bytes) == expected
    assert ids(namespace) == 2 * [str(number) for number in range(10)]


async def test_a_batch_goes_out_as_the_sdk_sends_it(namespace: NamespaceHandle) -> None:
    group = [message(str(number), 5000) for number in range(30)]
    async with sender_to(namespace) as one:
        expected = await frames_of(one, [("send_messages", group)])
    payload = encode_envelope(routing_of(group[0]), [encode_by_sdk(each.raw_amqp_message) for each in group])
    async with sender_to(namespace) as other:
        assert await frames_of(other, [("batch", payload)]) == expected


async def test_what_is_refused_raises_the_same_and_the_link_stays(namespace: NamespaceHandle) -> None:
    namespace.create_queue("by-session", QueueSettings(requires_session=True))
    async with sender_to(namespace, "by-session") as sender:
        with pytest.raises(ServiceBusError) as theirs:
            await sender.send_messages(message("no session"))
        handler = sender._handler
        with pytest.raises(type(theirs.value)) as ours:
            await sender.send_written(written("no session"))
        assert str(ours.value) == str(theirs.value)
        assert sender._handler is handler
        await sender.send_written(written("1", session_id="s"))
    assert ids(namespace, "by-session") == ["1"]


@pytest.mark.parametrize("fault", [{"kind": "reset"}, {"kind": "disabled"}, {"kind": "busy"}])
async def test_what_strikes_raises_the_same(namespace: NamespaceHandle, fault: dict[str, Any]) -> None:
    raised = []
    for name, given_ in (("send_messages", message("a")), ("send_written", written("a"))):
        async with sender_to(namespace) as sender:
            namespace.faults.set(**fault)
            with pytest.raises(ServiceBusError) as met:
                await getattr(sender, name)(given_)
            raised.append((type(met.value), str(met.value), type(met.value.inner_exception)))
            namespace.faults.clear()
            await sender.send_written(written("after it, on whatever link there is"))
    assert raised[0] == raised[1]


async def test_a_try_has_the_time_that_it_is_given(namespace: NamespaceHandle) -> None:
    raised = []
    for name, given_ in (("send_messages", message("a")), ("send_written", written("a"))):
        async with sender_to(namespace) as sender:
            namespace.faults.set("silence")
            sender._config.try_timeout = 0.3
            with pytest.raises(OperationTimeoutError) as met:
                await getattr(sender, name)(given_)
            raised.append(str(met.value))
            namespace.faults.clear()
    assert raised[0] == raised[1]


async def test_who_is_cancelled_is_out_at_once(namespace: NamespaceHandle) -> None:
    async with sender_to(namespace) as sender:
        namespace.faults.set("silence")
        sending = asyncio.ensure_future(sender.send_written(written("a")))
        await eventually(lambda: bool(sender._handler._link._pending_deliveries))
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        namespace.faults.clear()


@pytest.mark.parametrize("turns", range(5))
async def test_who_is_cancelled_when_something_has_been_heard_is_out_at_once(
    namespace: NamespaceHandle, turns: int
) -> None:
    """Whatever was heard, and however far that has come. Python 3.11 then forgets the cancellation."""
    async with sender_to(namespace) as sender:
        namespace.faults.set("silence")
        sending = asyncio.ensure_future(sender.send_written(written("a")))
        await eventually(lambda: bool(sender._handler._link._pending_deliveries))
        sender._handler._connection._transport.reader.feed_data(HEARTBEAT)
        for _ in range(turns):
            await asyncio.sleep(0)
        sending.cancel()
        await asyncio.wait([sending], timeout=PATIENCE)
        was_out = sending.cancelled()
        namespace.faults.clear()
        sending.cancel()  # or else it would outlive its sender
        await asyncio.wait([sending])
        assert was_out


async def test_a_sender_that_is_closed_says_so(namespace: NamespaceHandle) -> None:
    async with sender_to(namespace) as sender:
        await sender.close()
        with pytest.raises(ValueError, match="already been shutdown") as theirs:
            await sender.send_messages(message("a"))
        with pytest.raises(ValueError, match="already been shutdown") as ours:
            await sender.send_written(written("a"))
    assert str(ours.value) == str(theirs.value)


async def test_a_token_that_is_old_is_renewed_first(namespace: NamespaceHandle) -> None:
    async with sender_to(namespace) as sender:
        await sender.send_written(written("1"))
        signer = sender._handler._cbs_authenticator
        signer._refresh_window = 10**9
        put_at, renewed = signer._token_put_time, []
        put = signer._put_token

        async def note(*given_: Any, **settings_: Any) -> None:
            renewed.append(put_at)
            await put(*given_, **settings_)

        signer._put_token = note
        await asyncio.wait_for(sender.send_written(written("2")), PATIENCE)
        assert renewed
    assert ids(namespace) == ["1", "2"]


async def test_a_full_window_is_waited_for(namespace: NamespaceHandle) -> None:
    async with sender_to(namespace) as sender:
        await sender.send_written(written("1"))
        session = sender._handler._session
        window, session.remote_incoming_window = session.remote_incoming_window, 0
        sending = asyncio.ensure_future(sender.send_written(written("2")))
        pending = sender._handler._link._pending_deliveries
        await eventually(lambda: bool(pending) and pending[0].transfer_state is not None)
        assert ids(namespace) == ["1"]
        session.remote_incoming_window = window
        await asyncio.wait_for(sending, PATIENCE)
    assert ids(namespace) == ["1", "2"]


async def test_frames_are_told_where_the_sdk_tells_them(
    namespace: NamespaceHandle, caplog: pytest.LogCaptureFixture
) -> None:
    async with sender_to(namespace, logging_enable=True) as sender:
        with caplog.at_level(logging.DEBUG, logger="azure.servicebus"):
            await sender.send_written(written("1"))
    assert any("TransferFrame" in record.getMessage() for record in caplog.records)


async def test_a_link_that_is_opened_anew_takes_bytes_too(namespace: NamespaceHandle) -> None:
    async with sender_to(namespace) as sender:
        await sender.send_written(written("1"))
        await sender._close_handler()
        await sender.send_written(written("2"))
    assert ids(namespace) == ["1", "2"]


@pytest.mark.parametrize("version", ["7.16.0", "8.0.0"])
def test_an_sdk_that_is_not_known_is_asked_in_the_public_way(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(privates, "VERSION", version)
    text = "Endpoint=sb://contoso.example;SharedAccessKeyName=root;SharedAccessKey=a2V5"
    assert not takes_written(ServiceBusClient.from_connection_string(text))
    assert not takes_written(object())
