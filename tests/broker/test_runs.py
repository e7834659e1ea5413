"""Messages and completions that come one behind the other are done in runs: with the same outcome for each,
the same queue and the same counts as if each had come alone.
"""

from collections import deque
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pairbus.amqp.events import LinkDetached, LinkFlowed, ProtocolEvent, Settled, TransferReceived
from pairbus.amqp.link import Link
from pairbus.amqp.message import Properties, encode_data, encode_properties
from pairbus.amqp.performatives import ACCEPTED, RELEASED, Accepted, Disposition, Modified, Rejected
from pairbus.amqp.types import Symbol
from pairbus.broker.engine.message import Incoming
from pairbus.broker.engine.queue import MessageQueue
from pairbus.broker.links.endpoint import take_run
from pairbus.broker.links.pace import MOST_BYTES_IN_RUN, MOST_IN_RUN
from pairbus.broker.links.receiving_endpoint import BATCH_FORMAT
from pairbus.words import PING_CONTENT_TYPE

from .bus import Bus
from .raw import RawClient

_BODY = encode_data(b"x" * 300)
# Each kind with its format, and whether its sender wants no answer.
KINDS: dict[str, tuple[bytes, int, bool]] = {
    "plain": (encode_properties(Properties(message_id="1")) + _BODY, 0, False),
    "without an id": (_BODY, 0, False),
    "settled": (encode_properties(Properties(message_id="2")) + _BODY, 0, True),
    "ping": (encode_properties(Properties(content_type=PING_CONTENT_TYPE)) + _BODY, 0, False),
    "batch": (encode_data(_BODY) + encode_data(_BODY), BATCH_FORMAT, False),
    "id too long": (encode_properties(Properties(message_id="3" * 200)) + _BODY, 0, False),
    "no message": (b"\x00\x53\x75\xb0\x00\x00\xff\xff", 0, False),
    "broken properties": (b"\x00\x53\x73\xc0\x02\x01\x99" + _BODY, 0, False),
}
_runs = st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=40)


@pytest.fixture
def bus(bus_without_client: Bus) -> Bus:
    for queue in ("together", "alone"):
        bus_without_client.namespace.create_queue(queue)
    return bus_without_client


@pytest.fixture
def client(bus: Bus) -> Iterator[RawClient]:
    with RawClient.of_owner(bus.namespace) as client:
        yield client


def fates(client: RawClient, ids: list[int]) -> dict[int, str]:
    """What became of deliveries: accepted, or the condition by which they were refused."""
    found: dict[int, str] = {}
    while len(found) < len(ids):
        event = client.await_event(Settled)
        state = event.state
        assert isinstance(state, Accepted | Rejected)
        refusal = state.error.condition if isinstance(state, Rejected) and state.error else ""
        found |= dict.fromkeys(event.delivery_ids, refusal)
    assert sorted(found) == sorted(ids)
    return found


def send_all(client: RawClient, link: Link, kinds: list[str], *, together: bool) -> list[str]:
    """Send messages, and say how each was answered."""
    found: dict[int, str] = {}
    awaited: list[int] = []
    order: list[int] = []
    for kind in kinds:
        payload, form, settled = KINDS[kind]
        delivery_id = link.send(payload, tag=b"tag", settled=settled, message_format=form)
        if not settled:
            awaited.append(delivery_id)
            order.append(delivery_id)
        if not together:
            client.flush()
            found |= fates(client, awaited)
            awaited = []
    client.flush()
    found |= fates(client, awaited)
    return [found[delivery_id] for delivery_id in order]


def contents(bus: Bus, queue: str) -> list[tuple[int, int, bytes]]:
    node = bus.broker._hosts["contoso"].engine.node(queue)
    assert isinstance(node, MessageQueue)
    found = bus.broker.call(lambda: node.peek(0, 1000, bus.clock.now()))
    return [(one.sequence_number, one.size, one.body_bytes) for one in found]


def counts(bus: Bus, queue: str) -> list[tuple[str, int, int, int]]:
    return [
        (str(tally.kind), tally.count, tally.units, tally.bytes)
        for tally in bus.namespace.counters()
        if tally.entity == queue
    ]


def empty(bus: Bus) -> None:
    for queue in ("together", "alone"):
        bus.namespace.delete_queue(queue)
        bus.namespace.create_queue(queue)


@given(kinds=_runs)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_messages_fare_together_as_they_fare_alone(bus: Bus, client: RawClient, kinds: list[str]) -> None:
    empty(bus)
    answers = {}
    for queue in ("together", "alone"):
        link = client.attach(queue, sends=True)
        client.await_event(LinkFlowed)
        answers[queue] = send_all(client, link, kinds, together=queue == "together")
        # What wants no answer has come when something later has been answered.
        client.send(link, KINDS["plain"][0])
        link.detach()
        client.flush()
        client.await_event(LinkDetached)
    assert answers["together"] == answers["alone"]
    assert contents(bus, "together") == contents(bus, "alone")
    assert counts(bus, "together") == counts(bus, "alone")


def test_what_follows_a_refusal_that_ends_the_link_is_not_taken(bus: Bus, client: RawClient) -> None:
    link = client.attach("together", sends=True)
    client.await_event(LinkFlowed)
    plain, bad = KINDS["plain"][0], KINDS["id too long"][0]
    for payload, settled in ((plain, False), (plain, False), (bad, True), (plain, False), (plain, False)):
        link.send(payload, tag=b"tag", settled=settled)
    client.flush()
    accepted = client.await_event(Settled)
    assert len(accepted.delivery_ids) == 2
    assert client.refusal().error is not None
    assert len(contents(bus, "together")) == 2


@pytest.mark.usefixtures("noisy")
def test_what_nobody_foresaw_in_reading_ends_one_connection_and_no_turn(
    bus: Bus, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = client.attach("together", sends=True)
    client.await_event(LinkFlowed)
    parse, seen = Incoming.parse, []

    def fail(payload: bytes) -> Incoming:
        seen.append(payload)
        if len(seen) == 3:
            raise RuntimeError("a bug of ours")
        return parse(payload)

    monkeypatch.setattr(Incoming, "parse", fail)
    with RawClient.of_owner(bus.namespace) as other:
        for _ in range(5):
            link.send(KINDS["plain"][0], tag=b"tag")
        client.flush()
        with pytest.raises((AssertionError, ConnectionError)):
            client.await_event(Settled)
        assert contents(bus, "together") == []
        sender = other.attach("alone", sends=True)
        assert isinstance(other.send(sender, KINDS["plain"][0]).state, Accepted)


@pytest.mark.parametrize("together", [True, False])
def test_completions_are_answered_one_by_one(bus: Bus, client: RawClient, together: bool) -> None:
    """Also between settlements of another kind, and for a lock that is lost."""
    sender = client.attach("together", sends=True)
    for _ in range(12):
        client.send(sender, KINDS["plain"][0])
    receiver = client.attach("together", sends=False)
    receiver.flow(12)
    client.flush()
    ids = [client.await_event(TransferReceived).delivery_id for _ in range(12)]
    node = bus.broker._hosts["contoso"].engine.node("together")
    assert isinstance(node, MessageQueue)
    lost = next(iter(node._locks))
    assert lost.lock_token is not None
    token = lost.lock_token

    def lose() -> None:
        node.complete(token, bus.broker._hosts["contoso"].now())

    bus.broker.call(lose)
    answered: list[int] = []
    refused: list[int] = []
    for number, delivery_id in enumerate(ids):
        receiver.settle(delivery_id, RELEASED if number == 6 else ACCEPTED, settled=False)
        if not together or delivery_id == ids[-1]:
            client.flush()
            while len(answered) < number + 1:
                event = client.await_event(Settled)
                answered += event.delivery_ids
                assert not event.is_range
                if isinstance(event.state, Rejected):
                    refused += event.delivery_ids
    assert answered == ids
    assert refused == ids[:1]
    tallies = {kind: count for kind, count, _, _ in counts(bus, "together")}
    assert (tallies["complete"], tallies["release"], tallies["delivery"]) == (11, 1, 12)
    assert len(contents(bus, "together")) == 1


def test_an_echo_carries_nothing_of_what_it_echoes(bus: Bus, client: RawClient) -> None:
    """That may be more than a frame of the client's holds."""
    client.send(client.attach("alone", sends=True), KINDS["plain"][0])
    delivery = client.receive(client.attach("alone", sends=False))
    outcome = Modified(True, True, {Symbol("note"): "x" * 5000})
    delivery.link.session.send(Disposition(True, delivery.delivery_id, state=outcome))
    client.flush()
    assert client.await_event(Settled).state == Modified(True, True)


@pytest.mark.parametrize(
    ("size", "most"), [(100, MOST_IN_RUN), (20_000, 3), (MOST_BYTES_IN_RUN, 1), (MOST_BYTES_IN_RUN + 1, 1)]
)
def test_a_run_has_no_more_bytes_than_are_read_in_a_moment(client: RawClient, size: int, most: int) -> None:
    link = client.attach("together", sends=True)
    events = [TransferReceived(link, number, b"t", bytes(size), True, 0) for number in range(100)]
    todo = deque[ProtocolEvent](events[1:])
    assert take_run(events[0], todo) == events[:most]
    assert list(todo) == events[most:]
