"""What arrives is what was sent: bodies of every kind, properties of every type, and the bytes themselves."""

import uuid
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import (
    AmqpAnnotatedMessage,
    AmqpMessageBodyType,
    AmqpMessageHeader,
    AmqpMessageProperties,
)

from pairbus.amqp.message import (
    Properties,
    encode_annotations,
    encode_application_properties,
    encode_data,
    encode_properties,
    encode_value,
    scan,
)
from pairbus.amqp.performatives import Accepted
from pairbus.amqp.sasl import SaslClient
from pairbus.amqp.types import (
    Byte,
    Char,
    Decimal64,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

from .bus import Bus, receive
from .raw import RawClient

IDENTIFIER = uuid.UUID("6f0c9f5e-8f0e-4d0c-9a52-0d7c1b1a7d11")
APPLICATION_PROPERTIES: dict[Any, Any] = {
    "int": 1,
    "negative": -(2**31),
    "float": 0.1,
    "text": "Grüße",
    "true": True,
    "false": False,
    "uuid": IDENTIFIER,
    "nothing": None,
}
RECEIVED_PROPERTIES = {
    b"int": 1,
    b"negative": -(2**31),
    b"float": 0.1,
    b"text": "Grüße".encode(),
    b"true": True,
    b"false": False,
    b"uuid": IDENTIFIER,
    b"nothing": None,
}


async def test_every_property_arrives(bus: Bus) -> None:
    bus.namespace.create_queue("orders")
    message = ServiceBusMessage(
        "body",
        application_properties=APPLICATION_PROPERTIES,
        message_id="id",
        session_id="session",
        correlation_id="correlation",
        content_type="text/plain",
        subject="subject",
        to="to",
        reply_to="reply to",
        reply_to_session_id="reply to session",
        partition_key="session",
    )
    names = ("message_id", "session_id", "correlation_id", "content_type", "subject", "to", "reply_to")
    async with bus.queue("orders") as (sender, receiver):
        await sender.send_messages(message)
        [received] = await receive(receiver)
    for name in (*names, "reply_to_session_id", "partition_key"):
        assert getattr(received, name) == getattr(message, name)
    assert received.application_properties == RECEIVED_PROPERTIES
    assert {type(value) for value in received.application_properties.values()} == {
        type(value) for value in RECEIVED_PROPERTIES.values()
    }


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"data_body": b"\x00\x01\xff"}, [b"\x00\x01\xff"]),
        ({"data_body": [b"several", b"", b"sections"]}, [b"several", b"", b"sections"]),
        ({"data_body": b""}, [b""]),
        ({"value_body": "text"}, b"text"),
        ({"value_body": -1}, -1),
        ({"value_body": {"a": [1, 2.5, None, True], "b": {"c": b"bytes"}}}, None),
        ({"sequence_body": [1, "two", None]}, [[1, b"two", None]]),
        ({"sequence_body": [[1, 2], ["three"]]}, [[1, 2], [b"three"]]),
    ],
    ids=str,
)
async def test_every_kind_of_body_arrives(aio_bus: Bus, body: dict[str, Any], expected: Any) -> None:
    aio_bus.namespace.create_queue("orders")
    async with aio_bus.queue("orders") as (sender, receiver):
        await sender.send_messages(AmqpAnnotatedMessage(**body))
        [received] = await receive(receiver)
        raw = received.raw_amqp_message
        if raw.body_type is AmqpMessageBodyType.VALUE:
            wanted = {b"a": [1, 2.5, None, True], b"b": {b"c": b"bytes"}} if expected is None else expected
            assert raw.body == wanted
        else:
            assert list(raw.body) == expected


async def test_a_header_has_no_more_than_its_sender_said(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders")
    async with aio_bus.queue("orders") as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("x", time_to_live=timedelta(seconds=30)))
        [received] = await receive(receiver)
    header = received.raw_amqp_message.header
    assert (header.time_to_live, header.delivery_count) == (30_000, 0)
    assert (header.durable, header.priority, header.first_acquirer) == (None, None, None)


@pytest.mark.parametrize("said", [(False, 4, False), (None, 20, True), (True, 0, None)])
async def test_a_header_says_what_its_sender_said(
    aio_bus: Bus, said: tuple[bool | None, int, bool | None]
) -> None:
    """Also what is the default anyhow: clients that are tried against the service compare the fields."""
    aio_bus.namespace.create_queue("orders")
    durable, priority, first = said
    header = AmqpMessageHeader(durable=durable, priority=priority, first_acquirer=first)
    async with aio_bus.queue("orders") as (sender, receiver):
        await sender.send_messages(AmqpAnnotatedMessage(data_body=b"x", header=header))
        [received] = await receive(receiver)
        found = received.raw_amqp_message.header
        assert (found.durable, found.priority, found.first_acquirer) == said
        await receiver.abandon_message(received)
        [again] = await receive(receiver)
    found = again.raw_amqp_message.header
    # Nobody is the first after somebody else.
    assert (found.durable, found.priority, found.first_acquirer) == (durable, priority, first and False)


async def test_an_annotated_message_keeps_its_sections(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders")
    message = AmqpAnnotatedMessage(
        data_body=b"body",
        header=AmqpMessageHeader(priority=7, durable=True, time_to_live=50_000),
        properties=AmqpMessageProperties(
            message_id="id", user_id=b"user", content_encoding="gzip", group_sequence=3
        ),
        annotations={"x-mine": "kept", "x-opt-sequence-number": 4711},
        application_properties={"a": 1},
        footer={"crc": 42},
    )
    async with aio_bus.queue("orders") as (sender, receiver):
        await sender.send_messages(message)
        [received] = await receive(receiver)
    raw = received.raw_amqp_message
    assert (raw.header.priority, raw.header.durable, raw.header.time_to_live) == (7, True, 50_000)
    assert (raw.properties.user_id, raw.properties.content_encoding) == (b"user", b"gzip")
    assert raw.properties.group_sequence == 3
    assert raw.annotations[b"x-mine"] == b"kept"
    # What only the broker can know is the broker's to say.
    assert raw.annotations[b"x-opt-sequence-number"] == received.sequence_number == 1
    assert raw.footer == {b"crc": 42}


async def test_decimals_come_as_the_client_can_read_them(aio_bus: Bus) -> None:
    """As the service writes them. What the client itself writes it cannot read."""
    aio_bus.namespace.create_queue("orders")
    prices: dict[str | bytes, Any] = {"a": Decimal("1.2345"), "b": Decimal("-0.5"), "c": Decimal("3E+2")}
    async with aio_bus.queue("orders") as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("x", application_properties=prices))
        [received] = await receive(receiver)
    assert received.application_properties == {str(key).encode(): price for key, price in prices.items()}


async def test_a_message_without_an_id_is_given_one(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders")
    async with aio_bus.queue("orders") as (sender, receiver):
        await sender.send_messages(AmqpAnnotatedMessage(data_body=b"anonymous"))
        [received] = await receive(receiver)
        assert received.message_id


def test_the_bare_message_arrives_byte_for_byte(bus_without_client: Bus) -> None:
    namespace = bus_without_client.namespace
    namespace.create_queue("orders")
    numbers = [UByte(1), UShort(2), UInt(3), ULong(4), Byte(-5), Short(-6), Int(-7), -8, Float(0.5), 0.25]
    texts = [Char("ß"), b"\x00", "t", Symbol("s")]
    others = [Decimal64(b"\x22\x34" + bytes(6)), Timestamp(1), IDENTIFIER, *texts]
    properties = Properties(message_id=IDENTIFIER, correlation_id=ULong(7), user_id=b"u", content_type="c")
    bare = (
        encode_properties(properties)
        + encode_application_properties({f"p{n}": value for n, value in enumerate([*numbers, *others])})
        + encode_value({"list": [*numbers, *others, [None, True, {}]]})
    )
    root = dict(field.partition("=")[::2] for field in namespace.connection_string.split(";"))
    sasl = SaslClient.plain(root["SharedAccessKeyName"], root["SharedAccessKey"])
    with RawClient.connected(namespace.port, sasl) as client:
        sender = client.attach("orders", sends=True)
        for payload in (
            bare,
            encode_annotations({Symbol("x-mine"): Int(1)}) + bare,
            # Sections may be written in a roundabout way, and stay as they are.
            b"\x00\x80" + (0x75).to_bytes(8, "big") + b"\xb0\x00\x00\x00\x01x",
            encode_data(b"a") + encode_data(b"") + encode_data(b"c" * 9000),
        ):
            settled = client.send(sender, payload)
            assert isinstance(settled.state, Accepted), settled
            received = client.receive(client.attach("orders", sends=False)).payload
            whole = scan(payload)
            assert received.endswith(payload[len(payload) - len(whole.body_bytes) :])
            if payload.endswith(bare):
                assert received.endswith(bare)
            assert whole.body_bytes == scan(received).body_bytes
