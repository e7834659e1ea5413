"""Health and rotation together against models that are too simple to be wrong.

The model of health keeps every beginning since the last success and derives the deadline anew each time; the
model of the rotation is a dictionary of absences.
"""

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pairbus.options import EntityState, SendAvailabilityOptions
from pairbus.pairing.errors import BacklogUnavailableError
from pairbus.pairing.failures import Action, FailureKind, Ruling
from pairbus.pairing.health import AbandonAttempts, Effect, EntityHealth, Notify, Route, StartPing, StopPing
from pairbus.pairing.rotation import Rotation
from tests.examples import examples

QUEUES = ("q0", "q1", "q2")
COOL_DOWN = 20.0
COUNT = Ruling(Action.COUNT, FailureKind.CONNECTION)
CALLER = Ruling(Action.RAISE, FailureKind.CALLER)
MISSING = Ruling(Action.PERMANENT, FailureKind.MISSING)
DENIED = Ruling(Action.PERMANENT, FailureKind.UNAUTHORIZED)
REFUSED = Ruling(Action.PERMANENT, FailureKind.DISABLED, is_answer=True)
SPILLED = Ruling(Action.SPILL, FailureKind.FULL, is_answer=True)


@dataclass
class Model:
    """What must be true, said in the plainest way."""

    interval: float
    good_pings: int
    state: EntityState = EntityState.HEALTHY
    begun: dict[int, float] = field(default_factory=dict)
    failed: list[float] = field(default_factory=list)  # beginnings of failed attempts, since the last success
    success: float = -1.0
    held: float = -1.0  # the end of the last wait that the service asked for
    ping_results: list[str] = field(default_factory=list)  # since the failover
    newest_answer: int = 0
    is_connected: bool = False  # else a link is opened first
    absences: dict[str, float] = field(default_factory=dict)

    def deadline(self) -> float | None:
        if self.state not in (EntityState.HEALTHY, EntityState.SUSPECT):
            return None
        waiting = list(self.begun.values()) if self.interval > 0 else []
        patience = self.interval if self.is_connected else max(self.interval, 3.0)
        ends = [max(begun, self.success) + self.interval for begun in self.failed]
        ends += [max(begun, self.success, self.held) + patience for begun in waiting]
        return min(ends, default=None)

    def recover(self, now: float) -> None:
        self.state, self.success = EntityState.HEALTHY, now
        self.failed, self.ping_results = [], []

    def fail_over(self) -> None:
        self.state = EntityState.FAILED_OVER
        self.held = -1.0
        self.begun, self.failed, self.ping_results = {}, [], []


class PairMachine(RuleBasedStateMachine):
    """One entity of a client, and the rotation that its senders share."""

    @initialize(
        interval=st.sampled_from([0.0, 1.0, 5.0, 30.0]),
        good_pings=st.integers(1, 2),
        seed=st.randoms(use_true_random=False),
    )
    def begin_history(self, interval: float, good_pings: int, seed: object) -> None:
        options = SendAvailabilityOptions(
            failover_interval=interval, ping_primary_interval=10, ping_jitter=0, good_pings=good_pings
        )
        chance = seed.random  # type: ignore[attr-defined]
        self.health = EntityHealth("orders", options, random=chance)
        self.rotation = Rotation(QUEUES, cool_down=COOL_DOWN, random=chance)
        self.model = Model(interval, good_pings)
        self.now = 0.0
        self.next_attempt = 0
        self.ended: set[int] = set()
        self.pings: set[int] = set()
        self.last_ping_at: float | None = None
        self.choices: dict[int, str] = {}

    # ------------------------------------------------------------- carrying effects out

    def carry_out(self, effects: tuple[Effect, ...], *, old: EntityState) -> None:
        """Check what the effects say against the model, which has already moved on."""
        told = [effect.change for effect in effects if isinstance(effect, Notify)]
        if old is self.model.state:
            assert told == []
        else:
            assert [(change.old, change.new, change.at) for change in told] == [
                (old, self.model.state, self.now)
            ]
        for effect in effects:
            if isinstance(effect, AbandonAttempts):
                for attempt in effect.attempts:
                    assert isinstance(attempt, int)
                    self.end(attempt)
            elif isinstance(effect, StartPing):
                self.pings.add(effect.number)
                self.last_ping_at = self.now
            elif isinstance(effect, StopPing):
                self.pings.remove(effect.number)

    def end(self, attempt: int) -> None:
        assert attempt not in self.ended, "an attempt ends once"
        self.ended.add(attempt)

    # ------------------------------------------------------------- attempts

    @rule()
    def begin(self) -> None:
        attempt, self.next_attempt = self.next_attempt, self.next_attempt + 1
        goes_to_primary = self.health.route is Route.PRIMARY
        if goes_to_primary:
            self.model.begun[attempt] = self.now
        effects = self.health.begin(attempt, self.now)
        self.carry_out(effects, old=self.model.state)
        assert (attempt in self.ended) is not goes_to_primary

    @precondition(lambda self: self.model.begun)
    @rule(data=st.data())
    def succeed(self, data: st.DataObject) -> None:
        attempt = data.draw(st.sampled_from(sorted(self.model.begun)))
        old = self.model.state
        del self.model.begun[attempt]
        self.end(attempt)
        self.model.recover(self.now)
        self.model.is_connected = True
        self.carry_out(self.health.succeed(attempt, self.now), old=old)

    @precondition(lambda self: self.model.begun)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        attempt = data.draw(st.sampled_from(sorted(self.model.begun)))
        old = self.model.state
        begun = max(self.model.begun.pop(attempt), self.model.held)
        self.model.failed.append(min(begun, self.now))
        self.end(attempt)
        self.model.state = EntityState.SUSPECT
        deadline = self.model.deadline()
        if deadline is not None and self.now >= deadline:
            self.model.fail_over()
        self.carry_out(self.health.record(attempt, COUNT, now=self.now, reason="refused"), old=old)

    @precondition(lambda self: self.model.begun)
    @rule(data=st.data(), verdict=st.sampled_from([CALLER, MISSING, REFUSED, SPILLED]))
    def refuse(self, data: st.DataObject, verdict: Ruling) -> None:
        """A mistake of the caller's tells nothing of the primary; a refusal shows that it is there."""
        attempt = data.draw(st.sampled_from(sorted(self.model.begun)))
        old = self.model.state
        del self.model.begun[attempt]
        self.end(attempt)
        if verdict.is_answer:
            self.model.recover(self.now)
            self.model.is_connected = False
        self.carry_out(self.health.record(attempt, verdict, now=self.now, reason="no"), old=old)

    @precondition(lambda self: self.model.begun)
    @rule(data=st.data(), wait=st.sampled_from([2.0, 10.0]))
    def throttle(self, data: st.DataObject, wait: float) -> None:
        """Who waits as long as it was told to has not gone without an answer."""
        attempt = data.draw(st.sampled_from(sorted(self.model.begun)))
        del self.model.begun[attempt]
        self.end(attempt)
        self.model.held = max(self.model.held, self.now + wait)
        verdict = Ruling(Action.THROTTLED, FailureKind.THROTTLED, wait)
        effects = self.health.record(attempt, verdict, now=self.now, reason="busy")
        self.carry_out(effects, old=self.model.state)

    @precondition(lambda self: self.ended)
    @rule(data=st.data())
    def report_late(self, data: st.DataObject) -> None:
        attempt = data.draw(st.sampled_from(sorted(self.ended)))
        assert self.health.succeed(attempt, self.now) == ()
        assert self.health.record(attempt, COUNT, now=self.now, reason="late") == ()

    # ------------------------------------------------------------- time

    @rule(seconds=st.sampled_from([0.5, 1.0, 4.0, 7.5]))
    def pass_time(self, seconds: float) -> None:
        """Time never jumps over a deadline: that is what next_deadline is for."""
        goal = self.now + seconds
        while (deadline := self.health.next_deadline) is not None and deadline <= goal:
            self.now = max(self.now, deadline)
            self.tick()
        self.now = goal
        self.tick()

    def tick(self) -> None:
        old, deadline = self.model.state, self.model.deadline()
        if deadline is not None and self.now >= deadline:
            self.model.fail_over()
        self.carry_out(self.health.tick(self.now), old=old)

    # ------------------------------------------------------------- pings

    @precondition(lambda self: self.pings)
    @rule(data=st.data(), result=st.sampled_from(["good", "transient", "missing", "missing", "denied"]))
    def answer_ping(self, data: st.DataObject, result: str) -> None:
        old, model = self.model.state, self.model
        number = data.draw(st.sampled_from(sorted(self.pings)))
        self.pings.remove(number)
        if number > model.newest_answer or result == "good":
            model.ping_results.append(result)
        model.newest_answer = max(model.newest_answer, number)
        if model.ping_results[-model.good_pings :] == ["good"] * model.good_pings:
            model.recover(self.now)
        elif model.ping_results[-3:] in (["missing"] * 3, ["denied"] * 3):
            model.state = EntityState.FAULTED
        if result == "good":
            model.is_connected = True
            effects = self.health.ping_succeeded(number, self.now)
        else:
            verdict = {"transient": COUNT, "missing": MISSING, "denied": DENIED}[result]
            effects = self.health.ping_failed(number, verdict, now=self.now, reason=result)
        self.carry_out(effects, old=old)

    # ------------------------------------------------------------- by hand

    @rule()
    def force_over(self) -> None:
        old = self.model.state
        if old is not EntityState.FAILED_OVER:
            self.model.fail_over()
        self.carry_out(self.health.force_over(self.now, "drill"), old=old)

    @rule()
    def mark_healthy(self) -> None:
        old = self.model.state
        self.model.is_connected &= old in (EntityState.HEALTHY, EntityState.SUSPECT)
        self.model.recover(self.now)
        self.carry_out(self.health.mark_healthy(self.now), old=old)

    # ------------------------------------------------------------- rotation

    def absent(self) -> set[str]:
        return {queue for queue, until in self.model.absences.items() if self.now < until}

    @rule(sender=st.integers(0, 3))
    def choose(self, sender: int) -> None:
        usable = set(QUEUES) - self.absent()
        if not usable:
            with pytest.raises(BacklogUnavailableError) as caught:
                self.rotation.choose(sender, self.now)
            assert caught.value.retry_after == min(self.model.absences.values()) - self.now
            return
        chosen = self.rotation.choose(sender, self.now)
        assert chosen in usable
        before = self.choices.get(sender)
        assert before not in usable or chosen == before, "a usable choice is kept"
        self.choices[sender] = chosen

    @rule(queue=st.sampled_from(QUEUES))
    def fail_queue(self, queue: str) -> None:
        was_in = queue not in self.absent()
        if was_in:
            self.model.absences[queue] = self.now + COOL_DOWN
        assert self.rotation.fail(queue, self.now, reason="refused") is was_in

    @rule(queue=st.sampled_from(QUEUES))
    def succeed_queue(self, queue: str) -> None:
        self.rotation.succeed(queue, self.now)

    # ------------------------------------------------------------- what always holds

    @invariant()
    def the_state_is_the_models(self) -> None:
        assert self.health.state is self.model.state
        assert self.health.status().attempts == len(self.model.begun)

    @invariant()
    def the_deadline_is_the_models(self) -> None:
        if self.health.route is Route.PRIMARY:
            assert self.health.next_deadline == self.model.deadline()
            assert self.pings == set()
        else:
            assert self.health.next_deadline is not None, "a ping is always due while failed over"
            assert self.health.next_deadline <= self.now + 10

    @invariant()
    def the_rotation_is_the_models(self) -> None:
        assert self.rotation.usable(self.now) == [queue for queue in QUEUES if queue not in self.absent()]


TestPair = PairMachine.TestCase
TestPair.settings = settings(max_examples=examples(100), stateful_step_count=40)
