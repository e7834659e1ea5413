"""A receiver that drains is told that there is no more only when it has had all that there is for its credit,
however little of a turn there is for it.
"""

from collections.abc import Iterator

import pytest

from pairbus import words
from pairbus.amqp.events import LinkFlowed, TransferReceived
from pairbus.amqp.link import Link
from pairbus.amqp.message import Properties, encode_data, encode_properties
from pairbus.amqp.performatives import Source, Target
from pairbus.amqp.types import Symbol
from pairbus.broker.engine.settings import QueueSettings
from pairbus.broker.links import consumers, peer

from .bus import Bus, eventually
from .raw import RawClient

QUEUES, MESSAGES = 12, 9


@pytest.fixture
def client(bus_without_client: Bus) -> Iterator[RawClient]:
    namespace = bus_without_client.namespace
    for number in range(QUEUES):
        namespace.create_queue(f"queue-{number}")
    with RawClient.of_owner(namespace) as client:
        yield client


def drain_all(client: RawClient, links: list[Link], credit: int) -> dict[Link, int]:
    """Drain all at once; how many messages each had got when it was told that there is no more."""
    for link in links:
        link.flow(credit, drain=True)
    client.flush()
    found = dict.fromkeys(links, 0)
    told: dict[Link, int] = {}
    while len(told) < len(links):
        event = client.await_event((LinkFlowed, TransferReceived))
        if isinstance(event, TransferReceived):
            found[event.link] += 1
        elif isinstance(event, LinkFlowed) and event.link.credit == 0:
            told.setdefault(event.link, found[event.link])
    return told


@pytest.mark.parametrize("what", ["a turn", "an output", "a window"])
def test_a_drain_ends_when_all_has_come(
    client: RawClient, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    for number in range(QUEUES):
        sender = client.attach(f"queue-{number}", sends=True)
        for _ in range(MESSAGES):
            client.send(sender, encode_data(b"x" * 2000))
    if what == "a turn":
        monkeypatch.setattr(consumers, "SERVING_SLICE", 0.0)
    elif what == "an output":
        monkeypatch.setattr(peer, "MOST_OUTPUT", 3000)
    links = [client.attach(f"queue-{number}", sends=False) for number in range(QUEUES)]
    if what == "a window":
        for link in links:
            link.session.inbox.window = 4
            link.session.inbox._low_water = 2
            link.session.send_flow()
    assert drain_all(client, links, 5 * MESSAGES) == dict.fromkeys(links, MESSAGES)
    assert drain_all(client, links, 5 * MESSAGES) == dict.fromkeys(links, 0)


async def test_a_drain_that_is_asked_for_while_an_attach_waits_for_a_session_is_done(
    client: RawClient, bus_without_client: Bus
) -> None:
    bus = bus_without_client
    bus.namespace.create_queue("sessions", QueueSettings(requires_session=True))
    link = client.machine.begin().attach(
        name="next",
        role_sender=False,
        source=Source("sessions", filter={Symbol(words.SESSION_FILTER): None}),
        target=Target("here"),
    )
    link.session.send_flow(handle=link.handle, link_credit=5, drain=True)
    client.flush()
    await eventually(lambda: bus.session_waits() == 1)
    sender = client.attach("sessions", sends=True)
    client.send(sender, encode_properties(Properties(group_id="one")) + encode_data(b"x"))
    client.await_event(TransferReceived)
    while (told := client.await_event(LinkFlowed)).link is not link:
        pass
    assert told.drain, "that there is no more"
