"""What the npm client sends, the Python client reads, and the other way round, with all property types."""

import json
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
)
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType, AmqpMessageProperties

from pairbus.broker.handle import NamespaceHandle
from tests.node.script import Report

SCRIPT = "exchange.js"
NAME = uuid.UUID("12345678-1234-5678-1234-567812345678")
LEAP_DAY = datetime(2024, 2, 29, 12, 30, 15, 250_000, tzinfo=UTC)


@pytest.fixture(scope="module")
def client(namespace: NamespaceHandle) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0) as client:
        yield client


@pytest.fixture(scope="module")
def prepared(namespace: NamespaceHandle, client: ServiceBusClient) -> None:
    namespace.create_queue("to-node")
    namespace.create_queue("to-python")
    with client.get_queue_sender("to-node") as sender:
        sender.send_messages([with_properties(), with_types()])
        sender.send_messages(with_body("value", value_body={"name": "Ada", "tags": ["x", 36]}))
        sender.send_messages(with_body("sequence", sequence_body=[[1, "two"], [False, b"\xff"]]))


def with_properties() -> ServiceBusMessage:
    return ServiceBusMessage(
        b"\x00\x01\xfe\xff",
        message_id="properties",
        subject="order",
        correlation_id="c-1",
        to="somebody",
        reply_to="me",
        reply_to_session_id="r-1",
        content_type="application/octet-stream",
        time_to_live=timedelta(minutes=10),
        partition_key="p-1",
    )


def with_types() -> ServiceBusMessage:
    properties: dict[str | bytes, Any] = {
        "text": "grün",
        "none": None,
        "yes": True,
        "no": False,
        "small": 7,
        "negative": -7,
        "large": 2**31 - 1,
        "fraction": 2.5,
        "uuid": NAME,
        "date": LEAP_DAY,
    }
    return ServiceBusMessage("x", message_id="types", application_properties=properties)


def with_body(message_id: str, **body: Any) -> AmqpAnnotatedMessage:
    return AmqpAnnotatedMessage(properties=AmqpMessageProperties(message_id=message_id), **body)


@pytest.fixture(scope="module")
def received(report: Report, client: ServiceBusClient) -> dict[str, ServiceBusReceivedMessage]:
    """What the script sent, by message id."""
    assert "messages for python" in report
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    found: list[ServiceBusReceivedMessage] = []
    with client.get_queue_receiver("to-python", receive_mode=mode) as receiver:
        while len(found) < 4:
            more = receiver.receive_messages(max_message_count=4 - len(found), max_wait_time=5)
            assert more, f"only {found} came"
            found += more
    return {str(message.message_id): message for message in found}


def test_message_from_python(seen: Any) -> None:
    assert seen == {
        "body": {"bytes": "0001feff"},
        "subject": "order",
        "correlationId": "c-1",
        "to": "somebody",
        "replyTo": "me",
        "replyToSessionId": "r-1",
        "contentType": "application/octet-stream",
        "timeToLive": 600_000,
        "partitionKey": "p-1",
        "secondsToExpiry": 600,
    }


def test_property_types_from_python(seen: Any) -> None:
    assert seen == {
        "text": "grün",
        "none": None,
        "yes": True,
        "no": False,
        "small": 7,
        "negative": -7,
        "large": 2**31 - 1,
        "fraction": 2.5,
        "uuid": {"bytes": NAME.hex},
        "date": {"date": "2024-02-29T12:30:15.250Z"},
    }


def test_value_body_from_python(seen: Any) -> None:
    assert seen == {"name": "Ada", "tags": ["x", 36]}


def test_sequence_body_from_python(seen: Any) -> None:
    assert seen == [[1, "two"], [False, {"bytes": "ff"}]]


def test_messages_for_python(received: dict[str, ServiceBusReceivedMessage]) -> None:
    assert set(received) == {"properties", "types", "value", "sequence"}


def test_python_reads_the_properties(received: dict[str, ServiceBusReceivedMessage]) -> None:
    message = received["properties"]
    assert b"".join(message.body) == b"\x00\x01\xfe\xff"
    assert message.subject == "order"
    assert message.correlation_id == "c-1"
    assert message.to == "somebody"
    assert message.reply_to == "me"
    assert message.reply_to_session_id == "r-1"
    assert message.content_type == "application/octet-stream"
    assert message.time_to_live == timedelta(minutes=10)
    assert message.partition_key == "p-1"


def test_python_reads_the_property_types(received: dict[str, ServiceBusReceivedMessage]) -> None:
    message = received["types"]
    assert json.loads(str(message)) == {"text": "grün", "list": [1, None, True]}
    assert message.application_properties == {
        b"text": "grün".encode(),
        b"none": None,
        b"yes": True,
        b"no": False,
        b"small": 7,
        b"negative": -7,
        b"large": 2**40,
        b"fraction": 2.5,
        b"date": 1_709_209_815_250,  # the Python client leaves it in milliseconds
    }


def test_python_reads_a_value_body(received: dict[str, ServiceBusReceivedMessage]) -> None:
    message = received["value"]
    assert message.body_type is AmqpMessageBodyType.VALUE
    assert message.body == {b"name": b"Ada", b"age": 36, b"tags": [b"x", b"y"]}


def test_python_reads_a_sequence_body(received: dict[str, ServiceBusReceivedMessage]) -> None:
    message = received["sequence"]
    assert message.body_type is AmqpMessageBodyType.SEQUENCE
    assert list(message.body) == [[1, b"two", False]]
