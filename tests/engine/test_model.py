"""A queue against a model that is simple enough to be right: a list, searched from the front."""

import uuid
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pairbus import conditions
from pairbus.broker.engine.errors import Refused
from pairbus.broker.engine.message import MessageState
from pairbus.broker.engine.results import Handout
from pairbus.broker.engine.settings import QueueSettings
from tests.engine.samples import START, body_of, message, namespace
from tests.examples import examples

LOCK, MOST = 5.0, 3


@dataclass
class Modelled:
    """One message of the model."""

    number: int
    body: bytes
    state: str = "active"
    expires: float | None = None
    due: float | None = None
    life: float | None = None
    count: int = 0
    token: uuid.UUID | None = None
    until: float = 0.0

    def is_over(self, now: float) -> bool:
        return self.expires is not None and self.expires <= now


class QueueModel(RuleBasedStateMachine):
    """Does the same to an engine's queue and to the model, and compares."""

    @initialize()
    def begin(self) -> None:
        self.now = START
        self.space = namespace()
        self.queue = self.space.create_queue(
            "orders",
            QueueSettings(
                lock_duration=LOCK, max_delivery_count=MOST, dead_lettering_on_message_expiration=True
            ),
            self.now,
        )
        self.messages: list[Modelled] = []
        self.dead: list[bytes] = []
        self.last = 0
        self.sent = 0
        self.tokens: list[uuid.UUID] = []

    # -- the model

    def settle_time(self) -> None:
        """Let everything end that is over by now, in the order in which the engine does it."""
        for each in sorted(self.messages, key=lambda each: (each.until, each.number)):
            if each.token is not None and each.until <= self.now:
                self.unlock(each, counted=True)
        for each in sorted(self.messages, key=lambda each: (each.expires or 0.0, each.number)):
            if each.state == "active" and each.token is None and each.is_over(self.now):
                self.bury(each)
        for each in sorted(self.messages, key=lambda each: (each.due or 0.0, each.number)):
            if each.state == "scheduled" and each.due is not None and each.due <= self.now:
                self.messages.remove(each)
                self.last += 1
                life = None if each.life is None else self.now + each.life
                self.messages.append(Modelled(self.last, each.body, expires=life))

    def unlock(self, each: Modelled, *, counted: bool) -> None:
        each.token = None
        if counted:
            each.count += 1
            if each.count >= MOST:
                self.bury(each)
                return
        if each.state == "active" and each.is_over(self.now):
            self.bury(each)

    def bury(self, each: Modelled) -> None:
        self.messages.remove(each)
        self.dead.append(each.body)

    def find(self, token: uuid.UUID) -> Modelled | None:
        return next((each for each in self.messages if each.token == token), None)

    def lock(self, each: Modelled, delivery: Handout) -> None:
        assert delivery.message.sequence_number == each.number
        assert body_of(delivery.message) == each.body
        assert delivery.message.delivery_count == each.count
        assert delivery.locked_until == self.now + LOCK
        assert delivery.lock_token is not None
        each.token, each.until = delivery.lock_token, delivery.locked_until
        self.tokens.append(delivery.lock_token)

    # -- what happens

    @rule(seconds=st.sampled_from([0.5, 1.0, 2.5, 5.0, 7.0]), ticked=st.booleans())
    def wait(self, seconds: float, ticked: bool) -> None:
        self.now += seconds
        if ticked:
            self.space.tick(self.now)
            deadline = self.space.next_deadline()
            assert deadline is None or deadline > self.now

    @rule(life=st.sampled_from([None, None, 1.0, 6.0, 12.0]), delay=st.sampled_from([None, None, 2.0, 8.0]))
    def send(self, life: float | None, delay: float | None) -> None:
        self.settle_time()
        self.sent += 1
        body = str(self.sent).encode()
        at = None if delay is None else self.now + delay
        self.space.send("orders", [message(body, ttl=life, at=at)], self.now)
        self.last += 1
        if at is None:
            expires = None if life is None else self.now + life
            self.messages.append(Modelled(self.last, body, expires=expires))
        else:
            self.messages.append(Modelled(self.last, body, state="scheduled", due=at, life=life))

    @rule(limit=st.integers(1, 4), delete=st.booleans())
    def receive(self, limit: int, delete: bool) -> None:
        self.settle_time()
        waiting = [each for each in self.messages if each.state == "active" and each.token is None]
        expected = sorted(waiting, key=lambda each: each.number)[:limit]
        deliveries = self.queue.receive(limit, self.now, delete=delete)
        assert [body_of(each.message) for each in deliveries] == [each.body for each in expected]
        for each, delivery in zip(expected, deliveries, strict=True):
            if delete:
                assert delivery.lock_token is None
                self.messages.remove(each)
            else:
                self.lock(each, delivery)

    @precondition(lambda self: self.tokens)
    @rule(
        operation=st.sampled_from(["complete", "abandon", "defer", "dead_letter", "release", "renew"]),
        data=st.data(),
    )
    def settle(self, operation: str, data: st.DataObject) -> None:
        self.settle_time()
        token = data.draw(st.sampled_from(self.tokens))
        each = self.find(token)
        if each is None:
            with pytest.raises(Refused) as caught:
                getattr(self.queue, operation)(token, self.now)
            assert caught.value.condition == conditions.MESSAGE_LOCK_LOST
            self.tokens.remove(token)
            return
        result = getattr(self.queue, operation)(token, self.now)
        if operation == "renew":
            assert result == self.now + LOCK
            each.until = result
        elif operation == "complete":
            self.messages.remove(each)
        elif operation == "dead_letter":
            self.bury(each)
        else:
            if operation == "defer":
                each.state = "deferred"
            self.unlock(each, counted=operation != "release")

    @rule(data=st.data())
    def receive_deferred(self, data: st.DataObject) -> None:
        self.settle_time()
        number, times = data.draw(st.integers(1, self.last + 1)), data.draw(st.integers(1, 2))
        each = next((each for each in self.messages if each.number == number), None)
        if each is None or each.state != "deferred" or each.token is not None or each.is_over(self.now):
            with pytest.raises(Refused) as caught:
                self.queue.receive_deferred([number], self.now)
            assert caught.value.condition == conditions.MESSAGE_NOT_FOUND
            if each is not None and each.state == "deferred" and each.token is None:
                self.bury(each)
        else:
            (delivery,) = self.queue.receive_deferred([number] * times, self.now)
            self.lock(each, delivery)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.settle_time()
        number = data.draw(st.integers(1, self.last + 1))
        each = next((each for each in self.messages if each.number == number), None)
        if each is None or each.state != "scheduled":
            with pytest.raises(Refused) as caught:
                self.space.cancel_scheduled("orders", [number], self.now)
            assert caught.value.condition == conditions.MESSAGE_NOT_FOUND
        else:
            self.space.cancel_scheduled("orders", [number], self.now)
            self.messages.remove(each)

    # -- what must hold

    @invariant()
    def the_same_is_there(self) -> None:
        self.settle_time()
        start = max(1, self.last // 2)
        for first in (0, start):
            seen = self.queue.peek(first, 10_000, self.now)
            expected = sorted(
                (each for each in self.messages if each.number >= first), key=lambda each: each.number
            )
            assert [(each.sequence_number, body_of(each), each.delivery_count) for each in seen] == [
                (each.number, each.body, each.count) for each in expected
            ]
            states = {"active": MessageState.ACTIVE, "deferred": MessageState.DEFERRED}
            assert [each.state for each in seen] == [
                states.get(each.state, MessageState.SCHEDULED) for each in expected
            ]
        assert self.queue.dead_letters is not None
        dead = self.queue.dead_letters.peek(0, 10_000, self.now)
        assert sorted(body_of(each) for each in dead) == sorted(self.dead)
        assert self.queue.size_bytes == sum(
            each.size for each in [*self.queue.peek(0, 10_000, self.now), *dead]
        )

        self.check_counts()

    def check_counts(self) -> None:
        counts = self.queue.counts()
        states = [each.state for each in self.messages]
        assert counts.active == states.count("active") + states.count("deferred")
        assert counts.deferred == states.count("deferred")
        assert counts.scheduled == states.count("scheduled")
        assert counts.dead_letter == len(self.dead)
        assert len(self.queue._locks) == sum(1 for each in self.messages if each.token is not None)


QueueModel.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=35)
TestQueueModel = QueueModel.TestCase
