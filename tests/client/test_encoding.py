"""What our own AMQP sends is what the SDK sends, byte for byte, and what the one refuses the other does."""

import asyncio
import datetime
import time
import uuid
from collections.abc import Callable, Iterator
from decimal import Decimal
from enum import IntEnum, StrEnum
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._pyamqp.message import BatchMessage
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusError
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.client.direct import encoding
from pairbus.client.direct.batch import EncodedBatch
from pairbus.client.direct.encoding import encode_all, encode_message, encode_plainly, routing_of
from pairbus.client.sending.calls import EntityCall
from pairbus.client.sending.message import natives_of
from pairbus.pairing.envelope import wrap
from pairbus.sdk import privates, side
from pairbus.sdk.privates import encode_by_sdk
from pairbus.sdk.side import SdkSide
from tests.examples import examples

from .scene import Scene, text
from .test_fidelity import SAMPLES


class Shade(IntEnum):
    """A number that has its own idea of itself."""

    DARK = 3


class Tenant(StrEnum):
    """A text that has its own idea of itself."""

    CONTOSO = "contoso"


# What fits its type by a hair, and what does not.
EXTREMES = [-(2**63) - 1, -(2**63), -1, 2**31, 2**63 - 1, 2**63, 2**64 - 1, 2**64]
texts = st.text(max_size=300)
times = st.datetimes(
    min_value=datetime.datetime(1970, 1, 2),
    max_value=datetime.datetime(2200, 1, 1),
    timezones=st.sampled_from([None, datetime.UTC, datetime.timezone(datetime.timedelta(hours=-5))]),
)
values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**33), 2**33),
    st.floats(allow_nan=False),
    texts,
    st.binary(max_size=300),
    st.uuids(),
    times,
    st.just(Shade.DARK),
    st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=0, max_value=10**9),
    st.builds(lambda kind, number: {"TYPE": kind, "VALUE": number},
              st.sampled_from(["LONG", "TIMESTAMP", "ULONG", "SHORT", "NONE"]),
              st.one_of(st.integers(-200, 2**40), st.sampled_from(EXTREMES))),
    st.just([1, "a"]),
    st.just({"a": 1}),
    st.just(object()),
)  # fmt: skip
keys = st.one_of(st.text(max_size=40), st.binary(max_size=40))
usual_values = st.one_of(st.none(), st.booleans(), st.integers(-(2**31), 2**31 - 1), texts, st.uuids(), times)
maps = st.one_of(
    st.dictionaries(keys, usual_values, max_size=6),
    st.dictionaries(keys, usual_values, max_size=6),
    st.dictionaries(keys, values, max_size=6),
)
ids = st.one_of(
    st.none(), texts, st.binary(max_size=40), st.uuids(), st.integers(0, 2**64 - 1), st.booleans()
)
moments = st.one_of(st.none(), st.integers(0, 2**42), st.sampled_from(EXTREMES))
words = st.one_of(st.none(), texts, st.binary(max_size=40))
properties = st.builds(
    AmqpMessageProperties,
    message_id=ids,
    user_id=words,
    to=words,
    subject=words,
    reply_to=words,
    correlation_id=ids,
    content_type=words,
    content_encoding=words,
    creation_time=moments,
    absolute_expiry_time=moments,
    group_id=words,
    group_sequence=st.one_of(st.none(), st.integers(-3, 2**33)),
    reply_to_group_id=words,
)
headers = st.builds(
    AmqpMessageHeader,
    delivery_count=st.one_of(st.none(), st.integers(-1, 2**33)),
    time_to_live=st.one_of(st.none(), st.integers(0, 2**33), st.just(922337203685477)),
    first_acquirer=st.one_of(st.none(), st.booleans()),
    durable=st.one_of(st.none(), st.booleans()),
    priority=st.one_of(st.none(), st.integers(-1, 300)),
)
bodies = st.one_of(
    st.lists(st.binary(max_size=600), max_size=3).map(lambda data: {"data_body": data}),
    values.map(lambda value: {"value_body": value}),
    st.lists(st.lists(st.integers(0, 9), max_size=3), max_size=2).map(lambda rows: {"sequence_body": rows}),
)


@st.composite
def messages(draw: st.DrawFn) -> AmqpAnnotatedMessage:
    """Any message, usual parts more often than others."""
    message: Any = AmqpAnnotatedMessage(**draw(bodies))
    message.properties = draw(st.one_of(st.none(), properties))
    message.header = draw(st.one_of(st.none(), st.none(), headers))
    message.application_properties = draw(st.one_of(st.none(), maps))
    message.annotations = draw(st.one_of(st.none(), maps))
    message.footer = draw(st.one_of(st.none(), st.none(), maps))
    return cast(AmqpAnnotatedMessage, message)


def written(encode: Any, message: Any) -> bytes | type[BaseException]:
    try:
        found = encode(message)
        return TypeError if found is None else bytes(found)
    except Exception as error:  # noqa: BLE001 - that both refuse it is what is tested
        return type(error)


@pytest.fixture(autouse=True)
def _standing_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a time to live the moment of the send is written, to the second."""
    now = datetime.datetime(2027, 7, 15, 8, tzinfo=datetime.UTC)
    clock = SimpleNamespace(gmtime=now.utctimetuple, mktime=time.mktime, monotonic=time.monotonic)
    monkeypatch.setattr("pairbus.client.direct.encoding.time", clock)
    clock = SimpleNamespace(datetime=SimpleNamespace(now=now.astimezone))
    monkeypatch.setattr("azure.servicebus._transport._pyamqp_transport.datetime", clock)


@pytest.fixture
def set_zone() -> Iterator[Callable[[str], None]]:
    with pytest.MonkeyPatch.context() as patch:

        def choose(zone: str) -> None:
            patch.setenv("TZ", zone)
            time.tzset()

        yield choose
    time.tzset()


@pytest.mark.parametrize("zone", ["UTC", "EST5EDT,M3.2.0,M11.1.0", "<+0530>-5:30"])
def test_a_life_has_the_same_bytes_in_every_time_zone(zone: str, set_zone: Callable[[str], None]) -> None:
    set_zone(zone)
    compare(ServiceBusMessage("text", message_id="1", time_to_live=datetime.timedelta(minutes=5)))


def compare(message: Any) -> None:
    raw = message.raw_amqp_message if isinstance(message, ServiceBusMessage) else message
    theirs = written(encode_by_sdk, raw)
    for encode in (encode_all, encode_plainly):
        payloads = encode([message])
        assert payloads is None or payloads == [theirs]
    assert written(encode_message, message) == theirs
    alone = written(partial(encode_message, alone=True), message)
    if isinstance(theirs, bytes) or isinstance(written(convert_by_sdk, raw), type):
        assert alone == theirs
    else:
        assert alone is ServiceBusError, "the SDK's sender wraps what its encoder raises"


def convert_by_sdk(raw: Any) -> bytes:
    """What the SDK does before its sender begins."""
    PyamqpTransport.to_outgoing_amqp_message(raw)
    return b""


@settings(max_examples=examples(100), deadline=None)
@given(messages())
def test_a_message_has_the_same_bytes(message: AmqpAnnotatedMessage) -> None:
    compare(message)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_has_the_same_bytes(name: str) -> None:
    compare(SAMPLES[name]())


@pytest.mark.parametrize("number", EXTREMES)
def test_a_number_that_its_type_cannot_hold_is_refused_alike(number: int) -> None:
    compare(AmqpAnnotatedMessage(data_body=b"x", properties={"absolute_expiry_time": number}))
    for kind in ("LONG", "TIMESTAMP", "ULONG"):
        typed: Any = {"TYPE": kind, "VALUE": number}
        compare(AmqpAnnotatedMessage(data_body=b"x", application_properties={"n": typed}))


# What has to be written here and not by the SDK, or there would be nothing won.
USUAL: dict[str, Any] = {
    "text": ServiceBusMessage("text", message_id="1"),
    "bytes": ServiceBusMessage(bytes(2000), message_id="1"),
    "properties": ServiceBusMessage(
        "text",
        message_id="1",
        application_properties={"a": 1, "b": "two", "c": 3.0, "d": True, "e": uuid.UUID(int=5)},
    ),
    "session, time to live, schedule": ServiceBusMessage(
        "text",
        message_id="1",
        session_id="s",
        time_to_live=datetime.timedelta(minutes=5),
        scheduled_enqueue_time_utc=datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC),
    ),
    "routing": ServiceBusMessage(
        "text", message_id="1", partition_key="p", correlation_id="c", subject="s", to="t", reply_to="r",
        reply_to_session_id="q", content_type="application/json",
    ),
    "as it waits in a backlog": AmqpAnnotatedMessage(
        data_body=b"x", properties={"message_id": "1"},
        application_properties={"a": {"TYPE": "LONG", "VALUE": 7}, "b": {"TYPE": "TIMESTAMP", "VALUE": 9}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", USUAL)
def test_the_usual_needs_no_help(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compare(USUAL[name])

    def refuse(raw: Any, *, alone: bool = False) -> bytes:
        raise AssertionError("left to the SDK")

    monkeypatch.setattr(encoding, "encode_by_sdk", refuse)
    assert [encode_message(USUAL[name])] == encode_all([USUAL[name]])


def test_a_message_with_an_id_and_one_piece_of_data_is_plain_and_no_other() -> None:
    assert [name for name, message in USUAL.items() if encode_plainly(message)] == ["text", "bytes"]
    assert encode_plainly([USUAL["text"], USUAL["bytes"]]) == encode_all([USUAL["text"], USUAL["bytes"]])
    assert encode_plainly([USUAL["text"], USUAL["routing"]]) is None
    unnamed = ServiceBusMessage(b"1")
    unnamed.message_id = None
    many: Any = {"message_id": "1"}
    others = (unnamed, AmqpAnnotatedMessage(data_body=[b"1", b"2"], properties=many), {"body": "1"}, None, ())
    assert [encode_plainly(each) for each in others] == [None] * len(others)
    assert encode_plainly(ServiceBusMessage(b"1", message_id="\ud800")) is None, "which cannot be written"


@pytest.mark.parametrize("name", USUAL)
def test_what_was_written_is_read_as_it_was(name: str) -> None:
    given = USUAL[name]
    call = EntityCall(given, [given])
    call._encode()
    before = call.written
    call.restore()
    assert call.native is call.messages[0] is not given
    envelopes = [wrap("orders", natives_of(each)) for each in (call.messages[0], given)]
    assert envelopes[0] == envelopes[1]
    assert routing_of(call.native) == routing_of(given), "which a batch repeats outside"
    assert [encode_message(call.native)] == before or given.time_to_live  # which has the time of the send


@settings(max_examples=examples(100), deadline=None)
@given(messages())
def test_any_message_that_was_written_is_read_as_it_was(message: AmqpAnnotatedMessage) -> None:
    call = EntityCall(message, [message])
    before = call._encode()
    if before is not None and not names_twice(message):
        call.restore()
        assert call.native is not message
        assert [encode_message(call.native)] == before  # also a time to live, while the clock stands


def names_twice(message: AmqpAnnotatedMessage) -> bool:
    """Whether two keys are one on the wire, which a namespace refuses."""
    maps = (message.annotations or {}, message.application_properties or {})
    return any(len({*map(as_bytes, each)}) < len(each) for each in maps)


def as_bytes(key: str | bytes) -> bytes:
    return key if isinstance(key, bytes) else key.encode()


@pytest.mark.parametrize(
    "parts",
    [
        {"properties": {"message_id": "1", "content_type": "text/plain; name=Grüße"}},
        {"properties": {"message_id": "1", "subject": b"\xff"}},
        {"properties": {"message_id": "1"}, "annotations": {"größe": 1}},
        {"properties": {"message_id": "1"}, "application_properties": {b"\xff": 1}},
        {"properties": {"message_id": "1"}, "header": {"delivery_count": 0}},
    ],
)
def test_what_cannot_be_read_as_it_was_is_left_to_the_sdk_and_so_copied(parts: Any) -> None:
    message = AmqpAnnotatedMessage(data_body=b"x", **parts)
    compare(message)
    assert encode_all([message]) is None


def test_what_the_sdk_traces_is_written_by_it_where_it_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side, "settings", SimpleNamespace(tracing_implementation=lambda: object))
    assert SdkSide.is_tracing(), "it is not asked each time whether the SDK traces"
    assert EntityCall(USUAL["text"], [USUAL["text"]], traces=True)._encode() is None


@settings(max_examples=20, deadline=None)
@given(st.lists(messages(), min_size=1, max_size=3), st.integers(50, 3000))
def test_a_batch_has_the_same_bytes_size_and_limit(group: list[AmqpAnnotatedMessage], size: int) -> None:
    ours, theirs = EncodedBatch(size), ServiceBusMessageBatch(size)
    for message in group:
        if not isinstance(written(encode_by_sdk, message), bytes):
            continue
        outcomes = []
        for batch in (ours, theirs):
            try:
                batch.add_message(message)
            except MessageSizeExceededError:
                outcomes.append("full")
            else:
                outcomes.append("added")
        assert outcomes[0] == outcomes[1]
    assert (len(ours), ours.size_in_bytes, repr(ours)) == (len(theirs), theirs.size_in_bytes, repr(theirs))
    if len(ours):
        raw: Any = theirs._message
        expected = written(lambda parts: encode_payload(bytearray(), BatchMessage(*parts)), raw)
        if isinstance(expected, bytes):
            assert ours.encode() == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("message_id", 5),
        ("message_id", 2**40),
        ("message_id", Tenant.CONTOSO),
        ("session_id", Tenant.CONTOSO),
        ("partition_key", Tenant.CONTOSO),
    ],
)
def test_a_batch_is_routed_by_whatever_the_sdk_can_write(name: str, value: Any) -> None:
    ours, theirs = EncodedBatch(), ServiceBusMessageBatch()
    for batch in (ours, theirs):
        batch.add_message(ServiceBusMessage("x", **{"message_id": "1", name: value}))
    raw: Any = theirs._message
    assert ours.encode() == encode_payload(bytearray(), BatchMessage(*raw))


def test_a_decimal_and_a_value_body_are_left_to_the_sdk() -> None:
    compare(AmqpAnnotatedMessage(value_body={"a": [1, Decimal("1.5")]}))
    compare(AmqpAnnotatedMessage(data_body=b"x", application_properties={"a": Decimal("1.5")}))


def test_a_message_is_not_changed() -> None:
    message = ServiceBusMessage("a", application_properties={"raw": b"bytes"})
    encode_message(message)
    assert message.application_properties == {"raw": b"bytes"}


async def test_an_sdk_that_is_not_known_writes_every_message_itself(
    still: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(privates, "VERSION", "7.99.0")
    sender = still.sender()
    names = ["one", "two", "three", "four", "five", "six"]
    for is_down in (False, True):
        if is_down:
            sender._client.fail_over("orders")
        await sender.send_messages(text("one"))
        await sender.send_messages([text("two"), text("three")])
        batch = await sender.create_message_batch()
        batch.add_message(text("four"))
        await sender.send_messages(batch)
        await asyncio.gather(*(sender.send_messages(text(name)) for name in ("five", "six")))
    assert still.ids() == names
    assert still.backlog_ids() == names
