"""Every request to `$management`, and every link, with every single right: what each needs and no more."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pairbus import conditions, words
from pairbus.amqp.events import TransferReceived
from pairbus.amqp.message import (
    Properties,
    encode_application_properties,
    encode_data,
    encode_properties,
    encode_value,
    scan,
)
from pairbus.amqp.sasl import SaslClient
from pairbus.amqp.types import Array, Int, Timestamp, ULong
from pairbus.broker import Broker
from pairbus.broker.access.policies import Policy
from pairbus.broker.links.management import _OPERATIONS

from .keys import key_of
from .raw import RawClient

# What the service asks for. A policy with Manage has the two others as well.
NEEDS = {
    "peek-message": "Listen",
    "schedule-message": "Send",
    "cancel-scheduled-message": "Send",
    "batch-delete-messages": "Listen",
    "receive-by-sequence-number": "Listen",
    "renew-lock": "Listen",
    "update-disposition": "Listen",
    "renew-session-lock": "Listen",
    "get-session-state": "Listen",
    "set-session-state": "Listen",
    "get-message-sessions": "Listen",
    "add-rule": "Manage",
    "remove-rule": "Manage",
    "enumerate-rules": "Manage",
}
TOKEN = uuid.UUID(int=7)
# A request that would be carried out, or refused for what it asks and not for who asks.
BODIES: dict[str, dict[str, Any]] = {
    "peek-message": {"from-sequence-number": 0, "message-count": Int(1)},
    "schedule-message": {"messages": [{"message": encode_data(b"x")}]},
    "cancel-scheduled-message": {"sequence-numbers": Array([1], int)},
    "batch-delete-messages": {"message-count": Int(1), "enqueued-time-utc": Timestamp(0)},
    "receive-by-sequence-number": {"sequence-numbers": Array([1], int), "receiver-settle-mode": Int(1)},
    "renew-lock": {"lock-tokens": Array([TOKEN], uuid.UUID)},
    "update-disposition": {"disposition-status": "completed", "lock-tokens": Array([TOKEN], uuid.UUID)},
    "renew-session-lock": {"session-id": "s"},
    "get-session-state": {"session-id": "s"},
    "set-session-state": {"session-id": "s", "session-state": b"x"},
    "get-message-sessions": {"skip": Int(0), "top": Int(1), "last-updated-time": Timestamp(0)},
    "add-rule": {"rule-name": "r", "rule-description": {"sql-filter": {"expression": "1=1"}}},
    "remove-rule": {"rule-name": "$Default"},
    "enumerate-rules": {"skip": Int(0), "top": Int(1)},
}
RIGHTS = {"send": {"Send"}, "listen": {"Listen"}, "manage": {"Send", "Listen", "Manage"}}


@pytest.fixture(scope="module")
def broker(certificate: tuple[Path, Path]) -> Iterator[Broker]:
    policies = [Policy.parse(f"{name}=c2VjcmV0:{name}") for name in RIGHTS]
    with Broker({"contoso": 0}, certificate=certificate, policies=policies) as broker:
        namespace = broker["contoso"]
        namespace.create_queue("orders")
        namespace.create_topic("news")
        namespace.create_subscription("news", "all")
        yield broker


@pytest.fixture(params=RIGHTS)
def client(request: pytest.FixtureRequest, broker: Broker) -> Iterator[tuple[RawClient, set[str]]]:
    namespace = broker["contoso"]
    sasl = SaslClient.plain(*key_of(namespace, request.param))
    with RawClient.connected(namespace.port, sasl) as client:
        yield client, RIGHTS[request.param]


def ask(client: RawClient, node: str, operation: str) -> int:
    """The status of the answer to a request."""
    answers = client.attach(node, sends=False)
    answers.flow(1)
    requests = client.attach(node, sends=True)
    client.send(
        requests,
        encode_properties(Properties(message_id=ULong(1)))
        + encode_application_properties({"operation": f"{words.OPERATION_PREFIX}{operation}"})
        + encode_value(BODIES[operation]),
    )
    told = scan(client.await_event(TransferReceived).payload).application_properties
    return int(told[words.STATUS])


def test_every_operation_is_in_the_table() -> None:
    assert NEEDS.keys() == BODIES.keys() == _OPERATIONS.keys()


@pytest.mark.parametrize("operation", NEEDS)
def test_a_request_needs_its_right(client: tuple[RawClient, set[str]], operation: str) -> None:
    line, rights = client
    rules = operation.endswith(("rule", "rules"))
    node = "news/Subscriptions/all/$management" if rules else "orders/$management"
    assert (ask(line, node, operation) != 401) == (NEEDS[operation] in rights)


@pytest.mark.parametrize(
    ("address", "sends", "needs"),
    [
        ("orders", True, "Send"),
        ("orders", False, "Listen"),
        ("orders/$DeadLetterQueue", False, "Listen"),
        ("news", True, "Send"),
        ("news/Subscriptions/all", False, "Listen"),
        ("news/Subscriptions/all/$DeadLetterQueue", False, "Listen"),
    ],
)
def test_a_link_needs_its_right(
    client: tuple[RawClient, set[str]], address: str, sends: bool, needs: str
) -> None:
    line, rights = client
    link = line.attach(address, sends=sends)
    if needs in rights:
        link.detach()
        line.flush()
        assert line.refusal().error is None
    else:
        refused = line.refusal().error
        assert refused is not None
        assert refused.condition == conditions.UNAUTHORIZED
