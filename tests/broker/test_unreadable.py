"""A message whose application properties cannot be read: its sender is told, and nobody else notices."""

import pytest

from pairbus.amqp.message import Properties, encode_data, encode_properties
from pairbus.amqp.performatives import Accepted, Rejected
from pairbus.amqp.sasl import SaslClient
from tests.engine.test_unreadable import UNREADABLE

from .bus import Bus
from .keys import key_of
from .raw import RawClient


def message(name: str, application_properties: bytes = b"") -> bytes:
    properties = encode_properties(Properties(message_id=name))
    return properties + application_properties + encode_data(name.encode())


@pytest.mark.parametrize("entity", ["orders", "news"])
def test_its_sender_is_refused_and_goes_on(bus_without_client: Bus, entity: str) -> None:
    namespace = bus_without_client.namespace
    namespace.create_queue("orders")
    namespace.create_topic("news")
    namespace.create_subscription("news", "all")
    sasl = SaslClient.plain(*key_of(namespace))
    with RawClient.connected(namespace.port, sasl) as client:
        link = client.attach(entity, sends=True)
        outcomes = [client.send(link, message("a")).state]
        outcomes.append(client.send(link, message("b", UNREADABLE)).state)
        outcomes.append(client.send(link, message("c")).state)
    assert [type(outcome) for outcome in outcomes] == [Accepted, Rejected, Accepted]
    assert isinstance(outcomes[1], Rejected)
    assert outcomes[1].error is not None
    assert outcomes[1].error.condition == "amqp:decode-error"
    assert namespace.message_count("orders" if entity == "orders" else "news/Subscriptions/all") == 2
