"""Requests to `$management` that not every client of the service makes, and the links to `$cbs`."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from pairbus import conditions, words
from pairbus.amqp.events import LinkAttached
from pairbus.amqp.message import Properties, encode_data, encode_properties, encode_value, scan
from pairbus.amqp.performatives import Source, Target
from pairbus.amqp.types import Array, Int, Symbol, Timestamp
from pairbus.broker.engine.settings import QueueSettings

from .bus import Bus
from .raw import RawClient
from .test_wrong_requests import Requests

PEEK = {"from-sequence-number": 0, "message-count": Int(10)}


@pytest.fixture
def client(bus_without_client: Bus) -> Iterator[RawClient]:
    namespace = bus_without_client.namespace
    namespace.create_queue("orders")
    namespace.create_queue("lines", QueueSettings(requires_session=True))
    with RawClient.of_owner(namespace) as client:
        yield client


def asked(node: Requests, operation: str, body: dict[str, Any]) -> tuple[int, Any]:
    """Status and body of the answer."""
    answer = node.ask({"operation": f"com.microsoft:{operation}"}, encode_value(body))
    return answer["statusCode"], node.answer.value()


def accept(client: RawClient, session_id: str) -> None:
    client.machine.begin().attach(
        name=session_id,
        role_sender=False,
        source=Source("lines", filter={Symbol(words.SESSION_FILTER): session_id}),
        target=Target("lines"),
    )
    client.flush()
    client.await_event(LinkAttached)


def test_a_filter_that_is_not_applied_is_not_confirmed(client: RawClient) -> None:
    selector = {Symbol("apache.org:selector-filter:string"): "1 = 0"}
    client.machine.begin().attach(
        name="some", role_sender=False, source=Source("orders", filter=selector), target=Target("orders")
    )
    client.flush()
    source = client.await_event(LinkAttached).attach.source
    assert isinstance(source, Source)
    assert (source.address, source.filter) == ("orders", None)


def test_a_peek_may_leave_bodies_out(client: RawClient) -> None:
    client.send(client.attach("orders", sends=True), encode_properties(Properties("m")) + encode_data(b"x"))
    node = Requests(client, "orders/$management")
    for omits, kind in ((True, "none"), (False, "data"), (None, "data")):
        status, body = asked(node, "peek-message", PEEK | {"omit-message-body": omits})
        [entry] = body["messages"]
        found = scan(entry["message"])
        assert (status, found.body_kind, found.properties.message_id) == (200, kind, "m")


def test_a_session_without_a_state_has_null(client: RawClient) -> None:
    accept(client, "s")
    node = Requests(client, "lines/$management")
    assert asked(node, "get-session-state", {"session-id": "s"}) == (200, {"session-state": None})
    asked(node, "set-session-state", {"session-id": "s", "session-state": b"half"})
    assert asked(node, "get-session-state", {"session-id": "s"}) == (200, {"session-state": b"half"})
    asked(node, "set-session-state", {"session-id": "s", "session-state": None})
    assert asked(node, "get-session-state", {"session-id": "s"}) == (200, {"session-state": None})


def test_messages_are_deleted_in_batches(client: RawClient, bus_without_client: Bus) -> None:
    """The oldest of those that wait, if they were enqueued before a time."""
    bus, sender = bus_without_client, client.attach("orders", sends=True)
    node = Requests(client, "orders/$management")
    for number in range(5):
        client.send(sender, encode_data(bytes((number,))))
        bus.pass_time(1)
    locked = client.receive(client.attach("orders", sends=False))
    middle = Timestamp(int((bus.clock.now() - 1.5) * 1000))
    older = {"message-count": Int(2), "enqueued-time-utc": middle}
    assert asked(node, "batch-delete-messages", older) == (200, {"message-count": 2})
    assert asked(node, "batch-delete-messages", older) == (200, {"message-count": 1})
    assert asked(node, "batch-delete-messages", older)[0] == 204
    assert node.answer.application_properties[words.STATUS_CONDITION] == conditions.MESSAGE_NOT_FOUND
    left = asked(node, "peek-message", PEEK)[1]["messages"]
    bodies = [scan(entry["message"]).data_sections()[0] for entry in left]
    assert bodies == [scan(locked.payload).data_sections()[0], b"\x04"]
    assert all(scan(entry["message"]).header.delivery_count == 0 for entry in left)
    assert asked(node, "batch-delete-messages", {"message-count": Int(9)}) == (200, {"message-count": 1})


def test_messages_of_a_session_are_deleted_in_batches(client: RawClient, bus_without_client: Bus) -> None:
    sender = client.attach("lines", sends=True)
    for session_id in "sst":
        client.send(sender, encode_properties(Properties(group_id=session_id)) + encode_data(b"x"))
    accept(client, "s")
    node = Requests(client, "lines/$management")
    wanted = {"message-count": Int(9)}
    assert asked(node, "batch-delete-messages", wanted | {"session-id": "s"}) == (200, {"message-count": 2})
    assert asked(node, "batch-delete-messages", wanted)[0] == 400
    assert bus_without_client.namespace.message_count("lines") == 1


@pytest.mark.parametrize("text", ["deadletter-reason", "deadletter-description"])
def test_a_reason_that_finds_no_room_is_refused(
    client: RawClient, bus_without_client: Bus, text: str
) -> None:
    sender, receiver = client.attach("orders", sends=True), client.attach("orders", sends=False)
    client.send(sender, encode_data(b"x"))
    token = uuid.UUID(bytes_le=client.receive(receiver).tag)
    broker = bus_without_client.broker
    queue = broker._hosts["contoso"].engine.get_queue("orders")
    broker.call(lambda: setattr(queue.space, "limit", queue.size_bytes + 1000))
    node = Requests(client, "orders/$management")
    settled = {"disposition-status": "suspended", "lock-tokens": Array([token], uuid.UUID)}
    assert asked(node, "update-disposition", settled | {text: "x" * 20_000})[0] == 403
    assert asked(node, "update-disposition", settled | {text: "x" * 2_000})[0] == 200
    assert bus_without_client.namespace.message_count("orders/$DeadLetterQueue") == 1


def test_a_connection_has_one_sender_to_cbs(client: RawClient) -> None:
    first = client.attach("$cbs", sends=True)
    client.attach("$cbs", sends=True)
    refused = client.refusal().error
    assert refused is not None
    assert refused.condition == conditions.NOT_ALLOWED
    first.detach()
    client.flush()
    client.refusal()
    client.attach("$cbs", sends=True)
    client.attach("$cbs", sends=False)
