"""What the official SDK sent is what the reader reads: every property, kind of body and type."""

import itertools
import os
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.amqp.message import scan
from pairbus.broker import Broker
from pairbus.broker.handle import NamespaceHandle
from pairbus.spark.source.columns import COLUMNS, PLAIN_COLUMNS
from pairbus.spark.source.options import SourceSettings
from pairbus.spark.source.reader import MessageRange, read_range
from pairbus.spark.source.values import from_text

from .strategies import annotated_messages, plain_messages

pytestmark = pytest.mark.timeout(600)

VARIABLE = "PAIRBUS_TEST_SOURCE"
NUMBERS = itertools.count()
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAP = pa.map_(pa.string(), pa.struct([("type", pa.string()), ("value", pa.string())]))
ARROW = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "binary": pa.binary(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
}
SCHEMA = pa.schema([(name, ARROW.get(COLUMNS[name].sql_type, MAP)) for name in PLAIN_COLUMNS])


@pytest.fixture(scope="module")
def namespace() -> Iterator[NamespaceHandle]:
    with Broker({"contoso": 0}) as broker:
        os.environ[VARIABLE] = broker["contoso"].connection_string
        yield broker["contoso"]
        del os.environ[VARIABLE]


@pytest.fixture(scope="module")
def client(namespace: NamespaceHandle) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
        yield client


def send(namespace: NamespaceHandle, client: ServiceBusClient, messages: list[Any]) -> str:
    """Into a queue that has nothing else; its name."""
    queue = f"orders-{next(NUMBERS)}"
    namespace.create_queue(queue)
    with client.get_queue_sender(queue) as sender:
        for message in messages:
            sender.send_messages(message)
    return queue


def read_rows(entity: str) -> list[dict[str, Any]]:
    chosen = SourceSettings({"connectionStringEnv": VARIABLE, "entity": entity}, "read")
    batches = read_range(chosen, SCHEMA, MessageRange(entity, 0, 2**63 - 1))
    return [row for batch in batches for row in batch.to_pylist()]


def moment(value: Any) -> Any:
    return EPOCH + timedelta(milliseconds=value) if isinstance(value, int) else value


def assert_properties(found: list[tuple[str, dict[str, str]]], sent: dict[Any, Any] | None) -> None:
    values = {key: from_text(item["type"], item["value"]) for key, item in found}
    assert values.keys() == (sent or {}).keys()
    for key, given_value in (sent or {}).items():
        value = given_value["VALUE"] if isinstance(given_value, dict) else given_value
        if isinstance(value, datetime):
            assert moment(values[key]) == value
        else:
            assert values[key] == value
            assert isinstance(values[key], type(value))


def assert_plain(row: dict[str, Any], sent: ServiceBusMessage) -> None:
    for name in (
        "message_id", "correlation_id", "session_id", "subject", "to", "reply_to", "reply_to_session_id",
        "content_type",
    ):  # fmt: skip
        assert row[name] == getattr(sent, name), name
    # A session is a partition key, as the service has it.
    assert row["partition_key"] == (sent.partition_key or sent.session_id)
    assert row["body_kind"] == "data"
    assert row["body"] == b"".join(sent.body)
    lives = sent.time_to_live
    assert row["time_to_live"] == (lives.total_seconds() if lives else None)
    assert row["scheduled"] == sent.scheduled_enqueue_time_utc
    assert row["state"] == ("scheduled" if sent.scheduled_enqueue_time_utc else "active")
    assert_properties(row["properties"], sent.application_properties)


@settings(max_examples=8)
@given(arguments=st.lists(plain_messages(), min_size=1, max_size=12))
def test_messages_of_the_sdk_are_read_as_they_were_sent(
    namespace: NamespaceHandle, client: ServiceBusClient, arguments: list[dict[str, Any]]
) -> None:
    messages = [ServiceBusMessage(**given) for given in arguments]
    rows = read_rows(send(namespace, client, messages))
    assert [row["sequence_number"] for row in rows] == list(range(1, len(messages) + 1))
    for row, sent in zip(rows, messages, strict=True):
        assert_plain(row, sent)


def as_sent(value: Any) -> Any:
    """A value of a body as it comes back: the codec's types compare as Python's own do."""
    if isinstance(value, list):
        return [as_sent(item) for item in value]
    if isinstance(value, dict):
        return {as_sent(key): as_sent(item) for key, item in value.items()}
    return value


@settings(max_examples=8)
@given(arguments=st.lists(annotated_messages(), min_size=1, max_size=12))
def test_whatever_amqp_knows_of_a_message_is_read(
    namespace: NamespaceHandle, client: ServiceBusClient, arguments: list[dict[str, Any]]
) -> None:
    messages = [AmqpAnnotatedMessage(**given) for given in arguments]
    rows = read_rows(send(namespace, client, messages))
    for row, sent in zip(rows, messages, strict=True):
        body: Any = sent.body
        match row["body_kind"]:
            case "data":
                assert row["body"] == b"".join(body)
            case "value":
                assert scan(row["body"]).value() == as_sent(body)
            case "sequence":
                assert scan(row["body"]).sequences() == as_sent(list(body))
            case "none":  # the SDK sends no body for a value that is false
                assert not body
        assert row["body_kind"] in (sent.body_type.value, "none")
        assert sent.properties is not None
        for name in ("message_id", "correlation_id"):
            given_id = getattr(sent.properties, name)
            assert row[name] == (None if given_id is None else str(given_id))
        for name in ("user_id", "content_encoding", "group_sequence"):
            assert row[name] == getattr(sent.properties, name)
        # The SDK sends no time that is 0.
        assert row["created"] == moment(sent.properties.creation_time or None)
        assert sent.header is not None
        assert (row["durable"], row["priority"]) == (sent.header.durable, sent.header.priority)
        assert_properties(row["properties"], sent.application_properties)
        assert_properties(row["annotations"], sent.annotations)


def test_typed_properties_keep_their_types(namespace: NamespaceHandle, client: ServiceBusClient) -> None:
    typed = {
        "BYTE": -3, "UBYTE": 200, "SHORT": -300, "USHORT": 60_000, "INT": 5, "UINT": 4_000_000_000, "LONG": 6,
        "ULONG": 2**63, "FLOAT": 1.5, "DOUBLE": 2.5, "SYMBOL": "a-symbol",
    }  # fmt: skip
    properties: Any = {name: {"TYPE": name, "VALUE": value} for name, value in typed.items()}
    (row,) = read_rows(send(namespace, client, [ServiceBusMessage("x", application_properties=properties)]))
    found = {key: (item["type"], from_text(item["type"], item["value"])) for key, item in row["properties"]}
    assert found == {name: (name.lower(), value) for name, value in typed.items()}


def test_dead_letters_tell_why(namespace: NamespaceHandle, client: ServiceBusClient) -> None:
    queue = send(namespace, client, [ServiceBusMessage("x", message_id=str(uuid.uuid4()))])
    with client.get_queue_receiver(queue) as receiver:
        (held,) = receiver.receive_messages(1, max_wait_time=30)
        receiver.dead_letter_message(held, reason="bad", error_description="very bad")
    (row,) = read_rows(f"{queue}/$DeadLetterQueue")
    assert (row["dead_letter_reason"], row["dead_letter_description"]) == ("bad", "very bad")
    assert row["message_id"] == held.message_id


def test_moments_and_texts_that_are_none_are_null(
    namespace: NamespaceHandle, client: ServiceBusClient
) -> None:
    message = AmqpAnnotatedMessage(
        data_body=b"\xff\xfe", properties=AmqpMessageProperties(creation_time=2**62, message_id="x")
    )
    (row,) = read_rows(send(namespace, client, [message]))
    assert (row["body_text"], row["created"]) == (None, None)
    assert row["body"] == b"\xff\xfe"
