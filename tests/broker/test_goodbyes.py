"""The end of a connection that the broker closes: the client's close is waited for. And links that ask for
what is not well-formed.
"""

from typing import Any

import pytest

from pairbus import conditions
from pairbus.amqp.events import LinkAttached
from pairbus.amqp.frames import encode_frame
from pairbus.amqp.performatives import Close, Flow, Source, Target
from pairbus.amqp.types import Symbol
from tests.waiting import wait_until

from .bus import Bus
from .raw import RawClient

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
