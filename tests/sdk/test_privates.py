"""What we read of the SDK beyond its public API is still there, and means what we take it for.

A test that fails here after a new version of the SDK names what broke; `pairbus.sdk.privates` says for each
what the client does without it.
"""

import socket
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus._pyamqp.aio._transport_async import WebSocketTransportAsync
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import ServiceBusError

from pairbus import conditions
from pairbus.broker import Broker, NamespaceHandle, OperationKind, QueueSettings
from pairbus.pairing.failures import FailureKind, classify
from pairbus.sdk import privates
from pairbus.sdk.failures import describe
from pairbus.sdk.privates import (
    batch_keywords,
    connection_of,
    encode_by_sdk,
    is_settled_by_request,
    keep_open_when_refused,
    link_limits,
    message_parts,
    sdk_error,
    sdk_request_error,
    sdk_token_error,
    sever,
    was_encoding,
    was_opening,
    wrapped_by,
)
from tests.waiting import PATIENCE, eventually


@pytest.fixture
def namespace() -> Iterator[NamespaceHandle]:
    with Broker({"contoso": 0}) as broker:
        broker["contoso"].create_queue("orders")
        yield broker["contoso"]


@pytest.fixture
async def client(namespace: NamespaceHandle) -> AsyncIterator[ServiceBusClient]:
    async with ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0) as client:
        yield client


async def test_a_batch_made_with_the_clients_keywords_is_sent_as_it_is(
    namespace: NamespaceHandle, client: ServiceBusClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    keywords = batch_keywords(client)
    assert keywords, "the client has no _amqp_transport any more"
    batch = ServiceBusMessageBatch(1000, **keywords)
    batch.add_message(ServiceBusMessage("in a batch"))
    made: list[object] = []
    begin = ServiceBusMessageBatch.__init__

    def note(self: Any, *args: Any, **given: Any) -> None:
        made.append(self)
        begin(self, *args, **given)

    monkeypatch.setattr(ServiceBusMessageBatch, "__init__", note)
    async with client.get_queue_sender("orders") as sender:
        await sender.send_messages(batch)
    assert made == [], "the sender has made another batch of the same messages"
    assert namespace.message_count("orders") == 1


@pytest.mark.parametrize("data", [b"x", [b"one", b"two"]])
def test_the_parts_of_a_message_are_read_where_the_sdk_has_them(data: Any) -> None:
    message = AmqpAnnotatedMessage(
        data_body=data,
        header={"priority": 1},
        annotations={"a": 1},
        properties={"message_id": "1"},
        application_properties={"b": 2},
        delivery_annotations={"c": 3},
        footer={"d": 4},
    )
    kind, body, *rest = message_parts(message)
    assert (kind, list(body)) == (message.body_type, list(message.body))
    assert rest == [
        message.header,
        message.annotations,
        message.properties,
        message.application_properties,
        message.delivery_annotations,
        message.footer,
    ]
    assert privates._read_parts(message) == (kind, body, *rest), "no such attributes any more"


def test_the_parts_of_a_message_that_has_them_elsewhere_are_read_as_all_do() -> None:
    elsewhere = SimpleNamespace(
        body_type="data",
        body=[b"x"],
        header=1,
        annotations=2,
        properties=3,
        application_properties=4,
        delivery_annotations=5,
        footer=6,
    )
    assert message_parts(elsewhere) == ("data", [b"x"], 1, 2, 3, 4, 5, 6)


async def test_an_open_sender_tells_its_limits(namespace: NamespaceHandle, client: ServiceBusClient) -> None:
    async with client.get_queue_sender("orders") as sender:
        batch = await sender.create_message_batch()
        limits = link_limits(sender)
        assert limits is not None, "no _max_message_size_on_link or _max_batch_size_on_link any more"
        assert limits.message >= limits.batch == batch.max_size_in_bytes


async def test_a_message_fetched_by_its_number_is_settled_by_a_request(
    namespace: NamespaceHandle, client: ServiceBusClient
) -> None:
    async with client.get_queue_sender("orders") as sender, client.get_queue_receiver("orders") as receiver:
        await sender.send_messages(ServiceBusMessage("later"))
        [message] = await receiver.receive_messages(max_wait_time=PATIENCE)
        assert not is_settled_by_request(message)
        await receiver.defer_message(message)
        assert message.sequence_number is not None
        [deferred] = await receiver.receive_deferred_messages([message.sequence_number])
        assert is_settled_by_request(deferred), "a fetched message has no _is_deferred_message any more"
        requests = namespace.count(OperationKind.MANAGEMENT)
        await receiver.complete_message(deferred)
        assert namespace.count(OperationKind.MANAGEMENT) == requests + 1


async def test_the_connection_of_a_sender_can_be_cut(
    namespace: NamespaceHandle, client: ServiceBusClient
) -> None:
    sender = client.get_queue_sender("orders")
    assert connection_of(sender) is None
    await sender.send_messages(ServiceBusMessage("opens it"))
    [seen] = namespace.connections()
    assert seen.closed_at is None
    connection = connection_of(sender)
    assert connection is not None, "a sender has no _handler._connection any more"
    sever(connection)
    await eventually(lambda: namespace.connections()[0].closed_at is not None)
    await sender.close()


async def test_a_websocket_keeps_its_session_where_it_is_cut() -> None:
    transport = WebSocketTransportAsync("contoso.example", port=443)
    assert hasattr(transport, "session"), "the session of a WebSocket is not called so any more"


async def test_what_is_gone_is_done_without() -> None:
    assert batch_keywords(object()) == {}
    assert link_limits(object()) is None
    assert not is_settled_by_request(object())
    assert connection_of(object()) is None
    sever(None)
    sever(object())


def chain_of(error: BaseException) -> list[BaseException]:
    chain = [error]
    for link in chain:
        chain += wrapped_by(link)
    return chain


async def test_a_refused_port_is_told_by_what_the_error_wraps_and_by_where_it_was_raised() -> None:
    with socket.socket() as bound:  # bound and not listening: it refuses
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        text = f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=root;SharedAccessKey=a2V5"
        client = ServiceBusClient.from_connection_string(f"{text};UseDevelopmentEmulator=true", retry_total=0)
        async with client:
            with pytest.raises(ServiceBusError) as raised:
                async with client.get_queue_sender("orders") as sender:
                    await sender.send_messages(ServiceBusMessage("x"))
    chain = chain_of(raised.value)
    assert any(isinstance(link, ConnectionRefusedError) for link in chain), "inner_error is gone"
    assert any(map(was_opening, chain)), "links are not opened by _open any more"
    assert not any(map(was_encoding, chain))


async def test_a_property_without_an_amqp_type_fails_where_it_is_encoded(
    namespace: NamespaceHandle, client: ServiceBusClient
) -> None:
    unfit = ServiceBusMessage("x", application_properties={"what": object()})  # type: ignore[dict-item]
    async with client.get_queue_sender("orders") as sender:
        with pytest.raises(ServiceBusError) as raised:
            await sender.send_messages(unfit)
    assert was_encoding(chain_of(raised.value)[-1]), "the modules that encode have other names"


async def test_a_property_whose_own_code_fails_is_no_outage(
    namespace: NamespaceHandle, client: ServiceBusClient
) -> None:
    class Lazy:
        """A text that is made up when it is needed."""

        def __str__(self) -> str:
            raise ConnectionResetError("the translations are not there") from KeyError("en")

    unfit = ServiceBusMessage("x", application_properties={"what": Lazy()})  # type: ignore[dict-item]
    async with client.get_queue_sender("orders") as sender:
        with pytest.raises(ServiceBusError) as raised:
            await sender.send_messages(unfit)
    assert classify(describe(raised.value)) is FailureKind.CALLER


def test_a_message_is_written_as_the_sdk_writes_it() -> None:
    written = encode_by_sdk(ServiceBusMessage(b"body", message_id="a").raw_amqp_message)
    assert written.endswith(b"\x00\x53\x75\xa0\x04body")
    assert b"\xa1\x01a" in written


@pytest.mark.parametrize(
    ("error", "name", "condition"),
    [
        (
            sdk_error("message", conditions.SERVER_BUSY, "wait"),
            "ServiceBusServerBusyError",
            conditions.SERVER_BUSY,
        ),
        (sdk_error("message", conditions.MESSAGE_SIZE_EXCEEDED, ""), "MessageSizeExceededError", None),
        (sdk_error("link", conditions.ENTITY_DISABLED, "off"), "MessagingEntityDisabledError", None),
        (sdk_error("link", conditions.NOT_FOUND, "gone"), "MessagingEntityNotFoundError", None),
        (sdk_error("connection", conditions.SOCKET_ERROR, "cut"), "ServiceBusConnectionError", None),
        (sdk_token_error(401, "no"), "ServiceBusAuthenticationError", conditions.CLIENT_ERROR),
        (
            sdk_request_error("Failed.", 404, conditions.NOT_FOUND, "x"),
            "ServiceBusError",
            conditions.NOT_FOUND,
        ),
    ],
)
def test_refusals_become_the_sdks_exceptions(
    error: ServiceBusError, name: str, condition: str | None
) -> None:
    assert name in [kind.__name__ for kind in type(error).__mro__]
    if condition is not None:
        assert describe(error).condition == condition


async def test_a_sender_keeps_its_link_when_a_message_alone_is_refused(
    namespace: NamespaceHandle, client: ServiceBusClient
) -> None:
    namespace.create_queue("by-session", QueueSettings(requires_session=True))
    sender = client.get_queue_sender("by-session")
    keep_open_when_refused(sender)
    await sender.send_messages(ServiceBusMessage("1", session_id="s"))
    connection = connection_of(sender)
    assert connection is not None
    with pytest.raises(ServiceBusError):
        await sender.send_messages(ServiceBusMessage("no session"))
    assert connection_of(sender) is connection, "the SDK has closed it"
    await sender.send_messages(ServiceBusMessage("2", session_id="s"))
    namespace.faults.set("reset")
    with pytest.raises(ServiceBusError):
        await sender.send_messages(ServiceBusMessage("3", session_id="s"))
    namespace.faults.clear()
    assert connection_of(sender) is not connection, "one that is broken is closed as before"
