"""What comes out of the backlog is what would have arrived without an outage: to the byte in the body, to the
type in everything else.

Each sample is sent twice, to the entity and, failed over, to the backlog. What the backlog queue was given is
read as bytes, unwrapped by the rules, and compared with what the entity was given.
"""

import time
import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties

from pairbus.amqp.encoding import encode
from pairbus.amqp.message import Properties, scan
from pairbus.amqp.types import Symbol, Timestamp
from pairbus.broker.engine.message import StoredMessage
from pairbus.pairing.envelope import Unwrapped, expand_body, unwrap

from .scene import Scene

NOW = int(time.time() * 1000)
SOON = datetime.now(UTC) + timedelta(hours=1)
WHEN = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=timezone(timedelta(hours=2)))
GUID = uuid.UUID("12345678-1234-5678-1234-567812345678")
NESTED = {"list": [1, [2.5, "drei", None, {"four": [True, False]}]], "bytes": b"\x00\xff", 7: {"x": GUID}}
UNICODE = "Grüße, 世界 🌍\u0000\u2028"


def typed(kind: str, value: Any) -> Any:
    """A value with the AMQP type that the SDK is to write."""
    return {"TYPE": kind, "VALUE": value}


def annotated(**parts: Any) -> AmqpAnnotatedMessage:
    parts.setdefault("properties", {"message_id": "sample"})
    if not parts.keys() & {"data_body", "value_body", "sequence_body"}:
        parts["data_body"] = b"body"
    return AmqpAnnotatedMessage(**parts)


def message(body: Any = "body", **parts: Any) -> ServiceBusMessage:
    return ServiceBusMessage(body, **{"message_id": "sample", **parts})


def properties(**fields: Any) -> AmqpAnnotatedMessage:
    return annotated(properties=AmqpMessageProperties(**{"message_id": "sample", **fields}))


SAMPLES: dict[str, Any] = {
    # -- bodies
    "text": lambda: message("plain"),
    "text of all kinds": lambda: message(UNICODE),
    "empty text": lambda: message(""),
    "no body": lambda: message(None),
    "bytes": lambda: message(bytes(range(256)) * 4),
    "200 KB": lambda: message(bytes(range(256)) * 800),
    "data": lambda: annotated(data_body=b"\x00\x01"),
    "several data sections": lambda: annotated(data_body=[b"one", b"", b"three" * 100]),
    "no data section": lambda: annotated(data_body=[]),
    "sequence": lambda: annotated(sequence_body=[1, "two", 3.0, None, GUID]),
    "several sequences": lambda: annotated(sequence_body=[[1, 2], ["a", NESTED], []]),
    "value map": lambda: annotated(value_body=NESTED),
    "value list": lambda: annotated(value_body=[1, "x", b"y", [WHEN, GUID]]),
    "value string": lambda: annotated(value_body=UNICODE),
    "value bytes": lambda: annotated(value_body=b"\x00\xfe"),
    "value int": lambda: annotated(value_body=-(2**31)),
    "value long": lambda: annotated(value_body=[typed("LONG", 2**62), typed("ULONG", 2**63)]),
    "value float": lambda: annotated(value_body=1.5e300),
    "value true": lambda: annotated(value_body=True),
    "value uuid": lambda: annotated(value_body=GUID),
    "value datetime": lambda: annotated(value_body=WHEN),
    "value decimal": lambda: annotated(value_body=Decimal("3.14159")),
    "value that is nothing to the SDK": lambda: annotated(value_body=0),
    "footer": lambda: annotated(data_body=b"body", footer={"x-opt-signature": b"\x01", "n": 5}),
    # -- application properties
    "plain properties": lambda: message(
        application_properties={
            "int": 5,
            "most": 2**31 - 1,
            "least": -(2**31),
            "float": 0.1,
            "true": True,
            "false": False,
            "text": UNICODE,
            "empty": "",
            "uuid": GUID,
            "when": WHEN,
            "naive": datetime(2026, 1, 1),
            "none": None,
            b"bytes key": "value",
            "bytes": b"become text",
        }
    ),
    "typed properties": lambda: message(
        application_properties={
            kind: typed(kind, value)
            for kind, value in {
                "BOOL": True,
                "UBYTE": 255,
                "BYTE": -128,
                "USHORT": 65535,
                "SHORT": -32768,
                "UINT": 2**32 - 1,
                "INT": 5,
                "ULONG": 2**64 - 1,
                "LONG": -(2**63),
                "FLOAT": 1.5,
                "DOUBLE": 1.5,
                "TIMESTAMP": 1_700_000_000_123,
                "UUID": GUID,
                "BINARY": b"\x00\xff",
                "STRING": "s",
                "SYMBOL": b"sym",
            }.items()
        }
    ),
    "names that are nearly ours": lambda: message(
        application_properties={"x-ms-pat": 1, "x-ms": 2, "x-pairbus": 3, "path": 4, "y-ms-path": 5}
    ),
    # -- properties
    "every property": lambda: message(
        content_type="text/plain",
        correlation_id="correlation",
        subject="subject",
        to="to",
        reply_to="reply",
        reply_to_session_id="reply session",
    ),
    "every property of AMQP": lambda: properties(
        user_id=b"user",
        to="to",
        subject=UNICODE,
        reply_to="reply",
        correlation_id=GUID,
        content_type="application/json",
        content_encoding="gzip",
        creation_time=1_700_000_000_123,
        group_sequence=7,
        reply_to_group_id="group",
    ),
    "an absolute expiry alone": lambda: properties(absolute_expiry_time=NOW + 10**9),
    "an id that is a uuid": lambda: properties(message_id=GUID, correlation_id=5),
    "an id that is a number": lambda: properties(message_id=2**40, correlation_id=b"\x00\x01"),
    "ids above what has a sign": lambda: properties(message_id=2**63, correlation_id=2**64 - 1),
    "an id that is bytes": lambda: properties(message_id=b"\x01\xffid"),
    # -- header and annotations
    "header": lambda: annotated(header=AmqpMessageHeader(durable=True, priority=7)),
    "header of defaults": lambda: annotated(
        header=AmqpMessageHeader(durable=False, priority=4, first_acquirer=False)
    ),
    "partition key": lambda: message(partition_key="key"),
    "annotations": lambda: annotated(
        annotations={b"x-opt-custom": 5, "x-opt-text": "t", b"x-opt-long": typed("LONG", 5)},
    ),
    # -- what the envelope is for
    "session": lambda: message(session_id="the session"),
    "session in another script": lambda: message(session_id=UNICODE.strip("\u0000\u2028")[:20]),
    "time to live": lambda: message(time_to_live=timedelta(seconds=90, milliseconds=5)),
    "a long time to live": lambda: message(time_to_live=timedelta(days=40)),
    "schedule": lambda: message(scheduled_enqueue_time_utc=SOON),
    "schedule of another zone": lambda: message(
        scheduled_enqueue_time_utc=SOON.astimezone(timezone(timedelta(hours=-5, minutes=-30)))
    ),
    "all of it": lambda: message(
        NESTED["bytes"],
        session_id="s",
        partition_key="s",
        time_to_live=timedelta(hours=3),
        scheduled_enqueue_time_utc=SOON,
        application_properties={"a": 1, "when": WHEN},
        subject="subject",
    ),
}


@dataclass(frozen=True)
class Picture:
    """Everything of a message that its receiver sees, apart from clocks."""

    body: bytes
    properties: bytes
    application_properties: bytes
    annotations: bytes
    durable: bool | None
    priority: int | None
    first_acquirer: bool | None
    session_id: str | None
    ttl_ms: int | None
    scheduled_ms: int | None


def picture_of(stored: StoredMessage) -> Picture:
    """Of what arrived at the entity."""
    found = _properties(stored)
    annotations = dict(stored.annotations)
    scheduled = annotations.pop("x-opt-scheduled-enqueue-time", None)
    return Picture(
        body=stored.body_bytes,
        properties=_comparable(found, has_ttl=stored.ttl_ms is not None),
        application_properties=encode(_application_properties(stored)),
        annotations=encode(annotations),
        durable=stored.durable,
        priority=stored.priority,
        first_acquirer=stored.first_acquirer,
        session_id=found.group_id,
        ttl_ms=stored.ttl_ms,
        scheduled_ms=_scheduled(stored, scheduled),
    )


def unwrapped_picture_of(stored: StoredMessage, *, path: str) -> Picture:
    """Of what waits in a backlog queue, after its stay."""
    found = _properties(stored)
    result = unwrap(
        _application_properties(stored),
        policy="pause",
        now_ms=NOW,
        enqueued_ms=NOW,
        expires_ms=found.absolute_expiry_time,
    )
    assert result.path == path
    assert stored.session_id is None
    assert stored.ttl_ms is None
    assert stored.scheduled_for is None
    natives = result.natives
    restored = replace(found, group_id=natives.session_id, absolute_expiry_time=natives.expires_ms)
    return Picture(
        body=_body(stored, result),
        properties=_comparable(restored, has_ttl=natives.ttl_ms is not None),
        application_properties=encode(result.application_properties),
        annotations=encode(stored.annotations),
        durable=stored.durable,
        priority=stored.priority,
        first_acquirer=stored.first_acquirer,
        session_id=natives.session_id,
        ttl_ms=natives.ttl_ms,
        scheduled_ms=natives.scheduled_ms,
    )


def _properties(stored: StoredMessage) -> Properties:
    return scan(stored.properties_bytes).properties


def _application_properties(stored: StoredMessage) -> dict[Any, Any]:
    return scan(stored.application_properties_bytes).application_properties


def _body(stored: StoredMessage, result: Unwrapped) -> bytes:
    if result.body_size is None:
        return stored.body_bytes
    return expand_body(scan(stored.body_bytes).data_sections()[0], result.body_size)


def _comparable(found: Properties, *, has_ttl: bool) -> bytes:
    """With a time to live, creation and expiry are those of the send: that they are there is compared."""
    if has_ttl:
        assert found.creation_time is not None
        assert found.absolute_expiry_time is not None
        found = replace(found, creation_time=0, absolute_expiry_time=0)
    return encode([getattr(found, name) for name in found.__dataclass_fields__])


def _scheduled(stored: StoredMessage, annotation: Any) -> int | None:
    if annotation is not None:
        assert isinstance(annotation, Timestamp)
        return int(annotation)
    return None if stored.scheduled_for is None else round(stored.scheduled_for * 1000)


async def test_the_backlog_changes_nothing(still: Scene) -> None:
    sender = still.sender()
    for make in SAMPLES.values():
        await sender.send_messages(make())
    sender._client.fail_over("orders")
    for make in SAMPLES.values():
        await sender.send_messages(make())
    direct, waiting = still.messages("orders"), still.backlog()
    assert len(direct) == len(waiting) == len(SAMPLES)
    for sample, one, other in zip(SAMPLES, direct, waiting, strict=True):
        assert other.message_id == one.message_id, sample
        assert unwrapped_picture_of(other, path="orders") == picture_of(one), sample


async def test_the_backlog_changes_nothing_in_a_batch(still: Scene) -> None:
    """All small samples in one call: the SDK writes the messages of a batch in another way."""
    names = [name for name in SAMPLES if name not in ("200 KB", "value that is nothing to the SDK")]
    sender = still.sender()
    await sender.send_messages([SAMPLES[name]() for name in names])
    sender._client.fail_over("orders")
    await sender.send_messages([SAMPLES[name]() for name in names])
    direct = [picture_of(found) for found in still.messages("orders")]
    waiting = [unwrapped_picture_of(found, path="orders") for found in still.backlog()]
    assert len(direct) == len(waiting) == len(names)
    assert dict(zip(names, waiting, strict=True)) == dict(zip(names, direct, strict=True))


async def test_what_was_received_can_be_sent_on_through_an_outage(still: Scene) -> None:
    client = still.client()
    sender = client.get_queue_sender("orders")
    await sender.send_messages(message(application_properties={"a": 1, "b": "text"}, subject="subject"))
    [direct] = still.messages("orders")
    async with client.get_queue_receiver("orders") as receiver:
        [received] = await receiver.receive_messages(max_wait_time=5)
        client.fail_over("orders")
        await sender.send_messages(received)
    [waiting] = still.backlog()
    found, wanted = unwrapped_picture_of(waiting, path="orders"), picture_of(direct)
    assert (found.body, found.application_properties) == (wanted.body, wanted.application_properties)
    assert _properties(waiting).subject == "subject"
    assert received.raw_amqp_message.delivery_annotations  # the message itself is not changed


def test_the_samples_are_told_apart() -> None:
    """The comparison sees types: what is equal in Python only is not equal here."""
    assert encode({"a": 1}) != encode({"a": 1.0})
    assert encode({"a": "x"}) != encode({"a": Symbol("x")})
    assert encode({"a": 1}) != encode({"a": Timestamp(1)})
