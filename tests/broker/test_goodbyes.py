"""The end of a connection that the broker closes: the client's close is waited for. And links that ask for
what is not well-formed.
"""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pairbus import conditions, words
from pairbus.amqp.events import Closed, LinkAttached, LinkFlowed, ProtocolEvent, Settled, TransferReceived
from pairbus.amqp.frames import AMQP_HEADER, encode_frame
from pairbus.amqp.message import (
    Properties,
    encode_application_properties,
    encode_data,
    encode_properties,
    encode_value,
)
from pairbus.amqp.performatives import ACCEPTED, Close, Flow, Source, Target
from pairbus.amqp.sasl import SaslClient
from pairbus.amqp.types import Int, Symbol
from pairbus.broker import Broker
from pairbus.broker.engine.settings import QueueSettings
from pairbus.broker.handle import NamespaceHandle
from pairbus.broker.links.pace import MOST_OUTPUT
from tests.store.test_neighbours import SlowStore
from tests.waiting import PATIENCE, wait_until

from .bus import Bus
from .keys import key_of
from .raw import RawClient
from .test_pressure import fill

ERRANT = encode_frame(9, Flow(incoming_window=1, next_outgoing_id=0, outgoing_window=1))
CLOSE_MARK = b"\x00\x53\x18"


def lingering(bus: Bus) -> int:
    peers = bus.broker._hosts["contoso"].peers
    return bus.broker.call(lambda: sum(peer.farewell.has_begun for peer in peers))


def read_close(client: RawClient) -> None:
    received = b""
    while CLOSE_MARK not in received:
        data = client.socket.recv(65536)
        assert data, received
        received += data


@pytest.mark.usefixtures("noisy")
@pytest.mark.parametrize("at_once", [1, 100])
def test_the_clients_close_is_waited_for(
    client: RawClient, bus_without_client: Bus, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr("pairbus.broker.links.machine.CLOSE_WAIT", 3600.0)
    client.socket.sendall(ERRANT)
    read_close(client)
    assert lingering(bus_without_client) == 1
    # What was on its way is passed over.
    data = ERRANT + encode_frame(0, Close())
    for begin in range(0, len(data), at_once):
        client.socket.sendall(data[begin : begin + at_once])
    assert client.socket.recv(100) == b""
    wait_until(lambda: lingering(bus_without_client) == 0)


@pytest.mark.usefixtures("noisy")
def test_it_is_not_waited_for_without_end(client: RawClient) -> None:
    client.socket.sendall(ERRANT)
    read_close(client)
    assert client.socket.recv(100) == b""


def test_a_broker_that_stops_waits_for_nobody(client: RawClient, bus_without_client: Bus) -> None:
    bus_without_client.broker.call(bus_without_client.broker._hosts["contoso"].stop)
    read_close(client)
    assert client.socket.recv(100) == b""


@pytest.mark.parametrize(
    ("fields", "condition"),
    [
        ({"address": "orders", "dynamic_node_properties": {}}, conditions.INVALID_FIELD),
        ({"address": "orders", "dynamic_node_properties": {"text": 1}}, conditions.INVALID_FIELD),
        ({"dynamic": True, "dynamic_node_properties": {"text": 1}}, conditions.INVALID_FIELD),
        ({"dynamic": True, "address": "orders"}, conditions.INVALID_FIELD),
        ({"dynamic": True, "dynamic_node_properties": {Symbol("x"): 1}}, conditions.NOT_IMPLEMENTED),
    ],
)
@pytest.mark.parametrize("sends", [True, False])
def test_dynamic_nodes_are_refused(
    client: RawClient, fields: dict[str, Any], condition: str, sends: bool
) -> None:
    source = Source("orders") if sends else Source(**fields)
    target = Target(**fields) if sends else Target("orders")
    client.machine.begin().attach(name="link", role_sender=sends, source=source, target=target)
    client.flush()
    client.await_event(LinkAttached)
    error = client.refusal().error
    assert error is not None
    assert error.condition == condition


# A client that shuts down the writing side of its socket, and reads on


@pytest.fixture(params=["memory", "file"])
def namespace(
    request: pytest.FixtureRequest, tmp_path: Path, certificate: tuple[Path, Path]
) -> Iterator[NamespaceHandle]:
    data_dir = tmp_path if request.param == "file" else None
    with Broker({"contoso": 0, "other": 0}, data_dir=data_dir, certificate=certificate) as broker:
        broker["contoso"].create_queue("orders")
        yield broker["contoso"]


def read_to_end(client: RawClient) -> list[ProtocolEvent]:
    events: list[ProtocolEvent] = []
    while data := client.socket.recv(65536):
        events += client.machine.receive_data(data, 0.0)
    return events


@pytest.mark.parametrize("count", [1, 2000])
def test_who_says_nothing_more_is_answered(namespace: NamespaceHandle, count: int) -> None:
    with RawClient.of_owner(namespace) as client:
        link = client.attach("orders", sends=True)
        client.await_event(LinkFlowed)
        for _ in range(count):
            link.send(encode_data(b"x"), tag=b"t")
        client.flush()
        client.socket.shutdown(socket.SHUT_WR)
        events = read_to_end(client)
    accepted = [event for event in events if isinstance(event, Settled) and event.state == ACCEPTED]
    assert sum(len(event.delivery_ids) for event in accepted) == count
    assert isinstance(events[-1], Closed)
    assert namespace.message_count("orders") == count


@pytest.mark.parametrize("last", [b"", b"\x00\x00\x01\x00\x02", ERRANT], ids=["nothing", "half", "wrong"])
@pytest.mark.usefixtures("noisy")
def test_who_says_nothing_more_is_let_go(namespace: NamespaceHandle, last: bytes) -> None:
    with RawClient.of_owner(namespace) as client:
        link = client.attach("orders", sends=False)
        link.flow(10)
        client.flush()
        client.socket.sendall(last)
        client.socket.shutdown(socket.SHUT_WR)
        assert isinstance(read_to_end(client)[-1], Closed)


def test_a_stranger_that_says_nothing_more_leaves_at_once(namespace: NamespaceHandle) -> None:
    with socket.create_connection(("127.0.0.1", namespace.port), timeout=PATIENCE) as stranger:
        stranger.sendall(AMQP_HEADER)
        stranger.shutdown(socket.SHUT_WR)
        while stranger.recv(100):
            pass


@pytest.mark.parametrize("last", [b"", encode_frame(0, Close())], ids=["nothing", "goodbye"])
def test_who_says_nothing_more_during_a_commit_is_answered(
    tmp_path: Path, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, last: bytes
) -> None:
    monkeypatch.setattr("pairbus.broker.broker.SqliteStore", SlowStore)
    with ExitStack() as stack:
        broker = stack.enter_context(
            Broker({"contoso": 0, "other": 0}, data_dir=tmp_path, certificate=certificate)
        )
        broker["contoso"].create_queue("orders")
        host = broker._hosts["contoso"]
        client = stack.enter_context(RawClient.of_owner(broker["contoso"]))
        link = client.attach("orders", sends=True)
        client.await_event(LinkFlowed)
        [peer] = host.peers
        store = SlowStore.made["contoso"]
        with store.standing():
            link.send(encode_data(b"x"), tag=b"t")
            client.flush()
            assert store.stands.wait(PATIENCE)
            client.socket.sendall(last)
            client.socket.shutdown(socket.SHUT_WR)
            wait_until(lambda: peer._has_said_all and peer._closing)
        events = read_to_end(client)
    [settled] = [event for event in events if isinstance(event, Settled)]
    assert settled.state == ACCEPTED
    assert isinstance(events[-1], Closed)


def test_who_says_nothing_more_has_the_whole_of_a_long_answer() -> None:
    """It is written in the course of some turns. The end is told between the read and the share."""
    size = 3 * MOST_OUTPUT
    with Broker({"contoso": 0}, tier="premium") as broker:
        namespace = broker["contoso"]
        namespace.create_queue("orders", QueueSettings(max_message_size_in_kilobytes=4096))
        with RawClient.of_owner(namespace) as client:
            fill(client, 1, size)
            answers = client.attach("orders/$management", sends=False, largest=2 * size)
            answers.flow(1)
            requests = client.attach("orders/$management", sends=True)
            peek = encode_properties(Properties(message_id="id")) + encode_application_properties(
                {"operation": words.OPERATION_PREFIX + "peek-message"}
            )
            body = encode_value({"from-sequence-number": 0, "message-count": Int(1)})
            requests.send(peek + body, tag=b"t", settled=True)
            said = client.machine.data_to_send()
            [peer] = broker._hosts["contoso"].peers

            def read() -> None:
                peer.data_received(said)
                peer.eof_received()

            broker.call(read)
            events = read_to_end(client)
    [answer] = [event for event in events if isinstance(event, TransferReceived)]
    assert len(answer.payload) > size
    assert isinstance(events[-1], Closed)


def test_who_says_nothing_more_after_its_name_is_let_go(namespace: NamespaceHandle) -> None:
    """It is trusted, and no frame of AMQP may be said to it yet."""
    client = RawClient(namespace.port, SaslClient.plain(*key_of(namespace)))
    with client.socket:
        received = b""
        while b"\x00S\x44" not in received:  # the outcome of SASL
            data = client.socket.recv(100)
            assert data
            received += data
            client.machine.receive_data(data, 0.0)
            if b"\x00S\x44" not in received:
                client.flush()
        client.socket.shutdown(socket.SHUT_WR)
        while client.socket.recv(100):
            pass
    wait_until(lambda: all(info.closed_at is not None for info in namespace.connections()))
