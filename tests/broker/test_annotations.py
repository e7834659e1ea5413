"""What a delivered message says of itself, annotation by annotation: clients that are tried against Azure
count them.
"""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState, ServiceBusReceiveMode
from azure.servicebus.amqp import AmqpAnnotatedMessage

from pairbus import words
from pairbus.amqp.encoding import encode
from pairbus.amqp.events import LinkAttached
from pairbus.amqp.message import (
    MessageSections,
    Properties,
    encode_annotations,
    encode_data,
    encode_properties,
    encode_value,
    scan,
)
from pairbus.amqp.performatives import SENDER_SETTLED, Source, Target
from pairbus.amqp.types import Described, Symbol, Timestamp, ULong
from pairbus.broker.engine.settings import QueueSettings

from .bus import Bus, receive
from .raw import RawClient

PLAIN = {words.SEQUENCE_NUMBER, words.ENQUEUED_TIME}
LOCKED = PLAIN | {words.LOCKED_UNTIL}
MINE = {Symbol("x-opt-mine"): "kept"}
DELIVERY = encode(Described(ULong(0x71), MINE))
FOOTER = encode(Described(ULong(0x78), {"crc": 7}))


@pytest.fixture
def client(bus_without_client: Bus) -> Iterator[RawClient]:
    namespace = bus_without_client.namespace
    namespace.create_queue("orders")
    namespace.create_queue("entry", QueueSettings(forward_to="orders"))
    with RawClient.of_owner(namespace) as raw:
        yield raw


def exchanged(client: RawClient, payload: bytes, *, path: str = "orders") -> MessageSections:
    """The message as it is received under a lock."""
    client.send(client.attach(path, sends=True), payload)
    return scan(client.receive(client.attach("orders", sends=False)).payload)


def test_a_plain_message_has_three_annotations(client: RawClient) -> None:
    assert set(exchanged(client, encode_data(b"x")).annotations) == LOCKED


def test_a_partition_key_is_a_fourth(client: RawClient) -> None:
    payload = encode_annotations({Symbol(words.PARTITION_KEY): "key"}) + encode_data(b"x")
    found = exchanged(client, payload).annotations
    assert set(found) == LOCKED | {words.PARTITION_KEY}
    assert found[words.PARTITION_KEY] == "key"


def test_a_session_is_the_partition_key(client: RawClient) -> None:
    nothing = encode_annotations({Symbol(words.PARTITION_KEY): None})
    found = exchanged(client, nothing + encode_properties(Properties(group_id="s")) + encode_data(b"x"))
    assert found.annotations[words.PARTITION_KEY] == "s"
    assert set(found.annotations) == LOCKED | {words.PARTITION_KEY}


def test_a_forwarded_message_tells_its_first_number(client: RawClient) -> None:
    found = exchanged(client, encode_data(b"x"), path="entry").annotations
    assert set(found) == LOCKED | {words.ENQUEUED_SEQUENCE_NUMBER}


@pytest.mark.parametrize("first", [b"", encode_annotations(MINE)], ids=["bare", "annotated"])
def test_delivery_annotations_are_passed_on(client: RawClient, first: bytes) -> None:
    found = exchanged(client, DELIVERY + first + encode_data(b"x"))
    assert set(found.delivery_annotations) == {*MINE, words.LOCK_TOKEN}
    assert set(found.annotations) == LOCKED | (set(MINE) if first else set())
    assert isinstance(found.delivery_annotations[words.LOCK_TOKEN], uuid.UUID)


def test_many_delivery_annotations_are_passed_on(client: RawClient) -> None:
    mine = {Symbol(f"x-{number}"): "v" * 40 for number in range(20)}
    found = exchanged(client, encode(Described(ULong(0x71), mine)) + encode_data(b"x"))
    assert found.delivery_annotations.keys() - {words.LOCK_TOKEN} == mine.keys()
    assert words.LOCK_TOKEN in found.delivery_annotations


def test_the_lock_token_of_the_hop_before_is_not(client: RawClient) -> None:
    old = uuid.UUID(int=7)
    for key in (Symbol(words.LOCK_TOKEN), words.LOCK_TOKEN.encode()):
        found = exchanged(client, encode_data(b"x") + encode(Described(ULong(0x71), {key: old})))
        assert list(found.delivery_annotations) == [words.LOCK_TOKEN]
        assert found.delivery_annotations[words.LOCK_TOKEN] != old


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (encode_data(b""), "data"),
        (encode(Described(ULong(0x76), [])), "sequence"),
        (encode_value(None), "value"),
        (encode_value(""), "value"),
        (b"", "none"),
    ],
)
def test_an_empty_body_keeps_its_kind(client: RawClient, body: bytes, kind: str) -> None:
    found = exchanged(client, encode_properties(Properties(message_id="m")) + body)
    assert (found.body_kind, found.body_bytes) == (kind, body)


def test_a_footer_before_the_body_is_given_back_behind_it(client: RawClient) -> None:
    assert exchanged(client, FOOTER + encode_data(b"x")).body_bytes == encode_data(b"x") + FOOTER


def test_what_is_deleted_on_receipt_has_an_empty_tag(client: RawClient) -> None:
    client.send(client.attach("orders", sends=True), encode_data(b"x"))
    link = client.machine.begin().attach(
        name="deleting",
        role_sender=False,
        source=Source("orders"),
        target=Target("orders"),
        snd_settle_mode=SENDER_SETTLED,
    )
    client.flush()
    client.await_event(LinkAttached)
    received = client.receive(link)
    assert (received.tag, received.settled) == (b"", True)
    assert scan(received.payload).delivery_annotations == {}


async def test_what_is_deleted_on_receipt_has_no_lock(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders")
    deleting = {"receive_mode": ServiceBusReceiveMode.RECEIVE_AND_DELETE}
    async with aio_bus.queue("orders", **deleting) as (sender, receiver):
        await sender.send_messages(
            AmqpAnnotatedMessage(data_body=b"x", delivery_annotations={"x-mine": 3}, footer={"crc": 1})
        )
        [received] = await receive(receiver)
    raw = received.raw_amqp_message
    assert raw.delivery_annotations == {b"x-mine": 3}
    assert raw.footer == {b"crc": 1}
    assert {key.decode() for key in raw.annotations} == PLAIN


async def test_states_are_told_by_every_way_to_a_message(aio_bus: Bus) -> None:
    """1: deferred; 2: was scheduled, also after its time; nothing: active."""
    aio_bus.namespace.create_queue("orders")
    async with aio_bus.queue("orders") as (sender, receiver):
        await sender.send_messages([ServiceBusMessage("plain"), ServiceBusMessage("aside")])
        plain, aside = await receive(receiver, 2)
        await receiver.defer_message(aside)
        when = aio_bus.clock.now() + 60
        message = AmqpAnnotatedMessage(data_body=b"late", annotations=_scheduled(when))
        await sender.send_messages(message)
        assert await _peeked(receiver) == {"plain": None, "aside": 1, "late": 2}
        aio_bus.pass_time(30)
        [by_number] = await receiver.receive_deferred_messages([aside.sequence_number])
        assert _state(by_number) == 1
        assert by_number.state is ServiceBusMessageState.DEFERRED
        aio_bus.pass_time(29.9)
        await receiver.renew_message_lock(plain)
        aio_bus.pass_time(0.2)
        [late] = await receive(receiver)
        assert (str(late), _state(late), _state(plain)) == ("late", 2, None)
        assert await _peeked(receiver) == {"plain": None, "aside": 1, "late": 2}


def test_a_time_that_has_passed_schedules_nothing(client: RawClient) -> None:
    payload = encode_annotations({Symbol(words.SCHEDULED_TIME): Timestamp(1000)}) + encode_data(b"x")
    assert set(exchanged(client, payload).annotations) == LOCKED | {words.SCHEDULED_TIME}


def _scheduled(when: float) -> dict[Any, Any]:
    return {words.SCHEDULED_TIME: {"TYPE": "TIMESTAMP", "VALUE": int(when * 1000)}}


def _state(message: Any) -> Any:
    return message.raw_amqp_message.annotations.get(words.MESSAGE_STATE.encode())


async def _peeked(receiver: Any) -> dict[str, Any]:
    return {str(message): _state(message) for message in await receiver.peek_messages(10, sequence_number=1)}
