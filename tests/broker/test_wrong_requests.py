"""Requests that no client should send: each is answered, and the link that it came on lives on."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from pairbus import conditions, words
from pairbus.amqp.events import TransferReceived
from pairbus.amqp.link import Link
from pairbus.amqp.message import (
    Properties,
    encode_application_properties,
    encode_data,
    encode_properties,
    encode_value,
    scan,
)
from pairbus.amqp.performatives import Accepted, Rejected, Source, Target
from pairbus.amqp.types import Array, Described, Int, Symbol, ULong
from pairbus.broker.engine.settings import QueueSettings
from pairbus.broker.links.cbs import TokenNode
from pairbus.broker.links.management import ManagementNode
from tests.engine.test_unreadable import UNREADABLE

from .bus import Bus
from .raw import RawClient

# A list whose first field, the message id, says that it is a string of 255 bytes.
UNREADABLE_PROPERTIES = b"\x00\x53\x73\xc0\x04\x01\xa1\xff\x00"
STRANGE: list[Any] = [
    None,
    "text",
    "7",
    b"\xff",
    -1,
    -(2**63),
    2**63 - 1,
    ULong(2**64 - 1),
    1.5,
    float("nan"),
    True,
    [],
    [None],
    ["1"],
    {},
    {1: 2},
    uuid.UUID(int=0),
    Symbol("s"),
    Described(Symbol("d"), None),
    Array(["a"], str),
    Array([1, 2], int),
]
FIELDS = {
    "peek-message": ["from-sequence-number", "message-count", "session-id", "omit-message-body"],
    "batch-delete-messages": ["message-count", "enqueued-time-utc", "session-id"],
    "schedule-message": ["messages"],
    "cancel-scheduled-message": ["sequence-numbers"],
    "receive-by-sequence-number": ["sequence-numbers", "receiver-settle-mode", "session-id"],
    "renew-lock": ["lock-tokens"],
    "update-disposition": ["lock-tokens", "disposition-status", "properties-to-modify", "deadletter-reason"],
    "renew-session-lock": ["session-id"],
    "get-session-state": ["session-id"],
    "set-session-state": ["session-id", "session-state"],
    "get-message-sessions": ["skip", "top", "last-updated-time"],
    "add-rule": ["rule-name", "rule-description"],
    "remove-rule": ["rule-name"],
    "enumerate-rules": ["skip", "top"],
    "no-such-operation": ["skip"],
}
PLAUSIBLE: dict[str, Any] = {
    "from-sequence-number": 1,
    "message-count": Int(1),
    "sequence-numbers": Array([1], int),
    "lock-tokens": Array([uuid.UUID(int=1)], uuid.UUID),
    "disposition-status": "suspended",
    "skip": Int(0),
    "top": Int(10),
    "last-updated-time": 0,
    "rule-name": "rule",
    "rule-description": {"correlation-filter": {"properties": 5}},
}


class Requests:
    """A pair of links to a node."""

    def __init__(self, client: RawClient, address: str) -> None:
        self._client = client
        self._requests: Link = client.attach(address, sends=True)
        self._answers: Link = client.attach(address, sends=False)
        self._answers.flow(10_000)
        client.flush()

    def ask(self, properties: dict[str, Any], body: bytes) -> dict[str, Any]:
        """The application properties of the answer."""
        named = encode_properties(Properties(message_id=str(uuid.uuid4())))
        outcome = self.send(named + encode_application_properties(properties) + body)
        assert isinstance(outcome, Accepted)
        self.answer = scan(self._client.await_event(TransferReceived).payload)
        return {str(key): value for key, value in self.answer.application_properties.items()}

    def send(self, payload: bytes) -> object:
        """The outcome of a request."""
        return self._client.send(self._requests, payload).state


@pytest.fixture
def client(bus_without_client: Bus) -> Iterator[RawClient]:
    namespace = bus_without_client.namespace
    namespace.create_queue("orders")
    namespace.create_queue("sessions", QueueSettings(requires_session=True))
    namespace.create_topic("news")
    namespace.create_subscription("news", "all")
    with RawClient.of_owner(namespace) as client:
        yield client


@pytest.mark.parametrize("entity", ["orders", "sessions", "news/Subscriptions/all"])
def test_wrong_types_are_answered(client: RawClient, entity: str) -> None:
    node = Requests(client, f"{entity}/$management")
    for operation, fields in FIELDS.items():
        for field in fields:
            for value in STRANGE:
                body = {name: PLAUSIBLE.get(name, "x") for name in fields} | {field: value}
                answer = node.ask({"operation": f"com.microsoft:{operation}"}, encode_value(body))
                assert 200 <= answer["statusCode"] < 500, (operation, field, value, answer)


def test_bodies_that_are_no_map_are_answered(client: RawClient) -> None:
    node = Requests(client, "orders/$management")
    operation = {"operation": "com.microsoft:peek-message"}
    for body in (encode_data(b"x"), encode_value(None), encode_value([1]), b"\x00\x53\x77\xa1\x02\xff\xfe"):
        assert node.ask(operation, body)["statusCode"] == 400
    assert node.ask({}, encode_value({}))["statusCode"] == 400


@pytest.mark.parametrize("address", ["$cbs", "orders/$management"])
def test_requests_that_cannot_be_read_are_rejected_and_cost_no_credit(
    client: RawClient, address: str
) -> None:
    node = Requests(client, address)
    body = encode_value({})
    for payload in (UNREADABLE_PROPERTIES + body, UNREADABLE + body, b"\x00\x53\x99", b"\xff"):
        for _ in range(60):
            assert isinstance(node.send(payload), Rejected)
    assert 400 in node.ask({"operation": "nothing"}, body).values()


def test_a_token_of_another_type_is_answered(client: RawClient) -> None:
    node = Requests(client, "$cbs")
    given = {"operation": "put-token", "type": "jwt", "name": "sb://127.0.0.1/orders"}
    for body in (encode_data(b"token"), encode_value(5), encode_value(None), b"\x00\x53\x77\xa1\x02\xff\xfe"):
        assert node.ask(given, body)["status-code"] == 400
    for name in STRANGE[2:]:
        assert node.ask(given | {"name": name}, encode_value("t"))["status-code"] in (400, 401)


@pytest.mark.usefixtures("noisy")
@pytest.mark.parametrize(
    ("address", "broken", "status"),
    [("$cbs", TokenNode, "status-code"), ("orders/$management", ManagementNode, "statusCode")],
)
def test_what_nobody_foresaw_is_an_internal_error(
    client: RawClient, address: str, broken: type, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("of all things")

    node = Requests(client, address)
    with monkeypatch.context() as patch:
        patch.setattr(broken, "__call__", fail)
        assert node.ask({"operation": "x"}, encode_value({}))[status] == 500
    assert node.ask({"operation": "x"}, encode_value({}))[status] == 400


@pytest.mark.parametrize("session_id", [5, b"bytes", "x" * 129], ids=["number", "binary", "long"])
def test_an_id_that_no_session_can_have_is_refused(client: RawClient, session_id: object) -> None:
    client.machine.begin().attach(
        name="reader",
        role_sender=False,
        source=Source("sessions", filter={Symbol(words.SESSION_FILTER): session_id}),
        target=Target(),
    )
    client.flush()
    error = client.refusal().error
    assert error is not None
    assert error.condition == conditions.ARGUMENT_ERROR
