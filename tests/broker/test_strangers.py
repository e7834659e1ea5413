"""Who vanishes, or never spoke AMQP, disturbs nobody else."""

import asyncio
import random
import socket

import pytest
from azure.servicebus import ServiceBusMessage

from pairbus import conditions
from pairbus.amqp.performatives import Source, Target
from pairbus.amqp.sasl import SaslClient
from tests.waiting import PATIENCE

from .bus import Bus, bodies, eventually, receive, receive_nothing
from .keys import key_of
from .raw import RawClient

AMQP = b"AMQP\x00\x01\x00\x00"
SASL = b"AMQP\x03\x01\x00\x00"


def answer_to(port: int, data: bytes) -> bytes:
    """All that the broker says to these bytes, until it closes the connection."""
    said = b""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as line:
        line.sendall(data)
        line.shutdown(socket.SHUT_WR)
        try:
            while more := line.recv(65536):
                said += more
        except ConnectionResetError:
            return said
    return said


@pytest.mark.usefixtures("noisy")
async def test_arbitrary_bytes_end_their_own_connection(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders")
    dice = random.Random(4711)
    empty_frame = b"\x00\x00\x00\x08\x02\x01\x00\x00"
    begun = [b"", AMQP, SASL, SASL + empty_frame, b"\x16\x03\x01", b"GET / HTTP/1.1\r\n"]
    port = aio_bus.namespace.port
    async with aio_bus.queue("orders") as (sender, receiver):
        for number in range(60):
            garbage = begun[number % len(begun)] + dice.randbytes(dice.randrange(1, 400))
            await asyncio.to_thread(answer_to, port, garbage)
        await sender.send_messages(ServiceBusMessage("undisturbed"))
        assert bodies(await receive(receiver)) == ["undisturbed"]


@pytest.mark.usefixtures("noisy")
def test_another_version_is_told_which_one_is_spoken(bus_without_client: Bus) -> None:
    port = bus_without_client.namespace.port
    assert answer_to(port, b"AMQP\x00\x00\x09\x01").startswith(SASL)
    assert answer_to(port, b"AMQP\x03\x02\x00\x00").startswith(SASL)


@pytest.mark.parametrize(
    "head",
    [b"Content-Length: 100000000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n5f5e100\r\n"],
    ids=["announced", "chunked"],
)
def test_a_body_without_end_is_refused_before_it_is_there(bus_without_client: Bus, head: bytes) -> None:
    said = answer_to(
        bus_without_client.namespace.port, b"PUT /q HTTP/1.1\r\nHost: x\r\n" + head + bytes(200_000)
    )
    assert said.startswith(b"HTTP/1.1 413 ")


def test_a_connection_that_says_nothing_is_no_burden(bus_without_client: Bus) -> None:
    port = bus_without_client.namespace.port
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
    bus_without_client.namespace.create_queue("orders")
    with RawClient.connected(port, SaslClient.plain(*key_of(bus_without_client.namespace))):
        for line in silent:
            line.close()


async def test_a_receiver_that_vanishes_keeps_its_locks_for_their_time(aio_bus: Bus) -> None:
    namespace = aio_bus.namespace
    namespace.create_queue("orders")
    await aio_bus.send("orders", "1", "2")

    def take_one_and_vanish() -> None:
        with RawClient.of_owner(namespace) as client:
            client.receive(client.attach("orders", sends=False))
            client.vanish()

    async with aio_bus.queue("orders") as (sender, receiver):
        await asyncio.to_thread(take_one_and_vanish)
        assert bodies(await receive(receiver)) == ["2"]
        await sender.send_messages(ServiceBusMessage("3"))
        assert bodies(await receive(receiver)) == ["3"]
        await receive_nothing(receiver)
        aio_bus.pass_time(61)
        assert "1" in bodies(await receive(receiver, 3))


async def test_credit_of_one_that_vanished_takes_no_message(aio_bus: Bus) -> None:
    namespace = aio_bus.namespace
    namespace.create_queue("orders")

    def ask_and_vanish() -> None:
        with RawClient.of_owner(namespace) as client:
            client.attach("orders", sends=False).flow(100)
            client.flush()
            client.vanish()

    await asyncio.to_thread(ask_and_vanish)
    peers = aio_bus.broker._hosts["contoso"].peers
    await eventually(lambda: not peers)
    async with aio_bus.queue("orders") as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("1"))
        assert bodies(await receive(receiver)) == ["1"]


async def test_fifty_clients_at_once(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders")

    async def send(number: int) -> None:
        client = aio_bus.connect()
        async with client, client.get_queue_sender("orders") as sender:
            await sender.send_messages([ServiceBusMessage(f"{number}-{each}") for each in range(8)])

    async def take() -> list[str]:
        client = aio_bus.connect()
        async with client, client.get_queue_receiver("orders") as receiver:
            received = await receive(receiver, 8, within=30)
            for message in received:
                await receiver.complete_message(message)
            return bodies(received)

    takers = asyncio.gather(*(take() for _ in range(25)))
    await asyncio.gather(*(send(number) for number in range(25)))
    received = sorted(text for share in await takers for text in share)
    assert received == sorted(f"{number}-{each}" for number in range(25) for each in range(8))
    assert aio_bus.namespace.message_count("orders") == 0


def test_addresses_have_an_end(bus_without_client: Bus) -> None:
    """Claims are looked for at each slash of an address: a long one would cost its square."""
    namespace = bus_without_client.namespace
    with RawClient.connected(namespace.port, SaslClient.anonymous()) as client:
        address = "a/" * 520
        client.machine.begin().attach(
            name="long", role_sender=True, source=Source(address), target=Target(address)
        )
        client.flush()
        error = client.refusal().error
        assert error is not None
        assert error.condition == conditions.INVALID_FIELD
