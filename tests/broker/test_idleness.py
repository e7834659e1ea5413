"""Links and connections that nobody uses, where that has an end."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pairbus import conditions
from pairbus.amqp.events import Closed, LinkDetached
from pairbus.amqp.link import Link
from pairbus.amqp.message import encode_data
from pairbus.amqp.sasl import SaslClient
from pairbus.broker import Broker, IdleTimeouts
from pairbus.clock import ManualClock
from pairbus.errors import ConfigurationError
from tests.waiting import wait_until

from .keys import key_of
from .raw import RawClient


class Bench:
    """A broker whose time a test lets pass, and one client of it."""

    def __init__(self, broker: Broker, clock: ManualClock, client: RawClient) -> None:
        self.broker = broker
        self.client = client
        self._clock = clock

    def pass_minutes(self, minutes: float) -> None:
        for _ in range(round(minutes * 2)):
            self._clock.advance(30)
            self.broker.tick()

    def links(self) -> int:
        (peer,) = self.broker._hosts["contoso"].peers
        return self.broker.call(lambda: len(peer.endpoints))

    def credit_of_receiver(self, link: Link, credit: int) -> None:
        link.flow(credit)
        self.client.flush()
        (peer,) = self.broker._hosts["contoso"].peers
        wait_until(lambda: any(each.link.credit == credit for each in peer.endpoints.values()))


@pytest.fixture
def bench(certificate: tuple[Path, Path]) -> Iterator[Bench]:
    clock = ManualClock(time.time())
    with Broker({"contoso": 0}, clock=clock, certificate=certificate, idle_timeouts=IdleTimeouts()) as broker:
        namespace = broker["contoso"]
        namespace.create_queue("orders")
        sasl = SaslClient.plain(*key_of(namespace))
        with RawClient.connected(namespace.port, sasl) as client:
            yield Bench(broker, clock, client)


def test_a_link_that_is_used_stays(bench: Bench) -> None:
    sender = bench.client.attach("orders", sends=True)
    for _ in range(3):
        bench.pass_minutes(9)
        bench.client.send(sender, encode_data(b"x"))
    assert bench.links() == 1


@pytest.mark.parametrize("sends", [True, False])
def test_a_link_that_is_idle_is_detached_and_then_its_connection_closed(bench: Bench, sends: bool) -> None:
    bench.client.attach("orders", sends=sends)
    bench.pass_minutes(9)
    assert bench.links() == 1
    bench.pass_minutes(3)
    error = bench.client.await_event(LinkDetached).error
    assert error is not None
    assert error.condition == conditions.DETACH_FORCED
    assert "Idle timeout" in error.description
    bench.pass_minutes(6)
    closed = bench.client.await_event(Closed).error
    assert closed is not None
    assert closed.condition == conditions.CONNECTION_FORCED
    assert "did not have any active links in the past 300000 milliseconds" in closed.description


def test_a_receiver_that_waits_stays(bench: Bench) -> None:
    receiver = bench.client.attach("orders", sends=False)
    bench.credit_of_receiver(receiver, 1)
    bench.pass_minutes(30)
    assert bench.links() == 1


def test_links_to_cbs_alone_do_not_keep_a_connection(bench: Bench) -> None:
    bench.client.attach("$cbs", sends=True)
    bench.client.attach("$cbs", sends=False)
    bench.pass_minutes(7)
    assert bench.client.await_event(Closed).error is not None


def test_times_that_cannot_be() -> None:
    with pytest.raises(ConfigurationError, match="more than 0"):
        IdleTimeouts(link=0)
