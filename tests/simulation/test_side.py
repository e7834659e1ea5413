"""What takes the place of the SDK does as the SDK does: our own AMQP, and the stand-in of the simulation."""

import asyncio
import datetime
import logging
from collections.abc import AsyncIterator, Iterator
from math import inf
from typing import Any, Protocol

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import MessageSizeExceededError

from pairbus import words
from pairbus.amqp.message import MessageSections
from pairbus.broker.engine.settings import QueueSettings
from pairbus.client.direct.side import AmqpSide
from pairbus.clock import SystemClock
from pairbus.pairing.failures import classify
from pairbus.sdk.failures import describe
from pairbus.sdk.side import SdkSide
from tests.pump.bench import Bench, opened

from .checker import stored
from .faults import Fault, FaultKind, Weather
from .history import create_queue
from .namespace import SimulatedNamespace
from .side import SimulatedSide

QUEUE = "orders"


class Place(Protocol):
    """A namespace with a queue, and a side that leads to it."""

    side: Any

    def stored(self) -> list[MessageSections]: ...
    def fault(self, kind: FaultKind) -> None: ...
    def heal(self) -> object: ...


class EmbeddedPlace:
    """The real SDK, or our own AMQP, on an embedded namespace."""

    def __init__(self, bench: Bench, kind: type[SdkSide]) -> None:
        self._bench = bench
        bench.create(QUEUE)
        self.side: Any = kind(bench.primary.connection_string, keywords={})
        self.heal = bench.primary.faults.clear

    def stored(self) -> list[MessageSections]:
        return self._bench.stored(QUEUE)

    def fault(self, kind: FaultKind) -> None:
        self._bench.primary.faults.set(kind)


class SimulatedPlace:
    """The stand-in on a simulated namespace, on the clock of the machine for once."""

    def __init__(self) -> None:
        self._weather = Weather((), 0)
        self._namespace = SimulatedNamespace("contoso", SystemClock(), self._weather)
        self._namespace.act(lambda engine, now: create_queue(QUEUE, QueueSettings(), engine, now))
        self.side: Any = SimulatedSide(self._namespace)
        self.heal = self._weather.clear

    def stored(self) -> list[MessageSections]:
        return stored(self._namespace, QUEUE)

    def fault(self, kind: FaultKind) -> None:
        self._weather.add(Fault(kind, "contoso", 0.0, inf))
        if kind == "refuse":
            self._namespace.cut("connections are refused")
        elif kind in ("disabled", "token"):
            self._namespace.detach(None)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("azure")
    logger.disabled, before = True, logger.disabled
    yield
    logger.disabled = before


@pytest.fixture(params=["sdk", "amqp", "simulated"])
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    if request.param == "simulated":
        yield SimulatedPlace()
        return
    with opened() as bench:
        made = EmbeddedPlace(bench, SdkSide if request.param == "sdk" else AmqpSide)
        yield made
        await made.side.close(5.0)


def message(name: str, **given: Any) -> ServiceBusMessage:
    return ServiceBusMessage(f"body of {name}", message_id=name, **given)


def names(place: Place) -> list[str]:
    return [str(one.properties.message_id) for one in place.stored()]


async def failing(work: Any) -> BaseException:
    try:
        async with asyncio.timeout(10.0):
            await work
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what is tested
        return error
    raise AssertionError("it was expected to fail")


async def test_messages_lists_and_batches_arrive_in_order(place: Place) -> None:
    sender = place.side.open_sender(QUEUE)
    await sender.send_messages(message("a", session_id="s", application_properties={"n": 1}))
    await sender.send_messages([message("b"), message("c")])
    batch = await sender.create_message_batch()
    batch.add_message(message("d"))
    await sender.send_messages(batch)
    assert names(place) == ["a", "b", "c", "d"]
    first = place.stored()[0]
    assert first.properties.group_id == "s"
    assert dict(first.application_properties) == {"n": 1}
    assert b"".join(first.data_sections()) == b"body of a"
    await sender.close()


async def test_schedules_have_numbers_and_are_cancelled_by_them(place: Place) -> None:
    sender = place.side.open_sender(QUEUE)
    when = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    numbers = await sender.schedule_messages([message("a"), message("b")], when)
    assert len(numbers) == 2
    await sender.cancel_scheduled_messages(numbers[:1])
    assert names(place) == ["b"]
    await sender.schedule_messages(message("c").raw_amqp_message, when)  # as the spool has them
    due = [one.annotations[words.SCHEDULED_TIME] for one in place.stored()]
    assert due == [int(when.timestamp() * 1000)] * 2
    await sender.close()


# What the client makes of a failure: its kind in the table, and whether the outcome is known.
FAILURES: list[tuple[FaultKind, bool]] = [
    (kind, is_open)
    for kind in ("refuse", "busy", "error", "full", "disabled", "token")
    for is_open in (False, True)
]
EXPECTED: dict[FaultKind, str] = {
    "refuse": "CONNECTION",
    "busy": "THROTTLED",
    "error": "SERVICE",
    "full": "FULL",
    "disabled": "DISABLED",
    "token": "UNAUTHORIZED",
}


@pytest.mark.parametrize(("kind", "is_open"), FAILURES)
async def test_a_fault_is_of_the_same_kind(place: Place, kind: FaultKind, is_open: bool) -> None:
    sender = place.side.open_sender(QUEUE)
    if is_open:
        await sender.send_messages(message("a"))
    place.fault(kind)
    error = await failing(sender.send_messages(message("b")))
    assert classify(describe(error)).name == EXPECTED[kind], repr(error)
    await sender.close()
    place.heal()
    again = place.side.open_sender(QUEUE)
    await again.send_messages(message("c"))
    assert names(place)[-1] == "c"
    await again.close()


async def test_a_missing_entity_is_told(place: Place) -> None:
    sender = place.side.open_sender("nowhere")
    begun = asyncio.get_running_loop().time()
    error = await failing(sender.send_messages(message("a")))
    assert classify(describe(error)).name == "MISSING", repr(error)
    assert describe(error).fate == "unsent"
    if place.side.width == 1:  # the SDK needs a second for it
        assert asyncio.get_running_loop().time() - begun > 0.5
    await sender.close()


async def test_the_limits_are_told_and_kept(place: Place) -> None:
    sender = place.side.open_sender(QUEUE)
    batch = await sender.create_message_batch()
    size = batch.max_size_in_bytes
    while size - batch.size_in_bytes > 20_500:
        batch.add_message(ServiceBusMessage(bytes(20_000)))
    with pytest.raises(MessageSizeExceededError):
        batch.add_message(ServiceBusMessage(bytes(21_000)))
    assert 0 < size - batch.size_in_bytes < 21_000
    error = await failing(sender.send_messages(ServiceBusMessage(bytes(size), message_id="large")))
    assert isinstance(error, MessageSizeExceededError), repr(error)
    assert classify(describe(error)).name == "CALLER"
    await sender.send_messages(message("b"))
    assert names(place) == ["b"]
    await sender.close()


async def test_what_cannot_be_written_is_the_callers(place: Place) -> None:
    sender = place.side.open_sender(QUEUE)
    await sender.send_messages(message("a"))
    error = await failing(sender.send_messages(message("b", application_properties={"n": 2**40})))
    assert (classify(describe(error)).name, describe(error).fate) == ("CALLER", "unsent"), repr(error)
    await sender.send_messages(message("c"))
    assert names(place) == ["a", "c"]
    await sender.close()


async def test_a_closed_sender_sends_nothing(place: Place) -> None:
    sender = place.side.open_sender(QUEUE)
    await sender.send_messages(message("a"))
    await sender.close()
    assert isinstance(await failing(sender.send_messages(message("b"))), ValueError)
    assert names(place) == ["a"]
