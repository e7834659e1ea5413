"""Somebody sets the clock of the machine: durations last as long as they were to, points in time are kept."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.broker import Broker, NamespaceHandle
from pairbus.broker.engine.errors import Refused
from pairbus.broker.engine.queue import MessageQueue
from pairbus.broker.engine.settings import QueueSettings
from pairbus.clock import ManualClock, WatchedClock
from tests.engine.samples import message

HOUR = 3600.0
pytestmark = pytest.mark.usefixtures("noisy")  # the broker tells of each step
STEPS = [-24 * HOUR, -HOUR, -2.0, 2.0, HOUR]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def broker(clock: ManualClock) -> Iterator[Broker]:
    with Broker({"contoso": 0}, clock=clock) as broker:
        yield broker


@pytest.fixture
def contoso(broker: Broker) -> NamespaceHandle:
    return broker["contoso"]


def ask(broker: Broker, act: Any) -> Any:
    """Do something to the engine at the time that the broker sees."""
    return broker.call(lambda: broker._hosts["contoso"].run(act))


def queue_of(space: Any) -> MessageQueue:
    queue = space.get_queue("orders")
    assert isinstance(queue, MessageQueue)
    return queue


def queues_of(broker: Broker) -> list[str]:
    return [queue.path for queue in ask(broker, lambda space, now: space.list_queues())]


def pass_time(broker: Broker, clock: ManualClock, seconds: float) -> None:
    clock.advance(seconds)
    broker.tick()


@pytest.mark.parametrize("step", STEPS)
def test_a_message_lock_lasts_as_long_as_it_was_to(
    broker: Broker, contoso: NamespaceHandle, clock: ManualClock, step: float
) -> None:
    contoso.create_queue("orders", QueueSettings(lock_duration=60.0))
    ask(broker, lambda space, now: space.send("orders", [message()], now))
    (handout,) = ask(broker, lambda space, now: queue_of(space).receive(1, now))
    pass_time(broker, clock, 30.0)
    clock.set_forward(step)
    pass_time(broker, clock, 29.0)
    assert ask(broker, lambda space, now: queue_of(space).receive(1, now)) == []
    pass_time(broker, clock, 1.5)
    (again,) = ask(broker, lambda space, now: queue_of(space).receive(1, now))
    assert again.message.delivery_count == 1
    assert again.locked_until == pytest.approx(clock.now() + 60.0)
    with pytest.raises(Refused):
        ask(broker, lambda space, now: queue_of(space).complete(handout.lock_token, now))
    ask(broker, lambda space, now: queue_of(space).complete(again.lock_token, now))


@pytest.mark.parametrize("step", STEPS)
def test_a_session_lock_too(
    broker: Broker, contoso: NamespaceHandle, clock: ManualClock, step: float
) -> None:
    contoso.create_queue("orders", QueueSettings(lock_duration=60.0, requires_session=True))
    lock = ask(broker, lambda space, now: queue_of(space).accept_session("s", now))
    clock.set_forward(step)
    pass_time(broker, clock, 59.0)
    assert ask(broker, lambda space, now: queue_of(space).session_lock("s")) is lock
    pass_time(broker, clock, 1.5)
    assert ask(broker, lambda space, now: queue_of(space).session_lock("s")) is None


@pytest.mark.parametrize("step", STEPS)
def test_a_lock_in_the_dead_letters_too(
    broker: Broker, contoso: NamespaceHandle, clock: ManualClock, step: float
) -> None:
    contoso.create_queue("orders", QueueSettings(lock_duration=60.0))
    ask(broker, lambda space, now: space.send("orders", [message()], now))
    (first,) = ask(broker, lambda space, now: queue_of(space).receive(1, now))
    ask(broker, lambda space, now: queue_of(space).dead_letter(first.lock_token, now))
    (letter,) = ask(broker, lambda space, now: space.node("orders/$DeadLetterQueue").receive(1, now))
    clock.set_forward(step)
    pass_time(broker, clock, 60.5)
    with pytest.raises(Refused):
        ask(broker, lambda space, now: space.node("orders/$DeadLetterQueue").complete(letter.lock_token, now))


@pytest.mark.parametrize("step", STEPS)
def test_idleness_and_faults_too(
    broker: Broker, contoso: NamespaceHandle, clock: ManualClock, step: float
) -> None:
    contoso.create_queue("orders", QueueSettings(auto_delete_on_idle=300.0))
    contoso.faults.set("refuse", duration=300.0)
    clock.set_forward(step)
    pass_time(broker, clock, 299.0)
    assert queues_of(broker) == ["orders"]
    assert len(contoso.faults.list()) == 1
    pass_time(broker, clock, 2.0)
    assert queues_of(broker) == []
    assert contoso.faults.list() == []


def test_what_outlives_a_restart_goes_by_the_clock(
    broker: Broker, contoso: NamespaceHandle, clock: ManualClock
) -> None:
    contoso.create_queue("orders", QueueSettings())
    noon = clock.now() + HOUR
    ask(broker, lambda space, now: space.schedule("orders", [message(at=noon)], now))
    ask(broker, lambda space, now: space.send("orders", [message(ttl=HOUR)], now))
    clock.set_forward(-HOUR)
    pass_time(broker, clock, HOUR + 1.0)
    counts = ask(broker, lambda space, now: queue_of(space).counts())
    assert (counts.active, counts.scheduled) == (1, 1)
    clock.set_forward(HOUR)
    broker.tick()
    counts = ask(broker, lambda space, now: queue_of(space).counts())
    assert (counts.active, counts.scheduled) == (1, 0), "one has expired, the other's time has come"


@pytest.mark.parametrize("back", [15.0, 0.9], ids=["much", "little"])
def test_an_end_that_came_under_a_lock_comes_again_when_the_clock_was_set_back(
    broker: Broker, contoso: NamespaceHandle, clock: ManualClock, back: float
) -> None:
    """By little: less than what counts as a clock that somebody has set."""
    contoso.create_queue("orders", QueueSettings())
    ask(broker, lambda space, now: space.send("orders", [message(ttl=10.0)], now))
    (held,) = ask(broker, lambda space, now: queue_of(space).receive(1, now))
    pass_time(broker, clock, 10.0 + back / 2)
    clock.set_forward(-back)
    ask(broker, lambda space, now: queue_of(space).release(held.lock_token, now))
    assert ask(broker, lambda space, now: queue_of(space).counts()).active == 1
    pass_time(broker, clock, back)
    assert ask(broker, lambda space, now: queue_of(space).counts()).active == 0


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(0, 1e4)), max_size=20))
def test_what_is_moved_by_the_steps_is_a_time_of_the_monotonic_clock(
    steps: list[tuple[float, float]],
) -> None:
    """Whatever the clock does, a deadline that follows its steps is never off by more than one that is no
    step.
    """
    manual = ManualClock()
    deadline = manual.now()

    def move(seconds: float) -> None:
        nonlocal deadline
        deadline += seconds

    watched = WatchedClock(manual, stepped=move)
    for step, passed in steps:
        manual.set_forward(step)
        manual.advance(passed)
        assert watched.now() == manual.now()
        assert abs((watched.now() - deadline) - manual.monotonic()) <= 1.0 + 1e-3
