"""What every transport does, held against each of them: those of the pump, and the simulation's own."""

from collections.abc import AsyncIterator
from dataclasses import asdict
from decimal import Decimal
from math import inf
from pathlib import Path
from typing import Literal, Protocol

import pytest
from azure.servicebus.amqp import AmqpAnnotatedMessage

from pairbus import conditions
from pairbus.amqp.message import (
    MessageSections,
    Properties,
    encode_application_properties,
    encode_data,
    encode_footer,
    encode_properties,
    encode_value,
    scan,
)
from pairbus.amqp.types import Decimal128, Symbol, ULong
from pairbus.broker import Broker
from pairbus.broker.counters import OperationKind
from pairbus.broker.engine.settings import QueueSettings
from pairbus.broker.engine.tiers import PREMIUM
from pairbus.broker.links.sending_endpoint import SendingEndpoint
from pairbus.clock import SystemClock
from pairbus.pairing.envelope import ACCOUNTED
from pairbus.pump.amqp_transport import AmqpTransport
from pairbus.pump.options import PumpOptions
from pairbus.pump.pair import Side
from pairbus.pump.pump import open_transport
from pairbus.pump.sdk_messages import to_payload
from pairbus.pump.transport import Delivery, Transport, Unit
from pairbus.pump.unwrapping import read_postmark
from pairbus.sdk import privates
from pairbus.wire.errors import CONNECTION_LOST, TransportError
from tests.simulation.checker import stored
from tests.simulation.faults import Fault, Weather
from tests.simulation.namespace import SimulatedNamespace
from tests.simulation.transport import SimulatedTransport
from tests.waiting import PATIENCE

from .bench import Bench, envelope

QUEUE = "waiting/room"
SETTINGS = QueueSettings(lock_duration=30.0)


def message(number: int, session: str | None = None, *, size: int = 10) -> bytes:
    return encode_properties(Properties(message_id=f"m{number}", group_id=session)) + encode_data(b"x" * size)


def ids(deliveries: list[Delivery]) -> list[str]:
    return [str(scan(one.payload).properties.message_id) for one in deliveries]


def number_of(delivery: Delivery) -> int:
    return read_postmark(scan(delivery.payload)).sequence_number


class Place(Protocol):
    """A namespace with the queue, and what a test wants to know of it."""

    transport: Transport
    #: What one receive without a message may be counted as.
    empty_receive: tuple[int, ...]

    def stored(self, path: str) -> list[MessageSections]: ...
    def empty_receives(self) -> int: ...
    def refuse(self) -> None: ...
    def fall_silent(self) -> None: ...
    def heal(self) -> object: ...


class EmbeddedPlace:
    """An embedded namespace."""

    def __init__(self, bench: Bench, kind: Literal["amqp", "sdk"]) -> None:
        self._bench = bench
        bench.primary.create_queue(QUEUE, SETTINGS)
        side = Side(connection_string=bench.primary.connection_string)
        self.transport = open_transport(side.resolve(), PumpOptions(transport=kind))
        # The SDK grants credit once more when it closes.
        self.empty_receive: tuple[int, ...] = (1,) if kind == "amqp" else (1, 2)
        self.heal = bench.primary.faults.clear

    def stored(self, path: str) -> list[MessageSections]:
        return self._bench.stored(path)

    def empty_receives(self) -> int:
        return self._bench.primary.count(OperationKind.EMPTY_RECEIVE)

    def refuse(self) -> None:
        self._bench.primary.faults.set("refuse")

    def fall_silent(self) -> None:
        if isinstance(self.transport, AmqpTransport):
            self.transport.timeout = 0.2
        self._bench.primary.faults.set("silence")


class SimulatedPlace:
    """A simulated namespace, on the clock of the machine for once."""

    def __init__(self) -> None:
        self.empty_receive: tuple[int, ...] = (1,)
        self._weather = Weather((), 0)
        self._namespace = SimulatedNamespace("contoso", SystemClock(), self._weather)
        self._namespace.act(lambda engine, now: engine.create_queue(QUEUE, SETTINGS, now))
        self.transport: Transport = SimulatedTransport(self._namespace)
        self.heal = self._weather.clear

    def stored(self, path: str) -> list[MessageSections]:
        return stored(self._namespace, path)

    def empty_receives(self) -> int:
        return self._namespace.counters.total(OperationKind.EMPTY_RECEIVE)

    def refuse(self) -> None:
        self._weather.add(Fault("refuse", "contoso", 0.0, inf))
        self._namespace.cut("connections are refused")

    def fall_silent(self) -> None:
        assert isinstance(self.transport, SimulatedTransport)
        self.transport.timeout = 0.2
        self._weather.add(Fault("silence", "contoso", 0.0, inf))


@pytest.fixture(params=["amqp", "sdk", "simulated"])
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    made: Place
    if request.param == "simulated":
        made = SimulatedPlace()
    else:
        made = EmbeddedPlace(request.getfixturevalue("bench"), request.param)
    yield made
    await made.transport.close()


@pytest.fixture
def transport(place: Place) -> Transport:
    return place.transport


def names(place: Place, path: str = QUEUE) -> list[str]:
    return [str(one.properties.message_id) for one in place.stored(path)]


async def test_what_is_sent_is_received_in_order_and_completed(transport: Transport, place: Place) -> None:
    units = [Unit([message(number)]) for number in range(20)]
    assert await transport.destination(QUEUE).send(units) == [None] * 20
    source = transport.source(QUEUE)
    found: list[Delivery] = []
    while len(found) < 20:
        found += await source.receive(20, 5.0)
    assert ids(found) == [f"m{number}" for number in range(20)]
    assert await source.complete(found) == [None] * 20
    assert place.stored(QUEUE) == []
    await source.close()


# What the SDK reads and writes in its own way.
UNUSUAL: dict[str, bytes] = {
    "a number for an id": encode_properties(Properties(message_id=ULong(5), correlation_id=ULong(2**64 - 1)))
    + encode_data(b"x"),
    "large numbers": encode_application_properties({"n": ULong(2**63), "m": 2**63 - 1}) + encode_data(b"x"),
    "a number for a body": encode_value(2**40),
    "a map with numbers for keys": encode_value({1: "one", "two": [2, None]}),
    "a footer behind much": encode_data(190_000 * b"x") + encode_footer({Symbol("x-opt-sum"): 7}),
    "a footer": encode_data(b"x") + encode_footer({Symbol("x-opt-sum"): 7}),
}


async def test_every_standard_property_is_carried(transport: Transport) -> None:
    sent = Properties(
        message_id="m",
        user_id=b"u",
        to="there",
        subject="s",
        reply_to="back",
        correlation_id="c",
        content_type="text/plain",
        content_encoding="utf-8",
        absolute_expiry_time=4_102_444_800_000,
        creation_time=1_700_000_000_000,
        group_id="g",
        group_sequence=3,
        reply_to_group_id="rg",
    )
    assert None not in asdict(sent).values(), "a property that nothing is asked of"
    payload = encode_properties(sent) + encode_data(b"x")
    assert await transport.destination(QUEUE).send([Unit([payload])]) == [None]
    source = transport.source(QUEUE)
    [found] = await source.receive(1, PATIENCE)
    assert asdict(scan(found.payload).properties) == asdict(sent)
    await source.close()


@pytest.mark.parametrize("what", UNUSUAL)
async def test_what_is_unusual_is_sent_as_it_is_and_received(
    transport: Transport, place: Place, what: str
) -> None:
    sent = scan(UNUSUAL[what])
    assert await transport.destination(QUEUE).send([Unit([sent.payload])]) == [None]
    [kept] = place.stored(QUEUE)
    assert kept.body_bytes == sent.body_bytes
    assert kept.application_properties_bytes == sent.application_properties_bytes
    source = transport.source(QUEUE)
    [found] = await source.receive(1, PATIENCE)
    received = scan(found.payload)
    assert received.body_bytes == sent.body_bytes
    assert received.properties.message_id == kept.properties.message_id
    assert received.application_properties == sent.application_properties
    await source.close()


async def test_an_sdk_that_is_not_known_writes_them_itself(
    transport: Transport, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(privates, "VERSION", "7.99.0")
    units = [Unit([message(1)]), Unit([message(2)]), Unit([message(3, "s"), message(4, "s")], "s")]
    assert await transport.destination(QUEUE).send(units) == [None, None, None]
    stored = [(one.properties.message_id, one.properties.group_id) for one in place.stored(QUEUE)]
    assert stored == [("m1", None), ("m2", None), ("m3", "s"), ("m4", "s")]


@pytest.mark.parametrize(
    ("number", "digits"),
    [
        ("1.5", "303e000000000000000000000000000f"),
        ("NaN", "7c" + 30 * "0"),
        ("Infinity", "78" + 30 * "0"),
        ("-Infinity", "f8" + 30 * "0"),
    ],
)
def test_a_decimal_that_the_sdk_has_read_is_written(number: str, digits: str) -> None:
    read = AmqpAnnotatedMessage(value_body=Decimal(number), properties={"message_id": 2**63})
    written = scan(to_payload(read))
    assert written.value() == Decimal128(bytes.fromhex(digits))
    assert written.properties.message_id == 2**63


async def test_a_unit_of_several_is_taken_whole(transport: Transport, place: Place) -> None:
    whole = Unit([message(1, "s"), message(2, "s")], "s")
    assert await transport.destination(QUEUE).send([whole]) == [None]
    assert names(place) == ["m1", "m2"]


async def test_each_unit_has_its_own_outcome(transport: Transport, place: Place) -> None:
    units = [Unit([message(1)]), Unit([message(2, size=300_000)]), Unit([message(3)])]
    good, large, also_good = await transport.destination(QUEUE).send(units)
    assert (good, also_good) == (None, None)
    assert large is not None
    assert large.condition == conditions.MESSAGE_SIZE_EXCEEDED
    assert names(place) == ["m1", "m3"]


async def test_a_missing_entity_is_told(transport: Transport) -> None:
    (outcome,) = await transport.destination("nowhere").send([Unit([message(1)])])
    assert outcome is not None
    assert outcome.condition == conditions.NOT_FOUND


async def test_nothing_to_receive_is_an_empty_list_and_one_empty_receive(
    transport: Transport, place: Place
) -> None:
    source = transport.source(QUEUE)
    assert await source.receive(5, 0.05) == []
    assert await source.stop_receiving() == []
    await source.close()
    await transport.close()
    assert place.empty_receives() in place.empty_receive


async def test_who_stops_receiving_hears_of_no_silence(transport: Transport, place: Place) -> None:
    """What came can still be given back, and a drain that is at its end has not failed."""
    source = transport.source(QUEUE)
    assert await source.receive(5, 0.05) == []
    place.fall_silent()
    assert await source.stop_receiving() == []
    place.heal()
    await source.close()


async def test_what_there_is_can_be_had_at_once(transport: Transport) -> None:
    """All of it, in pieces; and what comes after that the next time."""
    source, destination = transport.source(QUEUE), transport.destination(QUEUE)
    for first in (0, 20):
        sent = [message(number) for number in range(first, first + 20)]
        assert await destination.send([Unit([payload]) for payload in sent]) == [None] * 20
        got: list[Delivery] = []
        while len(got) < 20:
            got += await source.receive(100, 5.0, at_once=True)
        assert ids(got) == [f"m{number}" for number in range(first, first + 20)]
        assert await source.complete(got) == [None] * 20
    await source.close()


@pytest.mark.parametrize("place", ["amqp"], indirect=True)
async def test_that_there_is_nothing_is_known_without_a_wait(transport: Transport, place: Place) -> None:
    """No time-out ends it: there is none within the life of a test."""
    source = transport.source(QUEUE)
    for asked in range(1, 4):
        assert await source.receive(10, 1e6, at_once=True) == []
        assert place.empty_receives() == asked
    assert await source.stop_receiving() == []
    assert place.empty_receives() == 3
    await source.close()


@pytest.mark.parametrize("place", ["amqp"], indirect=True)
async def test_who_says_nothing_of_the_end_is_waited_for(
    transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the line, on which nothing else is said either, is not taken for dead."""
    assert isinstance(transport, AmqpTransport)
    monkeypatch.setattr(SendingEndpoint, "finish_drain", lambda endpoint: None)
    source = transport.source(QUEUE)
    assert await source.receive(10, 0.01) == []
    line = await transport.line(QUEUE)
    transport.timeout = 0.1
    assert await source.receive(10, 0.01, at_once=True) == []
    transport.timeout = 10.0
    assert await transport.destination(QUEUE).send([Unit([message(1)])]) == [None]
    assert ids(await source.receive(10, 10.0, at_once=True)) == ["m1"]
    assert await transport.line(QUEUE) is line


async def test_deferred_messages_come_back_by_number(transport: Transport) -> None:
    await transport.destination(QUEUE).send([Unit([message(number)]) for number in range(3)])
    source = transport.source(QUEUE)
    found: list[Delivery] = []
    while len(found) < 3:
        found += await source.receive(3, 5.0)
    numbers = [number_of(one) for one in found]
    assert await source.defer(found) == [None] * 3
    peeked = await source.peek(0, 10)
    assert [(one.sequence_number, one.is_deferred) for one in peeked] == [(n, True) for n in numbers]
    assert await source.peek(numbers[-1] + 1, 10) == []
    second, first, missing = await source.fetch([numbers[1], numbers[0], 999])
    assert isinstance(first, Delivery)
    assert isinstance(second, Delivery)
    assert ids([first, second]) == ["m0", "m1"]
    assert isinstance(missing, TransportError)
    assert missing.condition == conditions.MESSAGE_NOT_FOUND
    assert await source.complete([first]) == [None]
    assert await source.release([second]) == [None]
    assert [one.is_deferred for one in await source.peek(0, 10)] == [True, True]
    await source.close()


async def test_large_messages_that_were_put_aside_come_back_together(transport: Transport) -> None:
    """Their numbers are in one request, so all of them are in one answer."""
    many, size = 12, 200_000
    sent = [Unit([message(number, size=size)]) for number in range(many)]
    assert await transport.destination(QUEUE).send(sent) == [None] * many
    source = transport.source(QUEUE)
    found: list[Delivery] = []
    while len(found) < many:
        received = await source.receive(many, 5.0)
        assert await source.defer(received) == [None] * len(received)
        found += received
    fetched = [one for one in await source.fetch([*map(number_of, found)]) if isinstance(one, Delivery)]
    assert [len(scan(one.payload).payload) >= size for one in fetched] == [True] * many
    assert await source.complete(fetched) == [None] * many
    await source.close()


@pytest.mark.parametrize("kind", ["amqp", "sdk"])
async def test_what_a_premium_namespace_takes_is_received(
    kind: Literal["amqp", "sdk"], certificate: tuple[Path, Path]
) -> None:
    large = QueueSettings(max_message_size_in_kilobytes=3 * 1024)
    with Broker({"contoso": 0}, certificate=certificate, limits=PREMIUM) as broker:
        broker["contoso"].create_queue(QUEUE, large)
        side = Side(connection_string=broker["contoso"].connection_string)
        transport = open_transport(side.resolve(), PumpOptions(transport=kind))
        assert await transport.destination(QUEUE).send([Unit([message(1, size=2_000_000)])]) == [None]
        source = transport.source(QUEUE)
        [found] = await source.receive(1, PATIENCE)
        assert len(found.payload) > 2_000_000
        assert await source.complete([found]) == [None]
        await source.close()
        await transport.close()


# The SDK has no public way to change properties.
@pytest.mark.parametrize("place", ["amqp", "simulated"], indirect=True)
async def test_what_is_put_aside_again_says_how_often_if_that_is_accounted_for(
    transport: Transport, place: Place
) -> None:
    copied = encode_application_properties({ACCOUNTED: 7}) + encode_data(b"of a message that was marked")
    await transport.destination(QUEUE).send([Unit([message(1)]), Unit([copied]), Unit([message(3)])])
    source = transport.source(QUEUE)
    found: list[Delivery] = []
    while len(found) < 3:
        found += await source.receive(3, 5.0)
    for one, accounted in zip(found, (1, 1, 2), strict=True):
        one.accounted = accounted
    assert await source.defer(found) == [None] * 3
    marks = [one.application_properties for one in place.stored(QUEUE)]
    assert marks == [{}, {ACCOUNTED: 1}, {ACCOUNTED: 2}]
    fetched = [one for one in await source.fetch([*map(number_of, found)]) if isinstance(one, Delivery)]
    for one, accounted in zip(fetched, (2, 2, 3), strict=True):
        one.accounted = accounted
    assert await source.defer(fetched) == [None] * 3
    marks = [one.application_properties for one in place.stored(QUEUE)]
    assert marks == [{ACCOUNTED: 2}, {ACCOUNTED: 2}, {ACCOUNTED: 3}]
    await source.close()


@pytest.mark.parametrize("place", ["amqp"], indirect=True)
async def test_a_message_that_can_take_no_mark_is_put_aside_without(
    transport: Transport, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = encode_application_properties({"x": "y" * 1000})
    monkeypatch.setattr("pairbus.broker.engine.message.MOST_PROPERTIES", len(full))
    await transport.destination(QUEUE).send([Unit([full + encode_data(b"")])])
    source = transport.source(QUEUE)
    (found,) = await source.receive(1, 5.0)
    found.accounted = 2
    assert await source.defer([found]) == [None]
    (fetched,) = await source.fetch([number_of(found)])
    assert isinstance(fetched, Delivery)
    fetched.accounted = 3
    assert await source.defer([fetched]) == [None]
    (kept,) = place.stored(QUEUE)
    assert (kept.header.delivery_count, [*kept.application_properties]) == (2, ["x"])
    await source.close()


async def test_dead_letters_have_their_reason(transport: Transport, place: Place) -> None:
    await transport.destination(QUEUE).send([Unit([message(1)])])
    source = transport.source(QUEUE)
    (found,) = await source.receive(1, 5.0)
    assert await source.dead_letter(found, reason="Why", description="because") is None
    (dead,) = place.stored(f"{QUEUE}/$DeadLetterQueue")
    properties = dead.application_properties
    assert properties["DeadLetterReason"] == "Why"
    assert properties["DeadLetterErrorDescription"] == "because"
    await source.close()


async def test_released_messages_can_be_received_again(transport: Transport) -> None:
    await transport.destination(QUEUE).send([Unit([message(1)])])
    source = transport.source(QUEUE)
    (found,) = await source.receive(1, 5.0)
    assert await source.release([found]) == [None]
    (again,) = await source.receive(1, 5.0)
    assert ids([again]) == ["m1"]
    await source.close()


async def test_locks_are_renewed(transport: Transport) -> None:
    await transport.destination(QUEUE).send([Unit([message(1)])])
    source = transport.source(QUEUE)
    (found,) = await source.receive(1, 5.0)
    before = read_postmark(scan(found.payload)).locked_until_ms / 1000
    (until,) = await source.renew([found])
    assert isinstance(until, float)
    assert until >= before
    await source.complete([found])
    (lost,) = await source.renew([found])
    assert isinstance(lost, TransportError)
    await source.close()


async def test_ends_can_be_used_again_after_an_outage(transport: Transport, place: Place) -> None:
    destination = transport.destination(QUEUE)
    assert await destination.send([Unit([message(1)])]) == [None]
    place.refuse()
    (outcome,) = await destination.send([Unit([message(2)])])
    assert outcome is not None
    place.heal()
    assert await destination.send([Unit([message(3)])]) == [None]
    assert names(place) == ["m1", "m3"]


async def test_what_no_connection_took_has_never_left(transport: Transport, place: Place) -> None:
    place.refuse()
    (outcome,) = await transport.destination(QUEUE).send([Unit([message(1)])])
    assert outcome is not None
    assert outcome.is_unsent


# The SDK settles over the receiver that a message came by, and has no public way without it.
@pytest.mark.parametrize("place", ["amqp", "simulated"], indirect=True)
async def test_a_lock_outlives_the_link_that_it_was_got_on(transport: Transport, place: Place) -> None:
    await transport.destination(QUEUE).send([Unit([message(1)]), Unit([message(2)])])
    source = transport.source(QUEUE)
    found: list[Delivery] = []
    while len(found) < 2:
        found += await source.receive(2, 5.0)
    place.refuse()
    place.heal()
    assert await source.complete(found[:1]) == [None]
    assert await source.defer(found[1:]) == [None]
    assert [one.is_deferred for one in await source.peek(0, 10)] == [True]
    await source.close()


async def test_before_credits_are_known_little_is_received() -> None:
    """They are told with the connection, which the first receive opens."""
    with Broker({"contoso": 0, "contoso-dr": 0}, credits=1000) as broker:
        bench = Bench(broker)
        (queue,) = bench.create("orders")
        bench.load(queue, [envelope("orders", f"m{number}") for number in range(100)])
        transport = open_transport(bench.pair().secondary.resolve(), PumpOptions())
        told: list[float] = []
        transport.on_credits = told.append
        source = transport.source(queue)
        found = await source.receive(1000, PATIENCE)
        assert (told, len(found) <= 10) == ([1000], True)
        while len(found) < 100:
            found += await source.receive(1000, PATIENCE)
        await source.close()
        await transport.close()


async def test_what_was_closed_is_not_opened_again(transport: Transport, place: Place) -> None:
    """Nobody would close it a second time."""
    destination, source = transport.destination(QUEUE), transport.source(QUEUE)
    await transport.close()
    (refusal,) = await destination.send([Unit([message(1)])])
    assert refusal is not None
    assert (refusal.condition, refusal.is_unsent) == (CONNECTION_LOST, True)
    with pytest.raises(TransportError) as met:
        await source.receive(1, 0.1)
    assert met.value.condition == CONNECTION_LOST
    assert names(place) == []
