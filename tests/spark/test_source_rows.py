"""What rows are written as is what the official SDK reads, and what a read gives can be written again."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from azure.servicebus import ServiceBusClient
from azure.servicebus.amqp import AmqpAnnotatedMessage
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.broker.handle import NamespaceHandle
from pairbus.pump.transport import Unit
from pairbus.spark.source.encoding import RowEncoder
from pairbus.spark.source.options import SourceSettings
from pairbus.spark.source.outlets import NamespaceOutlet

from .strategies import annotated_messages, some_texts, texts
from .test_source_messages import (
    MAP,
    NUMBERS,
    SCHEMA,
    VARIABLE,
    client,
    namespace,
    read_rows,
    send,
)

__all__ = ["client", "namespace"]
pytestmark = pytest.mark.timeout(600)

moments = st.datetimes(datetime(2090, 1, 1), datetime(2200, 1, 1)).map(
    lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000)
)
optional = st.one_of(st.none(), some_texts)
typed = st.one_of(
    st.tuples(st.just("long"), st.integers(-(2**63), 2**63 - 1).map(str)),
    st.tuples(st.just("int"), st.integers(-(2**31), 2**31 - 1).map(str)),
    st.tuples(st.just("ulong"), st.integers(0, 2**64 - 1).map(str)),
    st.tuples(st.just("double"), st.floats(allow_nan=False).map(repr)),
    st.tuples(st.just("boolean"), st.sampled_from(["true", "false"])),
    st.tuples(st.just("string"), texts),
    st.tuples(st.just("uuid"), st.uuids().map(str)),
).map(lambda pair: {"type": pair[0], "value": pair[1]})
rows = st.fixed_dictionaries(
    {
        "body": st.binary(max_size=300),
        "message_id": optional,
        "session_id": optional,
        "subject": optional,
        "to": optional,
        "reply_to": optional,
        "reply_to_session_id": optional,
        "correlation_id": optional,
        "time_to_live": st.one_of(st.none(), st.integers(10**7, 2**32 - 1).map(lambda ms: ms / 1000)),
        "scheduled": st.one_of(st.none(), moments),
        "properties": st.dictionaries(texts, typed, max_size=4).map(lambda found: list(found.items())),
    }
)
ROW_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("message_id", "session_id", "subject", "to", "reply_to")),
        *((name, pa.string()) for name in ("reply_to_session_id", "correlation_id")),
        ("body", pa.binary()),
        ("time_to_live", pa.float64()),
        ("scheduled", pa.timestamp("us", "UTC")),
        ("properties", MAP),
    ]
)


def write(queue: str, batch: pa.RecordBatch) -> None:
    """Each row as a message of its own."""
    encoder = RowEncoder(entity=queue, new_id="job-0-{}".format)
    made = list(encoder.encode(batch, now_ms=1_800_000_000_000))
    assert [row.problem for row in made] == [None] * len(made)

    async def send_all() -> None:
        outlet = NamespaceOutlet(SourceSettings({"connectionStringEnv": VARIABLE, "entity": queue}, "write"))
        outcomes = await outlet.send(queue, [Unit([row.payload]) for row in made])
        await outlet.close()
        assert outcomes == [None] * len(made)

    asyncio.run(send_all())


@settings(max_examples=8)
@given(given_rows=st.lists(rows, min_size=1, max_size=12))
def test_the_sdk_reads_what_rows_said(
    namespace: NamespaceHandle, client: ServiceBusClient, given_rows: list[dict[str, Any]]
) -> None:
    queue = f"rows-{next(NUMBERS)}"
    namespace.create_queue(queue)
    write(queue, pa.RecordBatch.from_pylist(given_rows, schema=ROW_SCHEMA))
    with client.get_queue_receiver(queue) as receiver:
        found = receiver.peek_messages(len(given_rows), sequence_number=1)
    for number, (row, message) in enumerate(zip(given_rows, found, strict=True)):
        assert b"".join(message.body) == row["body"]
        assert message.message_id == (row["message_id"] or f"job-0-{number}")
        for name in ("session_id", "subject", "to", "reply_to", "reply_to_session_id", "correlation_id"):
            assert getattr(message, name) == row[name], name
        lives = row["time_to_live"]
        assert message.time_to_live == (None if lives is None else timedelta(seconds=lives))
        scheduled = message.scheduled_enqueue_time_utc
        assert (scheduled and scheduled.replace(tzinfo=None)) == row["scheduled"]
        properties = {
            key.decode(): value.decode() if isinstance(value, bytes) else value
            for key, value in (message.application_properties or {}).items()
            if isinstance(key, bytes)
        }
        assert {key: _as_text(value) for key, value in properties.items()} == {
            key: item["value"] for key, item in row["properties"]
        }


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@settings(max_examples=8)
@given(arguments=st.lists(annotated_messages(), min_size=1, max_size=12))
def test_what_was_read_can_be_written_again(
    namespace: NamespaceHandle, client: ServiceBusClient, arguments: list[dict[str, Any]]
) -> None:
    first = read_rows(send(namespace, client, [AmqpAnnotatedMessage(**one) for one in arguments]))
    queue = f"again-{next(NUMBERS)}"
    namespace.create_queue(queue)
    write(queue, pa.RecordBatch.from_pylist(first, schema=SCHEMA))
    second = read_rows(queue)
    for row in (*first, *second):
        for name in ("entity", "enqueued", "expires"):
            del row[name]
    assert second == first


def test_structs_and_maps_of_plain_values_are_properties_of_their_types(namespace: NamespaceHandle) -> None:
    queue = f"typed-{next(NUMBERS)}"
    namespace.create_queue(queue)
    fields = [("small", pa.int32()), ("large", pa.int64()), ("name", pa.string()), ("no", pa.string())]
    write(
        queue,
        pa.RecordBatch.from_pylist(
            [{"body": "text", "properties": {"small": 1, "large": 2, "name": "x", "no": None}}],
            schema=pa.schema([("body", pa.string()), ("properties", pa.struct(fields))]),
        ),
    )
    write(
        queue,
        pa.RecordBatch.from_pylist(
            [{"body": "text", "properties": [("a", 1.5)]}],
            schema=pa.schema([("body", pa.string()), ("properties", pa.map_(pa.string(), pa.float32()))]),
        ),
    )
    found = [
        {key: (item["type"], item["value"]) for key, item in row["properties"]} for row in read_rows(queue)
    ]
    assert found == [
        {"small": ("int", "1"), "large": ("long", "2"), "name": ("string", "x")},
        {"a": ("float", "1.5")},
    ]
