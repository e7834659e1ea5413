"""Messages that have begun to come, and what nobody reads: over all connections they take no more memory than
they may.
"""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus import conditions
from pairbus.amqp.events import Closed
from pairbus.amqp.frames import encode_frame
from pairbus.amqp.performatives import AmqpError, Attach, Begin, Flow, Source, Target, Transfer
from pairbus.amqp.sasl import SaslClient
from pairbus.broker.links import held_bytes
from pairbus.broker.links.held_bytes import HeldBytes, Unfinished, Unread
from tests.waiting import wait_until

from .bus import Bus
from .keys import key_of
from .raw import RawClient
from .test_pressure import fill, peer_of

pytestmark = pytest.mark.usefixtures("noisy")
MOST = held_bytes.MOST_BYTES


class Line:
    """A connection that holds something."""

    def __init__(self, account: HeldBytes) -> None:
        self._account = account
        self.name = "1"
        self.size = 0
        self.is_over = False

    def hold(self, size: int) -> None:
        self.size = size
        self._account.note(self, size)

    def close(self, error: AmqpError | None) -> None:
        assert error is not None
        assert error.condition == conditions.RESOURCE_LIMIT
        self.reset()

    def reset(self) -> None:
        self.is_over, self.size = True, 0


@given(
    st.sampled_from([Unfinished, Unread]),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, MOST // 2)), max_size=60),
)
def test_the_one_that_holds_the_most_has_to_go(
    kind: Callable[[int], HeldBytes], steps: list[tuple[int, int]]
) -> None:
    account = kind(1)
    lines = [Line(account) for _ in range(10)]
    for number, size in steps:
        line = lines[number]
        if line.is_over:
            continue
        sizes = [each.size for each in lines]
        sizes[number] = size
        gone = [each.is_over for each in lines]
        line.hold(size)
        assert sum(each.size for each in lines) <= MOST
        fallen = [each for each, was in zip(range(10), gone, strict=True) if lines[each].is_over and not was]
        assert bool(fallen) is (sum(sizes) > MOST)
        assert all(sizes[each] == max(sizes) for each in fallen)


def test_three_of_the_largest_always_fit() -> None:
    account = Unfinished(MOST)
    lines = [Line(account) for _ in range(4)]
    for line in lines[:3]:
        line.hold(MOST)
    assert not any(line.is_over for line in lines)
    lines[3].hold(1)
    assert [line.is_over for line in lines].count(True) == 1


# Over sockets


def test_connections_together_may_not_begin_more_than_one_may(bus_without_client: Bus) -> None:
    bus, part = bus_without_client, 50_000
    bus.namespace.create_queue("orders")
    bus.broker._burdens.unfinished._most = 7 * part
    key = SaslClient.plain(*key_of(bus.namespace))
    with (
        RawClient.connected(bus.namespace.port, key) as first,
        RawClient.connected(bus.namespace.port, key) as second,
    ):
        links = {client: client.attach("orders", sends=True) for client in (first, second)}

        def begin(client: RawClient, parts: int) -> None:
            link = links[client]
            transfer = Transfer(link.handle, 0, b"t", 0, more=True)
            client.socket.sendall(encode_frame(link.session.channel, transfer, bytes(part)) * parts)

        begin(first, 4)
        wait_until(lambda: bus.broker._burdens.unfinished._total == 4 * part)
        begin(second, 3)
        wait_until(lambda: bus.broker._burdens.unfinished._total == 7 * part)
        begin(second, 1)
        closed = first.await_event(Closed)
        assert closed.error is not None
        assert closed.error.condition == conditions.RESOURCE_LIMIT
        assert bus.broker._burdens.unfinished._total == 4 * part


def test_who_opens_no_window_makes_nobody_hold_what_it_is_to_get(bus_without_client: Bus) -> None:
    """Each of many sessions may hold a little."""
    bus = bus_without_client
    bus.namespace.create_queue("orders")
    bus.broker._burdens.unread._most = 3_000_000
    with RawClient.of_owner(bus.namespace) as client:
        fill(client, 40, 200_000)
        peer = peer_of(bus)
        asked = b""
        for channel in range(10, 20):
            begin = Begin(next_outgoing_id=0, incoming_window=0, outgoing_window=1)
            attach = Attach(
                str(channel), 0, True, source=Source("orders"), target=Target("x"), initial_delivery_count=0
            )
            flow = Flow(
                next_incoming_id=0,
                incoming_window=0,
                next_outgoing_id=0,
                outgoing_window=1,
                handle=0,
                delivery_count=0,
                link_credit=100,
            )
            asked += b"".join(encode_frame(channel, each) for each in (begin, attach, flow))
        client.socket.sendall(asked)  # in one piece: it is cut off before it could say the last of it
        wait_until(lambda: not bus.broker._hosts["contoso"].peers)
        assert peer.machine.waiting_bytes < 3_000_000 + 2 * 1_048_576
    assert bus.broker._burdens.unread._total == 0
