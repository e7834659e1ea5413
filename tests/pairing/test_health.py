"""The state machine: each row of its table, then the rules of the clock."""

import pytest

from pairbus.options import EntityState, StateChange
from pairbus.pairing.failures import Action, FailureKind, Ruling
from pairbus.pairing.health import (
    TABLE,
    AbandonAttempts,
    Effect,
    EntityHealth,
    HealthStep,
    Input,
    Notify,
    Route,
)

from .health import (
    CALLER,
    COUNT,
    FAILED_OVER,
    FAULTED,
    HEALTHY,
    MISSING,
    REFUSED,
    SPILL,
    SUSPECT,
    UNKNOWN,
    brought_to,
    changes,
    make,
    pings,
    throttled,
)


def give(health: EntityHealth, given: Input) -> tuple[Effect, ...]:
    """Make that input happen, at the time that it takes."""
    status = health.status()
    match given:
        case Input.ATTEMPT_BEGUN:
            return health.begin("a", 300)
        case Input.ATTEMPT_SUCCEEDED:
            health.begin("a", 101)
            return health.succeed("a", 101)
        case Input.ATTEMPT_FAILED:
            health.begin("a", 101)
            return health.record("a", COUNT, now=101, reason="refused")
        case Input.ATTEMPT_REFUSED:
            health.begin("a", 101)
            return health.record("a", REFUSED, now=101, reason="disabled")
        case Input.INTERVAL_ELAPSED:
            health.begin("a", 101)
            return health.tick(health.next_deadline or 1000)
        case Input.PING_DUE:
            return health.tick(status.next_ping_at or 102)
        case Input.PINGS_SUFFICED:
            numbers = pings(health.tick(status.next_ping_at or 102))
            return health.ping_succeeded(numbers[0] if numbers else 1, 1001)
        case Input.PINGS_AGREED:
            effects: tuple[Effect, ...] = ()
            for _ in range(3):
                now = health.status().next_ping_at or 102
                for number in pings(health.tick(now)):
                    effects += health.ping_failed(number, MISSING, now=now, reason="gone")
            return effects
        case Input.WORD_CAME:
            return health.word_came(1000, is_good=True) if health.state is not FAULTED else ()
        case Input.WORD_DOUBTED:
            return health.word_came(1000, is_good=health.state is FAULTED)
        case Input.FAILOVER_FORCED:
            return health.force_over(300, "drill")
        case Input.MARKED_HEALTHY:
            return health.mark_healthy(300)


@pytest.mark.parametrize("state", list(EntityState), ids=lambda state: state.name)
@pytest.mark.parametrize("given", list(Input), ids=lambda given: given.name)
def test_each_row_leads_where_the_table_says(state: EntityState, given: Input) -> None:
    health = brought_to(state)
    effects = give(health, given)
    row = TABLE.get((state, given))
    expected = row.to if row is not None else state
    assert health.state is expected
    assert changes(effects) == ([(state, expected)] if expected is not state else [])


@pytest.mark.parametrize(("state", "given"), list(TABLE), ids=lambda value: value.name)
def test_each_row_takes_its_steps(state: EntityState, given: Input) -> None:
    health = brought_to(state)
    effects = give(health, given)
    steps = TABLE[state, given].steps
    assert bool(pings(effects)) is (HealthStep.PING in steps)
    abandons = [effect for effect in effects if isinstance(effect, AbandonAttempts)]
    # A forced failover of this test meets no attempt, so it has none to give up.
    gives_up = HealthStep.TURN_AWAY in steps or (
        HealthStep.ABANDON in steps and given is Input.INTERVAL_ELAPSED
    )
    assert abandons == ([AbandonAttempts("orders", ("a",))] if gives_up else [])
    if HealthStep.STOP_PINGS in steps:
        assert health.status().next_ping_at is None
    if HealthStep.PING_LATER in steps:
        assert health.status().next_ping_at == 360


def test_every_step_is_used_by_a_row() -> None:
    assert {step for row in TABLE.values() for step in row.steps} == set(HealthStep)


def test_the_clock_runs_from_the_beginning_of_the_attempt_that_fails() -> None:
    health = make(failover_interval=60, send_timeout=10)
    health.begin(1, 100)
    assert health.next_deadline == 160
    effects = health.record(1, UNKNOWN, now=110, reason="timed out")
    assert changes(effects) == [(HEALTHY, SUSPECT)]
    assert health.next_deadline == 160
    assert health.tick(159.9) == ()
    assert changes(health.tick(160)) == [(SUSPECT, FAILED_OVER)]


def test_a_later_beginning_that_fails_first_does_not_hide_an_earlier_one() -> None:
    health = make(failover_interval=60)
    health.begin("early", 100)
    health.begin("late", 105)
    health.record("late", COUNT, now=106, reason="refused")
    assert health.next_deadline == 160
    health.record("early", COUNT, now=110, reason="refused")
    assert health.next_deadline == 160


def test_a_silent_peer_fails_over_without_any_failure() -> None:
    health = make(failover_interval=5)
    health.begin("one", 100)
    health.begin("two", 103)
    effects = health.tick(105)
    assert effects[0] == AbandonAttempts("orders", ("one", "two"))
    assert pings(effects) == [1]
    (notice,) = (effect for effect in effects if isinstance(effect, Notify))
    reason = "no success for 5 s: sends stay unanswered"
    assert notice.change == StateChange("orders", HEALTHY, FAILED_OVER, 105, reason)


def test_what_an_abandoned_attempt_reports_later_is_ignored() -> None:
    health = make(failover_interval=5)
    health.begin("one", 100)
    health.tick(105)
    assert health.succeed("one", 106) == ()
    assert health.record("one", COUNT, now=106, reason="late") == ()
    assert health.state is FAILED_OVER


def test_a_success_stops_the_clock() -> None:
    health = make(failover_interval=60)
    health.begin(1, 100)
    health.record(1, COUNT, now=100, reason="refused")
    health.begin(2, 130)
    effects = health.succeed(2, 131)
    assert changes(effects) == [(SUSPECT, HEALTHY)]
    assert health.next_deadline is None
    assert health.tick(1000) == ()


def test_an_attempt_older_than_a_success_is_taken_to_begin_at_it() -> None:
    health = make(failover_interval=60)
    health.begin("stuck", 100)
    for now in range(110, 400, 10):
        health.begin(now, now)
        assert health.succeed(now, now + 1) == ()
        assert health.next_deadline == now + 1 + 60
    health.record("stuck", UNKNOWN, now=395, reason="timed out")
    assert health.state is SUSPECT
    assert health.next_deadline == 391 + 60


def test_an_interval_of_zero_sends_the_very_message_that_failed_to_the_backlog() -> None:
    health = make(failover_interval=0)
    health.begin("one", 100)
    health.begin("two", 100)
    assert health.next_deadline is None
    assert health.tick(1000) == ()
    effects = health.record("one", COUNT, now=1000, reason="refused")
    assert changes(effects) == [(HEALTHY, FAILED_OVER)]
    assert effects[0] == AbandonAttempts("orders", ("two",))
    assert health.route is Route.BACKLOG
    assert health.status().reason == "refused"


def test_a_failure_after_the_interval_fails_over_at_once() -> None:
    health = make(failover_interval=60)
    health.begin(1, 100)
    effects = health.record(1, UNKNOWN, now=170, reason="timed out")
    assert changes(effects) == [(HEALTHY, FAILED_OVER)]
    assert health.status().reason == "no success for 60 s: timed out"


@pytest.mark.parametrize(
    "verdict", [CALLER, MISSING, SPILL, throttled()], ids=lambda verdict: verdict.action.name
)
@pytest.mark.parametrize("state", [HEALTHY, SUSPECT], ids=lambda state: state.name)
def test_what_does_not_count_changes_no_state_and_does_not_stop_the_clock(
    verdict: Ruling, state: EntityState
) -> None:
    health = brought_to(state)
    before = health.next_deadline
    health.begin("a", 110)
    assert health.record("a", verdict, now=111, reason="no") == ()
    assert health.state is state
    assert health.next_deadline == before


def test_a_refusal_stops_the_clock_that_a_cut_link_has_started() -> None:
    health = make(failover_interval=60)
    health.begin("cut", 100)
    health.begin("stuck", 101)
    health.record("cut", COUNT, now=100, reason="the link was cut")
    health.begin("refused", 110)
    assert changes(health.record("refused", REFUSED, now=111, reason="disabled")) == [(SUSPECT, HEALTHY)]
    status = health.status()
    assert (status.reason, status.last_failure) == ("the primary answers: disabled", "disabled")
    # An attempt without an answer is then taken to begin at the refusal, as with a success.
    assert health.next_deadline == 171
    assert health.tick(170) == ()


@pytest.mark.parametrize("verdict", [COUNT, REFUSED], ids=["link", "answer"])
def test_what_failed_long_ago_is_not_why_sends_stay_unanswered_now(verdict: Ruling) -> None:
    """The dashboard shows the last failure of what is down, since that is the newest cause."""
    health = make(failover_interval=60)
    health.begin("old", 100)
    health.record("old", verdict, now=100, reason="an old one")
    health.begin("good", 101)
    health.succeed("good", 101)
    health.begin("stuck", 1000)
    assert changes(health.tick(1060)) == [(HEALTHY, FAILED_OVER)]
    status = health.status()
    assert status.reason == "no success for 60 s: sends stay unanswered"
    assert status.last_failure == "sends stay unanswered"


def test_a_refusal_changes_nothing_once_the_entity_has_failed_over() -> None:
    health = make(failover_interval=0)
    health.begin("late", 99)
    health.begin("cut", 100)
    health.record("cut", COUNT, now=100, reason="the link was cut")
    assert health.state is FAILED_OVER
    assert health.record("late", REFUSED, now=101, reason="disabled") == ()
    assert health.state is FAILED_OVER


def test_a_question_is_not_a_verdict() -> None:
    health = make()
    health.begin("a", 1)
    with pytest.raises(ValueError, match="ASK_BACKLOG"):
        health.record("a", Ruling(Action.ASK_BACKLOG, FailureKind.CONNECTION), now=2, reason="x")
    assert health.status().attempts == 1


def wait_and_give_up(health: EntityHealth, *spans: tuple[float, float]) -> list[EntityState]:
    """Attempts that are on the wire from when to when, in the order in which they begin: where they lead."""
    told: list[EntityState] = []
    for number, (begin, _) in enumerate(spans):
        health.begin(number, begin)
    for number, (begin, end) in sorted(enumerate(spans), key=lambda one: one[1][1]):
        effects = health.give_up(number, called_at=begin, now=end)
        told += [new for _, new in changes(effects)]
    return told


def test_attempts_that_are_given_up_are_silence_when_they_have_waited_enough_in_all() -> None:
    health = make(failover_interval=10.0)
    assert wait_and_give_up(health, (100.0, 100.4), (101.0, 101.4), (102.0, 102.1)) == []
    assert health.next_deadline is None
    assert wait_and_give_up(health, (105.0, 105.2)) == [EntityState.SUSPECT]
    assert health.status().fails_over_at == 110.0  # an interval after the first of them began


def test_attempts_side_by_side_that_are_given_up_have_waited_once() -> None:
    health = make(failover_interval=10.0)
    assert wait_and_give_up(health, *[(100.0 + number / 100, 100.9) for number in range(50)]) == []
    assert wait_and_give_up(health, (100.5, 101.1)) == [EntityState.SUSPECT]


def test_a_wait_long_ago_or_before_an_answer_is_none() -> None:
    health = make(failover_interval=10.0)
    assert wait_and_give_up(health, (100.0, 100.9)) == []
    assert wait_and_give_up(health, (111.0, 111.9)) == []
    health.begin("answered", 112.0)
    health.succeed("answered", 112.1)
    assert wait_and_give_up(health, (113.0, 113.9)) == []


def test_a_withdrawn_attempt_tells_nothing() -> None:
    health = make()
    health.begin("a", 1)
    health.withdraw("a")
    assert health.next_deadline is None
    assert health.succeed("a", 2) == ()


def test_throttling_holds_the_clock_of_those_that_wait() -> None:
    health = make(failover_interval=5)
    health.begin("head", 100)
    health.begin("behind", 100)
    for now in range(101, 200, 10):
        assert health.record("head", throttled(10), now=now, reason="busy") == ()
        assert health.tick(now + 10) == ()
        health.begin("head", now + 10)
    assert health.state is HEALTHY
    assert health.next_deadline == 201 + 5


@pytest.mark.parametrize("outcome", ["success", "refusal"])
def test_another_answer_does_not_end_the_wait_that_throttling_asked_for(outcome: str) -> None:
    """Nobody sends before that is over, so nothing can be answered."""
    health = make(failover_interval=1)
    health.begin("head", 100)
    health.begin("beside", 100)
    health.record("head", throttled(10), now=100, reason="busy")
    if outcome == "success":
        health.succeed("beside", 101)
    else:
        health.record("beside", REFUSED, now=101, reason="disabled")
    health.begin("behind", 102)
    assert health.tick(104) == ()
    deadline = health.next_deadline
    assert deadline is not None
    assert deadline >= 110 + 1


def test_a_failover_ends_the_wait_that_throttling_asked_for() -> None:
    """With it the links begin anew, and rest no more."""
    health = make(failover_interval=5)
    health.begin("head", 100)
    health.record("head", throttled(60), now=100, reason="busy")
    health.force_over(101, "by hand")
    health.mark_healthy(102)
    health.begin("next", 103)
    assert health.next_deadline == 103 + 5


def test_throttling_counts_after_a_time_if_an_option_says_so() -> None:
    health = make(failover_interval=60, count_throttled_after=30)
    for begun in (100, 110, 120):
        health.begin("a", begun)
        assert health.record("a", throttled(), now=begun + 1, reason="busy") == ()
    health.begin("a", 130)
    assert changes(health.record("a", throttled(), now=131, reason="busy")) == [(HEALTHY, SUSPECT)]
    assert health.next_deadline == 190


def test_a_success_is_a_break_in_the_throttling() -> None:
    health = make(count_throttled_after=30)
    health.begin("a", 100)
    health.record("a", throttled(), now=101, reason="busy")
    health.begin("a", 120)
    health.succeed("a", 121)
    health.begin("a", 140)
    assert health.record("a", throttled(), now=141, reason="busy") == ()
    assert health.state is HEALTHY


@pytest.mark.parametrize(("interval", "timeout", "due"), [(1, 10, 103), (1, 2, 102), (5, 10, 105)])
def test_before_the_first_success_silence_is_given_time_to_become_an_answer(
    interval: float, timeout: float, due: float
) -> None:
    health = make(failover_interval=interval, send_timeout=timeout)
    health.begin("a", 100)
    assert health.next_deadline == due
    assert changes(health.tick(due)) == [(HEALTHY, FAILED_OVER)]


@pytest.mark.parametrize(("interval", "due"), [(0, 103), (1, 103), (5, 105)])
def test_a_caller_with_little_time_does_not_shorten_that(interval: float, due: float) -> None:
    health = make(failover_interval=interval)
    health.begin("a", 100)
    assert changes(health.record("a", UNKNOWN, now=100.5, reason="no answer for 0.5 s")) == [
        (HEALTHY, SUSPECT)
    ]
    assert health.next_deadline == due
    assert changes(health.tick(due)) == [(SUSPECT, FAILED_OVER)]


def test_a_failure_that_counts_keeps_the_interval_also_before_the_first_success() -> None:
    health = make(failover_interval=1)
    health.begin("a", 100)
    health.begin("b", 100)
    health.record("a", COUNT, now=100.2, reason="refused")
    assert health.next_deadline == 101


def test_after_the_first_success_silence_has_the_interval() -> None:
    health = make(failover_interval=1)
    health.begin("a", 100)
    health.succeed("a", 100)
    health.begin("b", 110)
    assert health.next_deadline == 111


def opened_anew(how: str) -> EntityHealth:
    """An entity that has answered before, whose next attempt has to open a link."""
    health = make(failover_interval=1)
    health.begin("first", 50)
    health.succeed("first", 50)
    match how:
        case "refused":
            health.begin("second", 60)
            health.record("second", REFUSED, now=60, reason="disabled")
        case "idle":
            health.reconnect()
        case "told":
            health.force_over(60, "drill")
            health.word_came(200, is_good=True)
        case "marked":
            health.force_over(60, "drill")
            health.mark_healthy(61)
    assert health.state is HEALTHY
    return health


@pytest.mark.parametrize("how", ["refused", "idle", "told", "marked"])
def test_who_has_to_open_a_link_first_is_given_the_time_for_it(how: str) -> None:
    health = opened_anew(how)
    health.begin("a", 300)
    assert health.status().fails_over_at == 303
    health.succeed("a", 302)
    health.begin("b", 400)
    assert health.status().fails_over_at == 401


def test_marking_healthy_what_is_healthy_gives_silence_no_more_time() -> None:
    health = make(failover_interval=1)
    health.begin("first", 50)
    health.succeed("first", 50)
    health.mark_healthy(60)
    health.begin("a", 100)
    assert health.status().fails_over_at == 101


def test_marking_a_suspect_healthy_gives_it_a_fresh_interval() -> None:
    health = brought_to(SUSPECT)
    health.begin("waiting", 120)
    assert changes(health.mark_healthy(150)) == [(SUSPECT, HEALTHY)]
    assert health.next_deadline == 210


def test_a_second_outage_starts_from_nothing() -> None:
    health = brought_to(FAILED_OVER)
    for _ in range(2):
        now = health.next_deadline
        assert now is not None
        (number,) = pings(health.tick(now))
        health.ping_failed(number, MISSING, now=now, reason="gone")
    health.mark_healthy(500)
    health.begin("a", 600)
    assert pings(health.tick(660)) == [3]
    health.ping_failed(3, MISSING, now=661, reason="gone")
    assert health.state is FAILED_OVER


def test_a_status_shows_what_people_ask_for() -> None:
    health = brought_to(SUSPECT)
    health.begin("a", 110)
    status = health.status()
    assert (status.path, status.state, status.since) == ("orders", SUSPECT, 100)
    assert (status.reason, status.last_failure) == ("refused", "refused")
    assert (status.attempts, status.fails_over_at, status.next_ping_at, status.pings) == (1, 160, None, 0)


@pytest.mark.parametrize("state", [HEALTHY, SUSPECT])
def test_who_stood_still_listens_first(state: EntityState) -> None:
    """Nothing was heard because the process was stopped: the answer may have come long ago."""
    health = brought_to(state)
    health.begin("a", 101)
    due = health.next_deadline
    assert due is not None
    assert health.tick(due + 20) == ()
    assert health.status().fails_over_at == due + 23
    health.succeed("a", due + 20.1)
    assert health.state is HEALTHY
    assert health.next_deadline is None


def test_what_failed_while_a_process_stood_still_is_not_an_interval_of_failures() -> None:
    """The peer hung up in the meantime."""
    health = make(failover_interval=5)
    health.begin("a", 100)
    assert health.tick(200) == ()
    health.record("a", COUNT, now=200, reason="lost")
    assert health.state is SUSPECT
    assert health.status().fails_over_at == 203


def test_a_process_that_stands_still_again_and_again_fails_over() -> None:
    health = make(failover_interval=5)
    health.begin("a", 100)
    assert health.tick(200) == ()
    assert changes(health.tick(300)) == [(HEALTHY, FAILED_OVER)]
