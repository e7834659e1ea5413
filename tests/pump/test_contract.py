"""What every transport does, held against each of them on a real namespace."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from pairbus import conditions
from pairbus.amqp.message import Properties, encode_data, encode_properties, scan
from pairbus.broker.counters import OperationKind
from pairbus.broker.engine.settings import QueueSettings
from pairbus.pump.amqp_transport import AmqpTransport
from pairbus.pump.errors import TransportError
from pairbus.pump.options import PumpOptions
from pairbus.pump.pair import Side
from pairbus.pump.pump import open_transport
from pairbus.pump.transport import Delivery, Transport, Unit
from pairbus.pump.unwrapping import read_postmark

from .bench import Bench

QUEUE = "waiting/room"


def message(number: int, session: str | None = None, *, size: int = 10) -> bytes:
    return encode_properties(Properties(message_id=f"m{number}", group_id=session)) + encode_data(b"x" * size)


def ids(deliveries: list[Delivery]) -> list[str]:
    return [str(scan(one.payload).properties.message_id) for one in deliveries]


def number_of(delivery: Delivery) -> int:
    return read_postmark(scan(delivery.payload)).sequence_number


@pytest.fixture(params=["amqp", "sdk"])
async def transport(request: pytest.FixtureRequest, bench: Bench) -> AsyncIterator[Transport]:
    bench.primary.create_queue(QUEUE, QueueSettings(lock_duration=30.0))
    side = Side(connection_string=bench.primary.connection_string)
    made = open_transport(side.resolve(), PumpOptions(transport=request.param))
    yield made
    await made.close()


async def test_what_is_sent_is_received_in_order_and_completed(transport: Transport, bench: Bench) -> None:
    units = [Unit([message(number)]) for number in range(20)]
    assert await transport.destination(QUEUE).send(units) == [None] * 20
    source = transport.source(QUEUE)
    found: list[Delivery] = []
    while len(found) < 20:
        found += await source.receive(20, 5.0)
    assert ids(found) == [f"m{number}" for number in range(20)]
    assert await source.complete(found) == [None] * 20
    assert bench.primary.message_count(QUEUE) == 0
    await source.close()


async def test_a_unit_of_several_is_taken_whole(transport: Transport, bench: Bench) -> None:
    whole = Unit([message(1, "s"), message(2, "s")], "s")
    assert await transport.destination(QUEUE).send([whole]) == [None]
    assert bench.ids(QUEUE) == ["m1", "m2"]


async def test_each_unit_has_its_own_outcome(transport: Transport, bench: Bench) -> None:
    units = [Unit([message(1)]), Unit([message(2, size=300_000)]), Unit([message(3)])]
    good, large, also_good = await transport.destination(QUEUE).send(units)
    assert (good, also_good) == (None, None)
    assert large is not None
    assert large.condition == conditions.MESSAGE_SIZE_EXCEEDED
    assert bench.ids(QUEUE) == ["m1", "m3"]


async def test_a_missing_entity_is_told(transport: Transport) -> None:
    (outcome,) = await transport.destination("nowhere").send([Unit([message(1)])])
    assert outcome is not None
    assert outcome.condition == conditions.NOT_FOUND


async def test_nothing_to_receive_is_an_empty_list_and_one_empty_receive(
    transport: Transport, bench: Bench
) -> None:
    source = transport.source(QUEUE)
    assert await source.receive(5, 0.05) == []
    assert await source.stop_receiving() == []
    await source.close()
    await transport.close()
    # The SDK grants credit once more when it closes.
    assert bench.primary.count(OperationKind.EMPTY_RECEIVE) in (
        (1,) if isinstance(transport, AmqpTransport) else (1, 2)
    )


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


async def test_dead_letters_have_their_reason(transport: Transport, bench: Bench) -> None:
    await transport.destination(QUEUE).send([Unit([message(1)])])
    source = transport.source(QUEUE)
    (found,) = await source.receive(1, 5.0)
    assert await source.dead_letter(found, reason="Why", description="because") is None
    (dead,) = bench.stored(f"{QUEUE}/$DeadLetterQueue")
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


async def test_ends_can_be_used_again_after_an_outage(transport: Transport, bench: Bench) -> None:
    destination = transport.destination(QUEUE)
    assert await destination.send([Unit([message(1)])]) == [None]
    bench.primary.faults.set("refuse")
    (outcome,) = await destination.send([Unit([message(2)])])
    assert outcome is not None
    bench.primary.faults.clear()
    assert await destination.send([Unit([message(3)])]) == [None]
    assert bench.ids(QUEUE) == ["m1", "m3"]
