"""What one client costs the others does not grow with the number of links and waits that there are.

Counted, not timed: the calls of Python functions on the broker's loop.
"""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

from pairbus.amqp.events import LinkAttached
from pairbus.amqp.message import Properties, encode_data, encode_properties
from pairbus.amqp.performatives import Source, Target
from pairbus.amqp.sasl import SaslClient
from pairbus.broker import QueueSettings
from pairbus.broker.engine.message import Incoming
from pairbus.broker.host import NamespaceHost
from pairbus.broker.links.attach import SESSION_FILTER

from .bus import Bus
from .keys import key_of
from .raw import RawClient

FEW, MANY = 5, 100


class Crowd:
    """A namespace at which many wait for sessions, many read one, and one stands by with a link."""

    def __init__(self, bus: Bus, stack: ExitStack, size: int) -> None:
        self.bus = bus
        self.host: NamespaceHost = bus.broker._hosts["contoso"]
        for name in ("crowded", "read"):
            bus.namespace.create_queue(name, QueueSettings(requires_session=True))
        bus.namespace.create_queue("other")
        sasl = SaslClient.plain(*key_of(bus.namespace))
        self.client = stack.enter_context(RawClient.connected(bus.namespace.port, sasl))
        self.bystander = stack.enter_context(RawClient.connected(bus.namespace.port, sasl))
        session = self.client.machine.begin()
        for number in range(size):
            for queue, wanted in (("crowded", None), ("read", f"s{number}")):
                session.attach(
                    name=f"{queue}{number}",
                    role_sender=False,
                    source=Source(queue, filter={SESSION_FILTER: wanted}),
                    target=Target(queue),
                )
        self.client.flush()
        for _ in range(size):
            self.client.await_event(LinkAttached).link.flow(1)
        self.client.attach("other", sends=True)  # is answered after all that was said before
        self.bystander.attach("other", sends=False)

    def calls(self, act: Callable[[], Any]) -> int:
        """How many functions are called on the broker's loop by this and the turn that follows."""

        def count() -> int:
            made = 0

            def note(frame: Any, event: str, argument: Any) -> None:
                nonlocal made
                made += event == "call"

            before = sys.getprofile()
            sys.setprofile(note)
            try:
                act()
                self.host.end_turn()
            finally:
                sys.setprofile(before)
            return made

        return self.bus.broker.call(count)

    def detach_bystander(self) -> None:
        [peer] = [peer for peer in self.host.peers if len(peer.endpoints) == 1]
        for link in list(peer.endpoints):
            peer.forget(link)

    def send(self, queue: str, session_id: str | None = None) -> None:
        payload = encode_properties(Properties(group_id=session_id)) + encode_data(b"x")
        self.host.engine.send(queue, [Incoming.parse(payload)], self.host.now())


OPERATIONS: dict[str, Callable[[Crowd], Any]] = {
    "a link goes": Crowd.detach_bystander,
    "a session's message": lambda crowd: crowd.send("read", "s1"),
    "a message for one who waits": lambda crowd: crowd.send("crowded", "new"),
    "time passes": lambda crowd: crowd.host.engine.tick(crowd.host.now()),
    "a look at a queue": lambda crowd: crowd.bus.namespace.message_count("other"),
}


def test_a_crowd_costs_the_others_nothing(bus_without_client: Bus) -> None:
    counts: dict[int, dict[str, int]] = {}
    for size in (FEW, MANY):
        with ExitStack() as stack:
            crowd = Crowd(bus_without_client, stack, size)
            assert bus_without_client.session_waits() == size
            counts[size] = {name: crowd.calls(partial(act, crowd)) for name, act in OPERATIONS.items()}
            assert bus_without_client.session_waits() == size - 1
        for name in ("crowded", "read", "other"):
            bus_without_client.namespace.delete_queue(name)
    for name, few in counts[FEW].items():
        # A walk calls something for each of them; half of that is room for what else a turn may bring.
        assert counts[MANY][name] <= few + (MANY - FEW) // 2, (name, counts)
