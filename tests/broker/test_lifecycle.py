"""A broker's life: how it starts, that it starts once, how it ends."""

import asyncio
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusConnectionError, ServiceBusError

from pairbus import conditions
from pairbus.amqp.events import Closed
from pairbus.amqp.sasl import SaslClient
from pairbus.broker import Broker
from pairbus.broker.errors import BrokerError
from pairbus.errors import ConfigurationError
from tests.waiting import PATIENCE

from .bus import Bus, eventually, receive
from .raw import RawClient

SUITE = """
def test_two_namespaces(pairbus_broker):
    assert sorted(pairbus_broker) == ["contoso", "contoso-dr"]
    pairbus_broker["contoso"].create_queue("orders")
    assert "Endpoint=sb://127.0.0.1:" in pairbus_broker["contoso"].connection_string

def test_a_fresh_broker_each_time(pairbus_broker, manual_clock):
    pairbus_broker["contoso"].create_queue("orders")
    before = manual_clock.now()
    manual_clock.advance(5)
    assert manual_clock.now() == before + 5
"""


def accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=40).close()
    except ConnectionRefusedError:
        return False
    return True


def threads() -> set[threading.Thread]:
    """All threads but those of the test bench."""
    return {thread for thread in threading.enumerate() if not thread.name.startswith("sdk")}


async def test_on_a_thread_of_its_own() -> None:
    before = threads()
    with Broker({"contoso": 0}) as broker:
        [its_own] = threads() - before
        namespace = broker["contoso"]
        namespace.create_queue("orders")
        client = ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0)
        async with client, client.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("hello"))
        assert accepts(namespace.port)
    assert not accepts(namespace.port)
    assert not its_own.is_alive()


async def test_on_the_running_event_loop() -> None:
    tasks = asyncio.all_tasks()
    async with Broker({"contoso": 0}) as broker:
        namespace = broker["contoso"]
        namespace.create_queue("orders")
        client = ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0)
        async with client, client.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("hello"))
            async with client.get_queue_receiver("orders") as receiver:
                assert len(await receive(receiver)) == 1
        assert namespace.message_count("orders") == 1
    assert not accepts(namespace.port)
    assert asyncio.all_tasks() == tasks


async def test_from_start_to_the_first_accepted_message_in_a_moment() -> None:
    """Without the SDK's naps, and in time that was worked: the machine may be busy with something else."""

    async def start() -> float:
        started = time.process_time()
        async with Broker({"contoso": 0}) as broker:
            broker["contoso"].create_queue("orders")
            client = ServiceBusClient.from_connection_string(broker["contoso"].connection_string)
            async with client, client.get_queue_sender("orders") as sender:
                await sender.send_messages(ServiceBusMessage("hello"))
                return time.process_time() - started

    assert min([await start() for _ in range(5)]) < 0.3


def test_the_fixture_as_its_documentation_tells(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["pairbus.testing.fixtures"]\n')
    (tmp_path / "test_mine.py").write_text(SUITE)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, timeout=50)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_a_broker_starts_once() -> None:
    broker = Broker({"contoso": 0})
    with broker:
        with pytest.raises(BrokerError, match="started once"), broker:
            raise AssertionError("it started twice")
        broker["contoso"].create_queue("orders")
    with pytest.raises(BrokerError, match="started once"), broker:
        raise AssertionError("it started again")


def test_a_port_that_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        before = threads()
        with (
            pytest.raises(BrokerError, match=rf"127\.0\.0\.1:{port}.*another port"),
            Broker({"contoso": 0, "contoso-dr": port}),
        ):
            raise AssertionError("it started")
        assert threads() <= before


def test_a_port_of_ones_choice(hold_port: Callable[[], int]) -> None:
    port = hold_port()
    for _ in range(2):  # and again at once, though old connections linger
        with Broker({"contoso": port}) as broker:
            assert broker["contoso"].port == port
            assert f"127.0.0.1:{port};" in broker["contoso"].connection_string
            socket.create_connection(("127.0.0.1", port)).close()


@pytest.mark.parametrize("namespaces", [{}, {"no spaces": 0}, {"-dash": 0}, {"x" * 51: 0}])
def test_names_that_are_none(namespaces: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError):
        Broker(namespaces)


async def test_an_end_is_told_to_whoever_is_connected(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders")
    async with aio_bus.queue("orders") as (sender, receiver):
        waiting = asyncio.create_task(receiver.receive_messages(max_wait_time=30))
        await eventually(aio_bus.is_awaited)
        aio_bus.broker.__exit__(None, None, None)
        with pytest.raises(ServiceBusError):
            await waiting
        with pytest.raises(ServiceBusConnectionError):
            await sender.send_messages(ServiceBusMessage("too late"))
    with pytest.raises(BrokerError, match="not running"):
        aio_bus.namespace.create_queue("another")


def test_the_goodbye_of_a_broker(bus_without_client: Bus) -> None:
    bus = bus_without_client
    with RawClient.connected(bus.namespace.port, SaslClient.anonymous()) as client:
        bus.broker.__exit__(None, None, None)
        goodbye = client.await_event(Closed)
        assert goodbye.error is not None
        assert goodbye.error.condition == conditions.CONNECTION_FORCED


async def test_a_killed_broker_says_nothing(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders")
    async with aio_bus.client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("accepted"))
        aio_bus.broker.kill()
        assert not accepts(aio_bus.namespace.port)
        with pytest.raises(ServiceBusConnectionError):
            await sender.send_messages(ServiceBusMessage("lost"))


def test_a_call_from_another_thread_is_told_of_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    broker, begun, told = Broker({"contoso": 0}), threading.Event(), list[BaseException]()

    async def perform(act: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    def call() -> None:
        try:
            broker["contoso"].create_queue("orders")
        except BaseException as error:  # noqa: BLE001 - it is looked at below
            told.append(error)

    with broker:
        monkeypatch.setattr(broker._hosts["contoso"], "perform", perform)
        caller = threading.Thread(target=call)
        caller.start()
        assert begun.wait(PATIENCE)
        broker.kill()
        caller.join(PATIENCE)
    assert [type(error) for error in told] == [BrokerError]
    assert "ended while this was under way" in str(told[0])


async def test_a_kill_on_the_running_event_loop() -> None:
    async with Broker({"contoso": 0}) as broker:
        broker["contoso"].create_queue("orders")
        client = ServiceBusClient.from_connection_string(broker["contoso"].connection_string, retry_total=0)
        async with client, client.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("accepted"))
            broker.kill()
            with pytest.raises(ServiceBusConnectionError):
                await sender.send_messages(ServiceBusMessage("lost"))
