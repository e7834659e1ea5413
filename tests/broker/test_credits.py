"""Credits: so many operations a second, and beyond them 50009."""

import time
from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusServerBusyError
from hypothesis import given
from hypothesis import strategies as st

from pairbus.broker import Broker, OperationKind
from pairbus.broker.credits import Credits
from pairbus.clock import ManualClock

RATE = 20


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(float(int(time.time())))


@pytest.fixture
def broker(clock: ManualClock) -> Iterator[Broker]:
    with Broker({"contoso": 0, "contoso-dr": 0}, clock=clock, credits=RATE) as broker:
        yield broker


def send_until_busy(client: ServiceBusClient, path: str, most: int) -> int:
    with client.get_queue_sender(path) as sender:
        for sent in range(most):
            try:
                sender.send_messages(ServiceBusMessage("x"))
            except ServiceBusServerBusyError:
                return sent
    return most


@pytest.mark.usefixtures("noisy")
def test_what_is_beyond_the_credits_is_throttled_until_the_next_second(
    broker: Broker, clock: ManualClock
) -> None:
    contoso = broker["contoso"]
    contoso.create_queue("orders")
    client = ServiceBusClient.from_connection_string(contoso.connection_string, retry_total=0)
    with client, client.get_queue_sender("orders") as sender:
        for _ in range(RATE):
            sender.send_messages(ServiceBusMessage("x"))
        with pytest.raises(ServiceBusServerBusyError, match="50009"):
            sender.send_messages(ServiceBusMessage("x"))
        clock.advance(1.0)
        broker.tick()
        sender.send_messages(ServiceBusMessage("x"))
    assert contoso.message_count("orders") == RATE + 1
    # The other namespace has credits of its own.
    broker["contoso-dr"].create_queue("orders")
    with ServiceBusClient.from_connection_string(broker["contoso-dr"].connection_string) as client:
        client.get_queue_sender("orders").send_messages(ServiceBusMessage("x"))


@pytest.mark.usefixtures("noisy")
def test_each_filter_of_a_topic_costs_a_credit(broker: Broker) -> None:
    contoso = broker["contoso"]
    contoso.create_topic("events")
    for name in ("one", "two", "three"):
        contoso.create_subscription("events", name)
    with ServiceBusClient.from_connection_string(contoso.connection_string, retry_total=0) as client:
        assert send_until_busy(client, "events", RATE) == RATE // 4


def test_without_credits_nothing_is_throttled(clock: ManualClock) -> None:
    with Broker({"contoso": 0}, clock=clock) as broker:
        broker["contoso"].create_queue("orders")
        client = ServiceBusClient.from_connection_string(broker["contoso"].connection_string, retry_total=0)
        with client, client.get_queue_sender("orders") as sender:
            sender.send_messages([ServiceBusMessage("x") for _ in range(1500)])
            sender.send_messages(ServiceBusMessage("x"))
        assert broker["contoso"].message_count("orders") == 1501


KINDS = st.sampled_from(list(OperationKind))


@given(
    steps=st.lists(st.tuples(KINDS, st.floats(0, 0.4), st.integers(0, 3)), max_size=120),
    rate=st.integers(1, 15),
)
def test_no_more_is_spent_than_there_is(steps: list[tuple[OperationKind, float, int]], rate: int) -> None:
    """A client that does what it may: over any whole seconds it spends the credits of these, and of one turn
    more.
    """
    now, throttled_until, spent = 100.0, 0.0, 0
    filters = 0

    def throttle(seconds: float) -> None:
        nonlocal throttled_until
        assert seconds > 0
        throttled_until = now + seconds

    credits = Credits(rate, monotonic=lambda: now, count_filters=lambda path: filters, throttle=throttle)
    weights = {OperationKind.ADMIN: 10}
    free = {"send_refused", "complete", "abandon", "defer", "dead_letter", "release"}
    for kind, pause, filters in steps:
        now += pause
        if now < throttled_until:
            continue
        cost = 0 if kind in free else weights.get(kind, 1) + (filters if kind is OperationKind.SEND else 0)
        credits.spend("events", kind)
        spent += cost
        assert spent <= rate * (int(now) - 100 + 1) + 10, "more than the credits, and one operation beyond"
        if throttled_until > now:
            assert throttled_until == int(throttled_until), "it ends with the beginning of a second"
