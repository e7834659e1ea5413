"""Lanes: order, locks and back-off, played through with a model of both sides."""

import random
from dataclasses import dataclass, field
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.pump.destinations import Destinations, PathState
from pairbus.pump.judgement import Judgement, Remedy
from pairbus.pump.lanes import FETCH_MESSAGES, Lanes
from pairbus.pump.rate import Limiter, Room
from pairbus.pump.steps import Bury, Defer, Fetch, HeldMessage, LaneStep, Recheck, Renew, Send
from tests.examples import examples

DOWN = Judgement(Remedy.DOWN, "Unreachable", "down")
BUSY = Judgement(Remedy.BUSY, "Busy", "busy", wait=2.0)
GONE = Judgement(Remedy.GONE, "EntityNotFound", "gone")
POISON = Judgement(Remedy.POISON, "MessageTooLarge", "too large")
LOCK = 30.0


def held(number: int, path: str = "p", session: str | None = "s", *, until: float = 1000.0) -> HeldMessage:
    return HeldMessage(number, path, session, 100, until)


def make(**options: float) -> tuple[Lanes[HeldMessage], Destinations]:
    destinations = Destinations(first=1.0, longest=8.0)
    return Lanes[HeldMessage](destinations, margin=5.0, lock_duration=LOCK), destinations


def arrive(
    lanes: Lanes[HeldMessage], *numbers: int, session: str | None = "s", until: float = 1000.0
) -> None:
    for number in numbers:
        lanes.arrive(held(number, session=session, until=until))


def sends(steps: list[LaneStep[HeldMessage]]) -> list[list[int]]:
    return [[one.number for one in unit] for step in steps if isinstance(step, Send) for unit in step.units]


def only(steps: list[LaneStep[HeldMessage]], kind: type[Any]) -> Any:
    (found,) = (step for step in steps if isinstance(step, kind))
    return found


def test_a_session_has_one_unit_on_the_way_and_a_batch_if_several_wait() -> None:
    lanes, _ = make()
    arrive(lanes, 1)
    first = lanes.plan(0.0)
    assert sends(first) == [[1]]
    arrive(lanes, 2, 3)
    assert lanes.plan(0.0) == []
    send = only(first, Send)
    assert isinstance(send, Send)
    lanes.moved(send.units[0])
    assert sends(lanes.plan(0.0)) == [[2, 3]]


def test_messages_without_a_session_are_pipelined() -> None:
    lanes, _ = make()
    arrive(lanes, 1, 2, session=None)
    assert sends(lanes.plan(0.0)) == [[1], [2]]
    arrive(lanes, 3, session=None)
    assert sends(lanes.plan(0.0)) == [[3]]


def test_a_path_that_is_down_is_tried_with_its_first_message_and_the_rest_follows_in_order() -> None:
    lanes, destinations = make()
    arrive(lanes, 1, 2)
    (send,) = lanes.plan(0.0)
    assert isinstance(send, Send)
    destinations.failed("p", DOWN, 0.0)
    lanes.refused(send.units[0], DOWN)
    (defer,) = lanes.plan(0.0)
    assert isinstance(defer, Defer)
    lanes.put_aside(defer.messages)
    arrive(lanes, 3)
    (later,) = lanes.plan(0.5)
    assert isinstance(later, Defer)
    lanes.put_aside(later.messages)
    assert sum(lanes.deferred_by_path().values()) == 3
    assert lanes.is_settled(0.5)
    assert lanes.wake_at(0.5) == 1.0
    assert lanes.plan(0.9) == []
    (fetch,) = lanes.plan(1.0)
    assert fetch == Fetch([1])
    arrive(lanes, 1)
    tried = lanes.plan(1.0)
    assert sends(tried) == [[1]]
    send = only(tried, Send)
    assert isinstance(send, Send)
    destinations.sent("p", 1.1)
    lanes.moved(send.units[0])
    assert lanes.plan(1.1) == [Fetch([2, 3])]
    arrive(lanes, 4)
    assert lanes.plan(1.1) == []  # waits for those before it
    arrive(lanes, 2, 3)
    assert sends(lanes.plan(1.1)) == [[2, 3, 4]]


def test_back_off_doubles_and_one_queue_alone_tries() -> None:
    lanes, destinations = make()
    other = Lanes[HeldMessage](destinations, lock_duration=LOCK)
    lanes.note_deferred(1, "p", None)
    other.note_deferred(7, "p", None)
    destinations.failed("p", DOWN, 0.0)
    steps = [lanes.plan(1.0), other.plan(1.0)]
    assert steps == [[Fetch([1])], []]
    arrive(lanes, 1, session=None)
    (send,) = lanes.plan(1.0)
    assert isinstance(send, Send)
    destinations.failed("p", DOWN, 1.0)
    lanes.refused(send.units[0], DOWN)
    lanes.plan(1.0)
    assert destinations.look("p", 1.0).due == 3.0
    assert other.plan(2.9) == []
    assert other.plan(3.0) == [Fetch([7])]


def test_a_try_that_cannot_be_made_is_left_to_others() -> None:
    lanes, destinations = make()
    lanes.note_deferred(1, "p", None)
    destinations.failed("p", DOWN, 0.0)
    assert lanes.plan(1.0) == [Fetch([1])]
    lanes.unfetched(1, 1.0, is_missing=True)
    lanes.plan(1.0)
    assert destinations.look("p", 1.0).state is PathState.DOWN


def test_a_paused_path_keeps_its_messages_in_hand_until_a_lock_runs_low() -> None:
    lanes, destinations = make()
    destinations.failed("p", BUSY, 0.0)
    arrive(lanes, 1, 2, session=None, until=LOCK)
    assert lanes.plan(0.0) == []
    assert sends(lanes.plan(2.0)) == [[1]]  # tried with one, gently
    destinations.failed("p", BUSY, 2.0)
    lanes.refused([held(1, session=None, until=LOCK)], BUSY)
    lanes, destinations = make()
    destinations.failed("p", Judgement(Remedy.BUSY, "Busy", "", wait=10.0), 0.0)
    arrive(lanes, 1, session=None, until=12.0)
    assert lanes.plan(0.0) == []
    assert lanes.wake_at(0.0) == 7.0
    (defer,) = lanes.plan(7.5)
    assert isinstance(defer, Defer)


def test_a_path_that_stays_busy_is_treated_as_down() -> None:
    destinations = Destinations()
    for number in range(3):
        destinations.failed("p", BUSY, number * 10.0)
        assert destinations.look("p", number * 10.0).state is PathState.PAUSED
        assert destinations.claim_try("p", number * 10.0 + 2.0)
    destinations.failed("p", BUSY, 30.0)
    assert destinations.look("p", 30.0).state is PathState.DOWN


def test_a_gone_path_buries_what_it_has_and_is_believed_for_a_while_only() -> None:
    lanes, destinations = make()
    lanes.note_deferred(1, "p", "s")
    destinations.failed("p", GONE, 0.0)
    arrive(lanes, 2)
    steps = lanes.plan(0.0)
    assert {type(step) for step in steps} == {Fetch, Bury}
    assert destinations.look("p", 6.0).state is PathState.UP


def test_a_refused_batch_is_sent_one_by_one() -> None:
    lanes, _ = make()
    arrive(lanes, 1, 2, 3)
    (send,) = lanes.plan(0.0)
    assert isinstance(send, Send)
    lanes.refused(send.units[0], POISON)
    assert sends(lanes.plan(0.0)) == [[1]]


def test_a_tired_lock_is_renewed_before_the_message_is_sent() -> None:
    lanes, _ = make()
    arrive(lanes, 1, until=4.0)
    (renew,) = lanes.plan(0.0)
    assert isinstance(renew, Renew)
    lanes.renewed(renew.messages[0], 34.0)
    assert sends(lanes.plan(0.0)) == [[1]]


def test_a_missing_message_holds_up_its_session_until_it_comes_or_is_gone() -> None:
    lanes, _ = make()
    lanes.note_missing(1, "p", "s", until=LOCK)
    arrive(lanes, 2)
    lanes.arrive(held(3, session="t"))
    steps = lanes.plan(0.0)
    assert sends(steps) == [[3]]
    defer = only(steps, Defer)
    assert isinstance(defer, Defer)
    lanes.put_aside(defer.messages)
    assert lanes.plan(1.0) == []
    assert lanes.wake_at(1.0) == LOCK
    assert lanes.plan(LOCK) == [Recheck([1])]
    lanes.rechecked(1, LOCK, is_there=False, is_deferred=False)
    assert lanes.plan(LOCK) == [Fetch([2])]


@pytest.mark.parametrize("session", ["s", None])
def test_what_waits_behind_deferred_messages_does_not_keep_them_from_being_fetched(
    session: str | None,
) -> None:
    """An earlier pump has put some aside; more newer ones than are fetched at a time have come since."""
    lanes, _ = make()
    for number in range(1, 6):
        lanes.note_deferred(number, "p", session)
    arrive(lanes, *range(6, 6 + 2 * FETCH_MESSAGES), session=session)
    (fetch,) = lanes.plan(0.0)
    assert fetch == Fetch([1, 2, 3, 4, 5])


@pytest.mark.parametrize("session", ["s", None])
def test_what_waits_behind_a_fetch_that_is_not_answered_does_not_stay_in_hand(session: str | None) -> None:
    """Its lock ends meanwhile; and a drain that cannot read its queue ends when nothing is in hand."""
    lanes, _ = make()
    lanes.note_deferred(1, "p", session)
    arrive(lanes, 2, 3, session=session, until=20.0)
    assert lanes.plan(0.0) == [Fetch([1])]
    lanes.unfetched(1, 10.0, is_missing=False)
    assert lanes.plan(10.0) == [Fetch([1])]
    lanes.unfetched(1, 16.0, is_missing=False)
    steps = lanes.plan(16.0)
    assert only(steps, Fetch) == Fetch([1])
    renew = only(steps, Renew)
    assert [one.number for one in renew.messages] == [2, 3]
    for one in renew.messages:
        lanes.lost(one, 16.0)
    assert lanes.held == 0


def test_what_comes_while_a_path_is_tried_by_a_fetch_is_put_aside() -> None:
    lanes, destinations = make()
    destinations.failed("p", DOWN, 0.0)
    lanes.note_deferred(1, "p", "s")
    assert lanes.plan(1.0) == [Fetch([1])]
    arrive(lanes, 2)
    assert lanes.plan(1.1) == []
    lanes.unfetched(1, 1.2, is_missing=False)
    steps = lanes.plan(1.2)
    assert only(steps, Fetch) == Fetch([1])
    assert [one.number for one in only(steps, Defer).messages] == [2]


def test_a_message_that_may_have_been_put_aside_is_looked_for() -> None:
    """The answer got lost: without a session, too, nobody else would ever fetch it."""
    lanes, destinations = make()
    destinations.failed("p", DOWN, 0.0)
    arrive(lanes, 1, session=None)
    (defer,) = lanes.plan(0.0)
    assert isinstance(defer, Defer)
    lanes.lost(defer.messages[0], 0.0)
    destinations.sent("p", 0.5)
    assert lanes.plan(0.5) == []
    assert lanes.wake_at(0.5) == LOCK
    assert lanes.plan(LOCK) == [Recheck([1])]
    lanes.rechecked(1, LOCK, is_there=True, is_deferred=True)
    assert lanes.plan(LOCK) == [Fetch([1])]


def test_a_moved_message_that_is_still_put_aside_is_fetched_though_its_path_is_down() -> None:
    lanes, destinations = make()
    lanes.note_deferred(1, "p", "s")
    (fetch,) = lanes.plan(0.0)
    assert fetch == Fetch([1])
    arrive(lanes, 1)
    (send,) = lanes.plan(0.0)
    assert isinstance(send, Send)
    lanes.moved(send.units[0])
    destinations.failed("p", DOWN, 0.0)
    lanes.note_unsettled(1)
    assert lanes.plan(0.0) == [Fetch([1])]
    assert not lanes.is_settled(0.0)
    lanes.dismiss(1)
    assert lanes.is_settled(0.0)


@dataclass
class Model:
    """A backlog queue, its primary, and a shell that does what the lanes say, in any order, with faults."""

    chance: random.Random
    now: float = 0.0
    next_number: int = 1
    ready: list[int] = field(default_factory=list)
    locks: dict[int, float] = field(default_factory=dict)
    deferred: set[int] = field(default_factory=set)
    where: dict[int, tuple[str, str | None]] = field(default_factory=dict)
    arrived: list[int] = field(default_factory=list)
    dead: set[int] = field(default_factory=set)
    down: set[str] = field(default_factory=set)
    calm: bool = False
    max_rate: float | None = None

    def __post_init__(self) -> None:
        self.destinations = Destinations(first=1.0, longest=4.0)
        self.lanes = Lanes[HeldMessage](self.destinations, margin=5.0, lock_duration=LOCK)
        self.limiter = Limiter(max_messages=self.max_rate, adaptive=False)
        self.under_way: list[LaneStep[HeldMessage]] = []
        self.completing: list[HeldMessage] = []
        self.unsettled: set[int] = set()

    # the queue

    def enqueue(self) -> None:
        path = self.chance.choice("ab")
        session = self.chance.choice([None, "x", "y"])
        self.where[self.next_number] = path, session
        self.ready.append(self.next_number)
        self.next_number += 1

    def expire(self) -> None:
        for number in [number for number, until in self.locks.items() if until <= self.now]:
            del self.locks[number]
            if number not in self.deferred:
                self.ready = sorted([*self.ready, number])

    def settle(self, one: HeldMessage) -> bool:
        self.expire()
        return self.locks.pop(one.number, None) is not None

    def receive(self) -> None:
        self.expire()
        for _ in range(self.chance.randrange(1, 5)):
            if self.ready:
                self.deliver(self.ready.pop(0), fetched=False)

    def deliver(self, number: int, *, fetched: bool) -> None:
        self.locks[number] = self.now + LOCK
        if number in self.unsettled:
            self.lanes.dismiss(number)
            del self.locks[number]
            self.deferred.discard(number)
            self.unsettled.discard(number)
            return
        known = self.lanes.in_hand(number)
        if known is not None:
            known.locked_until = self.now + LOCK
            return
        path, session = self.where[number]
        self.lanes.arrive(HeldMessage(number, path, session, 100, self.now + LOCK, was_deferred=fetched))

    # the shell

    def plan(self) -> None:
        room = self.limiter.room(self.now)
        before = None if room is None else room.messages
        steps = self.lanes.plan(self.now, room)
        sent = sum(len(unit) for step in steps if isinstance(step, Send) for unit in step.units)
        if before is not None:
            assert sent <= max(0.0, before) + 2, "a path is tried whatever room there is"
        self.limiter.take(sent, 0)
        self.under_way += steps
        if room is not None and room.is_short:
            return  # the shell plans again when there is room
        if not self.under_way and (self.lanes.held or sum(self.lanes.deferred_by_path().values())):
            assert self.lanes.wake_at(self.now) < inf, "something could move, and no step is due"

    def perform_one(self) -> None:
        if self.completing and self.chance.random() < 0.5:
            one = self.completing.pop(0)
            if self.settle(one):
                self.deferred.discard(one.number)
            else:
                self.unsettled.add(one.number)
        if self.under_way:
            step = self.under_way.pop(self.chance.randrange(len(self.under_way)))
            getattr(self, f"do_{type(step).__name__.lower()}")(step)

    def do_send(self, step: Send[HeldMessage]) -> None:
        for unit in step.units:
            if any(one.locked_until <= self.now for one in unit):
                self.lanes.unsent(unit, self.now)  # as the shell does, which looks at the lock once more
                continue
            fate = "taken" if self.calm else self.chance.choice(["taken"] * 6 + ["lost", "busy", "poison"])
            if step.path in self.down:
                fate = "down"
            if fate in ("taken", "lost"):
                assert all(one.locked_until > self.now for one in unit), "sent after its lock ended"
                self.arrived += [one.number for one in unit]
            if fate == "taken":
                self.destinations.sent(step.path, self.now)
                self.lanes.moved(unit)
                self.completing += unit
            elif fate == "poison":
                self.destinations.sent(step.path, self.now)
                if len(unit) == 1:
                    self.do_bury(Bury(unit, POISON))
                else:
                    self.lanes.refused(unit, POISON)
            else:
                why = BUSY if fate == "busy" else DOWN
                self.destinations.failed(step.path, why, self.now)
                self.lanes.refused(unit, why)

    def do_defer(self, step: Defer[HeldMessage]) -> None:
        for one in step.messages:
            if self.settle(one):
                self.deferred.add(one.number)
                self.lanes.put_aside([one])
            else:
                self.lanes.lost(one, self.now)

    def do_bury(self, step: Bury[HeldMessage]) -> None:
        for one in step.messages:
            if self.settle(one):
                self.deferred.discard(one.number)
                self.dead.add(one.number)
                self.lanes.buried([one])
            else:
                self.lanes.lost(one, self.now)

    def do_renew(self, step: Renew[HeldMessage]) -> None:
        for one in step.messages:
            if self.settle(one):
                self.locks[one.number] = self.now + LOCK
                self.lanes.renewed(one, self.now + LOCK)
            else:
                self.lanes.lost(one, self.now)

    def do_fetch(self, step: Fetch) -> None:
        self.expire()
        for number in step.numbers:
            if number in self.deferred and number not in self.locks:
                self.deliver(number, fetched=True)
            else:
                self.lanes.unfetched(number, self.now, is_missing=True)

    def do_recheck(self, step: Recheck) -> None:
        for number in step.numbers:
            there = number in self.ready or number in self.locks or number in self.deferred
            self.lanes.rechecked(number, self.now, is_there=there, is_deferred=number in self.deferred)

    # the play

    def move(self) -> None:
        act = self.chance.random()
        if act < 0.25:
            self.enqueue()
        elif act < 0.5:
            self.receive()
        elif act < 0.6:
            self.down ^= {self.chance.choice("ab")}
        elif act < 0.7:
            self.now += self.chance.choice([0.1, 1.0, 3.0, 20.0, 40.0])
        else:
            self.perform_one()
        self.plan()

    def calm_down(self) -> None:
        self.calm = True
        self.down = set()
        for _ in range(4000):
            self.receive()
            self.plan()
            self.perform_one()
            if not self.under_way and not self.completing:
                self.now += 1.0
            if not (self.ready or self.locks or self.deferred):
                return


@settings(max_examples=examples(150))
@given(
    st.integers(0, 2**32),
    st.integers(20, 200),
    st.sampled_from([1, 3, FETCH_MESSAGES]),
    st.sampled_from([None, None, 0.3, 5.0]),
)
def test_order_is_kept_and_nothing_is_lost_whatever_fails(
    seed: int, moves: int, fetched: int, max_rate: float | None
) -> None:
    """I2, I5: by any seed; a failing one can be played again. Whenever something can move, a step is due."""
    model = Model(random.Random(seed), max_rate=max_rate)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pairbus.pump.lanes.FETCH_MESSAGES", fetched)
        for _ in range(moves):
            model.move()
        model.calm_down()
    everything = set(model.where)
    assert set(model.arrived) | model.dead == everything
    assert model.lanes.held == 0
    assert sum(model.lanes.deferred_by_path().values()) == 0
    for lane in set(model.where.values()):
        if lane[1] is None:
            continue
        numbers = [number for number in model.arrived if model.where[number] == lane]
        first_seen = list(dict.fromkeys(numbers))
        assert first_seen == sorted(first_seen)


def test_what_waits_for_the_rate_waits_in_its_lane_and_lanes_take_turns() -> None:
    destinations = Destinations()
    lanes = Lanes[HeldMessage](destinations, margin=5.0, lock_duration=LOCK)
    for number in range(1, 10):
        lanes.arrive(HeldMessage(number, "a", f"s{number % 3}", 100, LOCK))
    first = {0: 3, 1: 1, 2: 2}
    sent: list[int] = []
    for _ in range(3):
        room = Room(1.0)
        (step,) = lanes.plan(0.0, room)
        assert isinstance(step, Send)
        assert room.is_short
        ((one,),) = step.units
        sent.append(one.number)
        lanes.moved([one])
    assert sorted(sent) == sorted(first.values()), "each session has had its turn, with its first"
    assert lanes.plan(1.0, Room(0.0)) == []
    assert lanes.wake_at(1.0) <= LOCK - 5.0, "before the locks of those that wait run out"
    (renewal,) = lanes.plan(LOCK - 5.0, Room(0.0))
    assert isinstance(renewal, Renew)
    assert len(renewal.messages) == 6


@pytest.mark.parametrize("state", list(PathState))
def test_every_state_of_a_path_lets_a_lane_end(state: PathState) -> None:
    """However a path is when it recovers, what waits for it gets there."""
    model = Model(random.Random(state.value))
    for _ in range(5):
        model.enqueue()
    judgements = {PathState.DOWN: DOWN, PathState.TRYING: DOWN, PathState.PAUSED: BUSY}
    if state in judgements:
        for path in "ab":
            model.destinations.failed(path, judgements[state], 0.0)
    model.calm_down()
    assert set(model.arrived) | model.dead == set(model.where)
