"""Events are enough to build everything again, from the whole log as from a snapshot."""

import contextlib
import copy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.broker.engine.actions import SqlAction
from pairbus.broker.engine.errors import Refused
from pairbus.broker.engine.events import (
    EngineEvent,
    EntityPut,
    EntityRemoved,
    MessageChanged,
    MessageRemoved,
    MessageStored,
    RulePut,
    SequenceAdvanced,
    SessionStateSet,
)
from pairbus.broker.engine.filters import FalseFilter, SqlFilter, TrueFilter
from pairbus.broker.engine.message import MessageState
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.queue import MessageQueue
from pairbus.broker.engine.rules import Rule
from pairbus.broker.engine.settings import EntityStatus, QueueSettings, SubscriptionSettings, TopicSettings
from tests.engine.observing import check_books, observe
from tests.engine.samples import START, bodies, message, namespace, queue
from tests.engine.snapshot import snapshot
from tests.examples import examples


def rebuilt(events: Any, now: float = 0.0) -> Namespace:
    space = namespace()
    space.replay(events, now=now)
    return space


ONCE: dict[str, Any] = {
    "requires_duplicate_detection": True,
    "duplicate_detection_history_time_window": 8.0,
}


class Story:
    """Does to a namespace whatever it is told by small numbers, and refuses nothing."""

    def __init__(self) -> None:
        self.space = namespace()
        self.now = START
        self.log: list[EngineEvent] = []
        self.tokens: list[tuple[MessageQueue, Any]] = []
        self.locks: list[tuple[MessageQueue, Any]] = []
        self.held: list[tuple[str, int]] = []
        space, now = self.space, self.now
        lock: dict[str, Any] = {"lock_duration": 5.0}
        space.create_queue("sink", QueueSettings(**lock), now)
        space.create_queue(
            "plain",
            QueueSettings(max_delivery_count=2, dead_lettering_on_message_expiration=True, **lock),
            now,
        )
        space.create_queue("sessions", QueueSettings(requires_session=True, **lock), now)
        space.create_queue("once", QueueSettings(**ONCE, **lock), now)
        space.create_queue("forward", QueueSettings(forward_to="sink"), now)
        space.create_queue("idle", QueueSettings(auto_delete_on_idle=40.0), now)
        space.create_topic("news", TopicSettings(requires_duplicate_detection=True), now)
        space.create_subscription("news", "all", SubscriptionSettings(requires_session=True, **lock), now)
        rule = Rule("changed", SqlFilter("n > 3"), SqlAction("SET n = 0"))
        space.create_subscription("news", "some", SubscriptionSettings(**lock), now, rule)

    PATHS = ("plain", "sessions", "once", "forward", "news", "idle")
    SOURCES = ("plain", "once", "sink", "news/Subscriptions/some", "plain/$DeadLetterQueue")
    SESSION_SOURCES = ("sessions", "news/Subscriptions/all")

    def step(self, kind: int, a: int, b: int) -> None:
        """One thing happens; what the engine refuses is part of the story."""
        actions = (
            self.send, self.send, self.receive, self.receive, self.settle, self.settle, self.settle,
            self.accept, self.receive_session, self.end_session, self.cancel, self.wait, self.deferred,
            self.administer,
        )  # fmt: skip
        with contextlib.suppress(Refused):
            actions[kind % len(actions)](a, b)
        self.log.extend(self.space.take_events())

    def send(self, a: int, b: int) -> None:
        path = self.PATHS[a % len(self.PATHS)]
        given = message(
            f"{a}-{b}".encode(),
            message_id=f"m{b % 5}",
            session_id=f"s{b % 3}" if path in ("sessions", "news") else None,
            ttl=float(b % 7 + 1) if b % 3 == 0 else None,
            at=self.now + b % 9 if b % 4 == 0 else None,
            properties={"n": b % 8},
        )
        if b % 5 == 4:
            self.held += [(path, number) for number in self.space.schedule(path, [given], self.now)]
        else:
            self.space.send(path, [given], self.now)

    def receive(self, a: int, b: int) -> None:
        source = self.queue(self.SOURCES[a % len(self.SOURCES)])
        for delivery in source.receive(b % 3 + 1, self.now, delete=b % 5 == 0):
            if delivery.lock_token is not None:
                self.tokens.append((source, delivery.lock_token))

    def settle(self, a: int, b: int) -> None:
        if not self.tokens:
            return
        source, token = self.tokens.pop(a % len(self.tokens))
        operation = ("complete", "abandon", "defer", "dead_letter", "release")[b % 5]
        changes = {"properties": {"note": b}} if b % 5 in (1, 2, 3) and b % 2 else {}
        getattr(source, operation)(token, self.now, **changes)

    def accept(self, a: int, b: int) -> None:
        source = self.queue(self.SESSION_SOURCES[a % 2])
        lock = source.accept_session(None if b % 2 else f"s{b % 3}", self.now)
        if lock is not None:
            self.locks.append((source, lock))

    def receive_session(self, a: int, b: int) -> None:
        if self.locks:
            source, lock = self.locks[a % len(self.locks)]
            deliveries = source.receive(b % 3 + 1, self.now, session=lock)
            self.tokens += [(source, each.lock_token) for each in deliveries]
            source.set_session_state(lock.session_id, b"state %d" % b if b % 3 else None, self.now)

    def end_session(self, a: int, b: int) -> None:
        if self.locks:
            source, lock = self.locks.pop(a % len(self.locks))
            source.release_session(lock, self.now)

    def cancel(self, a: int, b: int) -> None:
        if self.held:
            path, number = self.held.pop(a % len(self.held))
            self.space.cancel_scheduled(path, [number], self.now)

    def wait(self, a: int, b: int) -> None:
        self.now += a % 13 / 2
        if b % 4:
            self.space.tick(self.now)

    def deferred(self, a: int, b: int) -> None:
        source = self.queue(self.SOURCES[a % len(self.SOURCES)])
        numbers = [
            each.sequence_number
            for each in source.peek(0, 50, self.now)
            if each.state is MessageState.DEFERRED
        ]
        self.tokens += [
            (source, each.lock_token) for each in source.receive_deferred(numbers[: b % 3], self.now)
        ]

    def administer(self, a: int, b: int) -> None:
        space, now = self.space, self.now
        match b % 8:
            case 0:
                space.delete_queue("once", now)
            case 1:
                space.create_queue("once", QueueSettings(**ONCE), now)
            case 2:
                space.update_queue("plain", replace(self.plain(), max_delivery_count=a % 4 + 1), now)
            case 3:
                status = EntityStatus.RECEIVE_DISABLED if a % 2 else EntityStatus.ACTIVE
                space.update_queue("plain", replace(self.plain(), status=status), now)
            case 4:
                space.create_rule(
                    "news", "some", Rule(f"r{a % 3}", TrueFilter() if a % 2 else FalseFilter()), now
                )
            case 5:
                space.delete_rule("news", "some", f"r{a % 3}", now)
            case 6:
                space.delete_subscription("news", "some", now)
            case _:
                space.create_subscription("news", "some", None, now)

    def plain(self) -> QueueSettings:
        found = self.space.get_queue("plain").settings
        assert isinstance(found, QueueSettings)
        return found

    def queue(self, path: str) -> MessageQueue:
        node = self.space.node(path)
        assert isinstance(node, MessageQueue)
        return node


STEP = st.tuples(st.integers(0, 13), st.integers(0, 30), st.integers(0, 120))
STEPS = st.integers(0, 80).flatmap(lambda length: st.lists(STEP, min_size=length, max_size=length))


@given(STEPS)
@settings(max_examples=examples(150))
def test_whatever_happens_log_and_snapshot_tell_it(steps: list[tuple[int, int, int]]) -> None:
    story = Story()
    story.log.extend(story.space.take_events())
    for step in steps:
        story.step(*step)
    check_books(story.space)
    seen = observe(story.space)
    check_books(rebuilt(snapshot(story.space)))
    for again in (rebuilt(story.log), rebuilt(snapshot(story.space))):
        assert observe(again) == seen
        assert again.take_events() == [], "building from events tells nothing new"
        assert_alive(again, story.now + 100)


def assert_alive(space: Namespace, now: float) -> None:
    """A rebuilt namespace works: what is due happens, and everything that waits can be received."""
    space.tick(now)
    deadline = space.next_deadline()
    assert deadline is None or deadline > now
    for each in space.list_queues():
        if each.settings.status is not EntityStatus.ACTIVE or each.settings.forward_to is not None:
            continue
        expected, found = each._stock.active_count, 0
        if each.sessions is None:
            found = len(each.receive(1000, now))
        else:
            while (lock := each.accept_session(None, now)) is not None:
                found += len(each.receive(1000, now, session=lock))
        assert found == expected


def test_the_events_of_a_life() -> None:
    space, orders = queue()
    space.take_events()
    space.send("orders", [message(), message(at=START + 5)], START)
    kinds = [type(event) for event in space.take_events()]
    assert kinds == [MessageStored, MessageStored, SequenceAdvanced]
    orders.receive(1, START)
    assert space.take_events() == [], "locks are not written"
    space.tick(START + 60)
    events = space.take_events()
    assert [type(event) for event in events] == [
        MessageChanged, MessageRemoved, MessageStored, SequenceAdvanced,
    ]  # fmt: skip
    assert events[0] == MessageChanged(
        "orders", 1, MessageState.ACTIVE, 1, None, orders.peek(1, 1, START)[0].size
    )
    assert events[1] == MessageRemoved("orders", 2)
    assert events[3] == SequenceAdvanced("orders", 3)
    (delivery, _) = orders.receive(2, START + 60)
    assert delivery.lock_token is not None
    orders.dead_letter(delivery.lock_token, START + 60)
    removed, buried = space.take_events()
    assert removed == MessageRemoved("orders", 1)
    assert isinstance(buried, MessageStored)
    assert buried.queue == "orders/$DeadLetterQueue"


def test_the_events_of_entities() -> None:
    space = namespace()
    space.create_topic("news", None, START)
    space.create_subscription("news", "s", None, START)
    space.delete_topic("news", START)
    events = space.take_events()
    assert [type(event) for event in events] == [EntityPut, EntityPut, RulePut, EntityRemoved, EntityRemoved]
    assert events[-2:] == [EntityRemoved("news/Subscriptions/s"), EntityRemoved("news")]


def test_events_may_be_written_twice() -> None:
    story = Story()
    for n in range(200):
        story.step(n, n // 3, n * 7)
    log = [*snapshot(story.space), *snapshot(story.space)]
    assert observe(rebuilt(log)) == observe(story.space)


@pytest.mark.parametrize("session_id", [None, "s"])
def test_a_message_that_was_changed_waits_once(session_id: str | None) -> None:
    space, orders = queue(requires_session=session_id is not None)
    space.send("orders", [message(b"1", session_id=session_id), message(b"2", session_id=session_id)], START)
    lock = None if session_id is None else orders.accept_session(session_id, START)
    for each in orders.receive(2, START, session=lock):
        assert each.lock_token is not None
        orders.abandon(each.lock_token, START)
    again = rebuilt(space.take_events()).get_queue("orders")
    lock = None if session_id is None else again.accept_session(session_id, START)
    assert bodies(again.receive(5, START, session=lock)) == [b"1", b"2"]


def test_locks_are_gone_and_messages_wait_again() -> None:
    space, orders = queue()
    space.send("orders", [message(b"1"), message(b"2")], START)
    first, _ = orders.receive(2, START)
    again = rebuilt(snapshot(space))
    assert again.take_ready() == {again.node("orders")}
    copied = again.get_queue("orders").receive(5, START)
    assert bodies(copied) == [b"1", b"2"]
    assert [each.message.delivery_count for each in copied] == [0, 0]
    assert first.message.lock_token == first.lock_token, "the first namespace is not touched"


def test_numbers_go_on_after_everything_was_received() -> None:
    space, orders = queue()
    space.send("orders", [message(), message()], START)
    orders.receive(2, START, delete=True)
    log = space.take_events()
    for again in (rebuilt(snapshot(space)), rebuilt(log)):
        again.send("orders", [message()], START)
        assert again.get_queue("orders").peek(0, 1, START)[0].sequence_number == 3


def test_deadlines_are_alive_after_recovery() -> None:
    space, _ = queue(dead_lettering_on_message_expiration=True)
    space.send("orders", [message(b"1", ttl=50.0), message(b"2", at=START + 20)], START)
    again = rebuilt(snapshot(space))
    assert again.next_deadline() == START + 20
    again.tick(START + 50)
    assert again.get_queue("orders").counts() == (1, 1, 0, 0, 0, 0)


def test_an_entity_does_not_idle_while_the_broker_is_down() -> None:
    space, _ = queue(auto_delete_on_idle=100.0)
    later = START + 500
    again = rebuilt(snapshot(space), now=later)
    again.tick(later)
    assert [each.path for each in again.list_queues()] == ["orders"]
    again.tick(later + 100)
    assert again.list_queues() == []


def test_session_states_come_back() -> None:
    space, orders = queue(requires_session=True)
    orders.set_session_state("a", b"1", START)
    orders.set_session_state("b", b"2", START)
    orders.set_session_state("b", None, START)
    events = space.take_events()
    assert SessionStateSet("orders", "b", None, START) in events
    again = rebuilt(events).get_queue("orders")
    assert again.list_sessions(updated_after=START - 1) == ["a"]
    assert (again.get_session_state("a"), again.get_session_state("b")) == (b"1", None)


def test_an_event_holds_the_record_and_recovery_copies_it() -> None:
    space, orders = queue()
    space.send("orders", [message(b"1")], START)
    events = copy.copy(space.take_events())
    (delivery,) = orders.receive(1, START)
    assert delivery.lock_token is not None
    orders.defer(delivery.lock_token, START)
    (copied,) = rebuilt(events).get_queue("orders").peek(0, 1, START)
    assert copied is not delivery.message
    assert copied.state is MessageState.DEFERRED, "the newest state, as a store wants it"
