"""Who had to wait, since the time for one turn was over, comes before those who had theirs."""

from collections.abc import Iterator

import pytest

from pairbus import words
from pairbus.amqp.events import LinkAttached, LinkFlowed, Settled, TransferReceived
from pairbus.amqp.link import Link
from pairbus.amqp.message import Properties, encode_data, encode_properties
from pairbus.amqp.performatives import Source, Target
from pairbus.amqp.types import Symbol
from pairbus.broker.engine.settings import QueueSettings
from pairbus.broker.links import consumers
from pairbus.broker.links.receiving_endpoint import BATCH_FORMAT

from .bus import Bus
from .raw import RawClient

OTHERS, MANY = 12, 3000


@pytest.fixture
def client(bus_without_client: Bus) -> Iterator[RawClient]:
    namespace = bus_without_client.namespace
    with RawClient.of_owner(namespace) as client:
        yield client


def send(client: RawClient, address: str, count: int, session: str | None) -> None:
    link = client.attach(address, sends=True)
    client.await_event(LinkFlowed)
    message = encode_properties(Properties(group_id=session)) + encode_data(b"x")
    link.send(encode_data(message) * count, tag=b"all", message_format=BATCH_FORMAT)
    client.flush()
    client.await_event(Settled)


def attach(client: RawClient, address: str, session: str | None) -> Link:
    filters = None if session is None else {Symbol(words.SESSION_FILTER): session}
    link = client.machine.begin().attach(
        name=f"{address}-{session}",
        role_sender=False,
        source=Source(address, filter=filters),
        target=Target(address),
    )
    client.flush()
    client.await_event(LinkAttached)
    return link


@pytest.mark.parametrize("kind", ["queues", "sessions"])
def test_a_receiver_that_takes_much_keeps_no_other_waiting(
    bus_without_client: Bus, client: RawClient, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(consumers, "SERVING_SLICE", 0.0)
    names = [f"name-{number}" for number in range(OTHERS + 1)]
    if kind == "queues":
        places: list[tuple[str, str | None]] = [(name, None) for name in names]
    else:
        places = [("sessions", name) for name in names]
    for address in {address for address, _ in places}:
        bus_without_client.namespace.create_queue(address, QueueSettings(requires_session=kind == "sessions"))
    for number, place in enumerate(places):
        send(client, place[0], 1 if number else MANY, place[1])
    links = [attach(client, *place) for place in places]
    for link in links:
        link.flow(2 * MANY)
    client.flush()
    # What a queue gives at once grows to 64 messages; the others have their one before the next of these.
    first = [client.await_event(TransferReceived).link for _ in range(MANY // 2)]
    assert set(first) == set(links)
