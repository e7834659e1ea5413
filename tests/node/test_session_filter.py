"""The id of an accepted session comes back in the form in which it was asked for.

The client of JavaScript reads a bare string only, that of Go a described one only.
"""

import socket
from typing import Any

import pytest

from pairbus.amqp.connection import Connection
from pairbus.amqp.events import LinkAttached, LinkFlowed, Opened, Settled
from pairbus.amqp.message import Properties, encode_data, encode_properties
from pairbus.amqp.performatives import Source, Target
from pairbus.amqp.sasl import SaslClient
from pairbus.amqp.types import Described, Symbol, ULong
from pairbus.broker import Broker, Policy
from pairbus.broker.access.policies import Claim
from pairbus.broker.engine.settings import QueueSettings

FILTER = Symbol("com.microsoft:session-filter")
CODE = ULong(0x0000_0137_0000_000C)
POLICY = Policy("raw", "c2VjcmV0", frozenset({Claim.SEND, Claim.LISTEN}))


def await_event(wire: socket.socket, machine: Connection, kind: type[Any]) -> Any:
    """Write what the machine has to say and read until an event of the kind comes."""
    while True:
        wire.sendall(machine.data_to_send())
        data = wire.recv(65536)
        assert data, "the broker closed the connection"
        for event in machine.receive_data(data, 0.0):
            if isinstance(event, kind):
                return event


def accepted_filter(port: int, asked: object) -> object:
    """Send a message of session s-1, ask for a session, and give the filter that the broker answers with."""
    sasl = SaslClient.plain(POLICY.name, POLICY.key)
    machine = Connection(server=False, container_id="raw", hostname="127.0.0.1", sasl_client=sasl)
    with socket.create_connection(("127.0.0.1", port), timeout=40) as wire:
        machine.start()
        machine.open()
        await_event(wire, machine, Opened)
        session = machine.begin()
        target = Target("orders")
        sender = session.attach(name="in", role_sender=True, source=Source("orders"), target=target)
        await_event(wire, machine, LinkFlowed)
        sender.send(encode_properties(Properties(group_id="s-1")) + encode_data(b"x"), tag=b"1")
        await_event(wire, machine, Settled)
        source = Source("orders", filter={FILTER: asked})
        session.attach(name="out", role_sender=False, source=source, target=target)
        return await_event(wire, machine, LinkAttached).attach.source.filter


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        ("s-1", "s-1"),
        (None, "s-1"),
        (Described(CODE, "s-1"), Described(CODE, "s-1")),
        (Described(CODE, None), Described(CODE, "s-1")),
    ],
    ids=["named", "next", "named and described", "next and described"],
)
def test_form_of_the_session_filter(asked: object, answered: object) -> None:
    with Broker({"contoso": 0}, policies=[POLICY]) as broker:
        broker["contoso"].create_queue("orders", QueueSettings(requires_session=True))
        assert accepted_filter(broker["contoso"].port, asked) == {FILTER: answered}
