"""Faults that come and go with time. The broker's clock stands still until a test turns it."""

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusConnectionError,
    ServiceBusQuotaExceededError,
)

from pairbus.broker import Broker, FaultKind, FaultPlan, NamespaceHandle, QueueSettings
from pairbus.clock import ManualClock
from pairbus.errors import ConfigurationError
from tests.broker.bus import eventually, session_waits

from .links import Client, outcomes_of


def is_refused(namespace: NamespaceHandle) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", namespace.port)) == errno.ECONNREFUSED


def pass_time(broker: Broker, clock: ManualClock, seconds: float) -> None:
    clock.advance(seconds)
    broker.tick()


async def answered_later(send: Callable[[], Awaitable[None]]) -> None:
    """Have other sends answered: the answer to an earlier one, if it was given, has come before theirs."""
    for _ in range(3):
        await send()


def test_a_fault_for_a_time_heals_by_itself(
    broker: Broker, contoso: NamespaceHandle, clock: ManualClock
) -> None:
    contoso.faults.set("refuse", duration=60)
    pass_time(broker, clock, 59.9)
    assert is_refused(contoso)
    assert [fault.kind for fault in contoso.faults.list()] == [FaultKind.REFUSE]
    pass_time(broker, clock, 0.1)
    assert not is_refused(contoso)
    assert contoso.faults.list() == []


def test_a_fault_without_a_time_stays(broker: Broker, contoso: NamespaceHandle, clock: ManualClock) -> None:
    contoso.faults.set("refuse")
    pass_time(broker, clock, 1e6)
    assert is_refused(contoso)


def test_a_flapping_line_is_down_first_and_ends_when_it_is_told(
    broker: Broker, contoso: NamespaceHandle, clock: ManualClock
) -> None:
    contoso.faults.set("flap", down=2, up=3, duration=11)
    seen = []
    for _ in range(14):
        seen.append(is_refused(contoso))
        pass_time(broker, clock, 1)
    cycle = [True, True, False, False, False]
    assert seen == [*cycle, *cycle, True, False, False, False]


def test_clearing_is_at_once_whatever_time_was_left(contoso: NamespaceHandle) -> None:
    contoso.faults.set("refuse", duration=60)
    contoso.faults.set("blackhole", duration=60)
    assert contoso.faults.clear() == 2
    assert not is_refused(contoso)


async def test_an_entity_that_flaps_loses_its_links_again_and_again(
    broker: Broker, contoso: NamespaceHandle, clock: ManualClock, certificate: tuple[Path, Path]
) -> None:
    async with Client(contoso, certificate[0]) as client:
        send, send_elsewhere = client.sender(), client.sender("other")
        assert await outcomes_of(send, send_elsewhere) == [None, None]
        contoso.faults.set("flap", entity="orders", down=5, up=5)
        for _ in range(2):
            assert await outcomes_of(send, send_elsewhere) == [ServiceBusConnectionError, None]
            pass_time(broker, clock, 5)
            assert await outcomes_of(send, send_elsewhere) == [None, None]
            pass_time(broker, clock, 5)


async def test_the_links_of_a_silent_entity_are_freed_when_its_time_is_over(
    broker: Broker, contoso: NamespaceHandle, clock: ManualClock, certificate: tuple[Path, Path]
) -> None:
    async with Client(contoso, certificate[0]) as client:
        send = client.sender()
        assert await outcomes_of(send) == [None]
        contoso.faults.set("silence", entity="orders", duration=60)
        assert await outcomes_of(lambda: send(0.3)) == [OperationTimeoutError]
        pass_time(broker, clock, 60)
        assert await outcomes_of(send) == [ServiceBusConnectionError]
        assert await outcomes_of(send) == [None]
    assert contoso.message_count("orders") == 2


async def test_a_delayed_answer_comes_when_its_time_has_come(
    broker: Broker, contoso: NamespaceHandle, clock: ManualClock, certificate: tuple[Path, Path]
) -> None:
    async with Client(contoso, certificate[0]) as client:
        send, send_elsewhere = client.sender(), client.sender("other")
        await send()
        await send_elsewhere()
        contoso.faults.set("delay", entity="orders")
        sending = asyncio.ensure_future(send())
        await eventually(lambda: contoso.message_count("orders") == 2)
        pass_time(broker, clock, 29.9)
        await answered_later(send_elsewhere)
        assert not sending.done()
        pass_time(broker, clock, 0.1)
        await sending


async def test_scheduling_is_sending(
    broker: Broker, contoso: NamespaceHandle, clock: ManualClock, certificate: tuple[Path, Path]
) -> None:
    """What is scheduled goes by the management node, and meets the same faults."""
    later = datetime.now(UTC) + timedelta(hours=1)
    async with Client(contoso, certificate[0]) as client:
        sender = client.sdk.get_queue_sender("orders")

        async def schedule() -> None:
            await sender.schedule_messages(ServiceBusMessage("later"), later)

        assert await outcomes_of(schedule) == [None]
        contoso.faults.set("full")
        assert await outcomes_of(schedule) == [ServiceBusQuotaExceededError]
        contoso.faults.clear()
        contoso.faults.set("drop", every=1)
        assert await outcomes_of(schedule) == [ServiceBusConnectionError]
        assert contoso.message_count("orders") == 2
        contoso.faults.clear()
        contoso.faults.set("delay", seconds=5)
        scheduling = asyncio.ensure_future(schedule())
        await eventually(lambda: contoso.message_count("orders") == 3)
        assert not scheduling.done()
        pass_time(broker, clock, 5)
        await scheduling


PLAN = """
[[fault]]
at = 10
namespace = "contoso"
kind = "refuse"
for = 5

[[fault]]
at = 20
namespace = "contoso-dr"
kind = "silence"

[[fault]]
at = 30
namespace = "contoso-dr"
kind = "clear"
"""


def test_a_plan_is_carried_out_by_the_clock(clock: ManualClock, certificate: tuple[Path, Path]) -> None:
    ports = {"contoso": 0, "contoso-dr": 0}
    plan = FaultPlan.parse(PLAN)
    with Broker(ports, clock=clock, certificate=certificate, fault_plan=plan) as broker:
        seen = []
        for _ in range(8):
            kinds = [[fault.kind.value for fault in broker[name].faults.list()] for name in ports]
            seen.append((*kinds, is_refused(broker["contoso"])))
            pass_time(broker, clock, 5)
    state = tuple[list[str], list[str], bool]
    nothing: state = ([], [], False)
    refused: state = (["refuse"], [], True)
    silent: state = ([], ["silence"], False)
    assert seen == [nothing, nothing, refused, nothing, silent, silent, nothing, nothing]


def test_a_plan_may_be_a_file(clock: ManualClock, certificate: tuple[Path, Path], tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN, encoding="utf-8")
    with pytest.raises(ConfigurationError, match="contoso-dr"):
        Broker({"contoso": 0}, fault_plan=path)
    ports = {"contoso": 0, "contoso-dr": 0}
    with Broker(ports, clock=clock, certificate=certificate, fault_plan=path) as broker:
        pass_time(broker, clock, 10)
        assert is_refused(broker["contoso"])


def test_the_same_seed_is_the_same_run(clock: ManualClock, certificate: tuple[Path, Path]) -> None:
    text = """
    [[fault]]
    at = [0, 60]
    namespace = "contoso"
    kind = "full"
    for = [1, 60]
    """
    runs = []
    for seed in (1, 1, 2):
        plan = FaultPlan.parse(text, seed=seed)
        with Broker({"contoso": 0}, clock=clock, certificate=certificate, fault_plan=plan) as broker:
            started = clock.now()
            seen = []
            for _ in range(60):
                pass_time(broker, clock, 1)
                seen += [fault.until - started for fault in broker["contoso"].faults.list()]
            runs.append([round(until, 3) for until in seen])
    assert runs[0] == runs[1] != runs[2]
    assert runs[0]


@pytest.mark.parametrize("kind", ["silence", "busy"])
async def test_who_waits_for_a_session_goes_on_waiting(
    kind: str, broker: Broker, contoso: NamespaceHandle, clock: ManualClock, certificate: tuple[Path, Path]
) -> None:
    contoso.create_queue("chats", QueueSettings(requires_session=True))
    soon = datetime.fromtimestamp(clock.now() + 30, UTC)
    async with Client(contoso, certificate[0]) as client:
        message = ServiceBusMessage("1", session_id="s")
        await client.sdk.get_queue_sender("chats").schedule_messages(message, soon)
        receiver = client.sdk.get_queue_receiver(
            "chats", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1000
        )
        accepting = asyncio.ensure_future(receiver.__aenter__())
        send_elsewhere = client.sender("other")
        await send_elsewhere()
        await eventually(lambda: session_waits(broker) == 1)
        contoso.faults.set(kind, entity="chats")
        pass_time(broker, clock, 30)  # the message is there, and its session free
        await answered_later(send_elsewhere)
        assert not accepting.done()
        contoso.faults.clear()
        await accepting
        assert receiver.session.session_id == "s"
        await receiver.close()
