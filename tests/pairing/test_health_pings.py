"""The state machine: when pings go out, and what their answers lead to."""

import pytest

from pairbus.options import EntityState
from pairbus.pairing.failures import Ruling
from pairbus.pairing.health import AbandonAttempts, Route, StopPing

from .health import (
    CALLER,
    COUNT,
    FAILED_OVER,
    FAULTED,
    HEALTHY,
    MISSING,
    UNAUTHORIZED,
    UNKNOWN,
    brought_to,
    changes,
    make,
    pings,
    throttled,
)


def test_the_first_ping_goes_out_with_the_failover_and_then_one_an_interval() -> None:
    health = make(failover_interval=5, ping_primary_interval=60)
    health.begin("a", 100)
    assert pings(health.tick(105)) == [1]
    assert health.next_deadline == 165
    health.ping_failed(1, COUNT, now=107, reason="refused")
    assert health.next_deadline == 165
    assert pings(health.tick(165)) == [2]


def test_a_ping_that_hangs_delays_neither_the_next_nor_the_failback() -> None:
    health = make(failover_interval=0, ping_primary_interval=1)
    health.begin("a", 100)
    assert pings(health.record("a", COUNT, now=100, reason="refused")) == [1]
    assert pings(health.tick(101)) == [2]
    assert pings(health.tick(102)) == [3]
    effects = health.ping_succeeded(2, 102.5)
    assert changes(effects) == [(FAILED_OVER, HEALTHY)]
    assert [effect.number for effect in effects if isinstance(effect, StopPing)] == [1, 3]


def test_a_late_failure_of_a_ping_undoes_no_later_answer() -> None:
    health = make(failover_interval=0, ping_primary_interval=1, good_pings=2)
    health.begin("a", 100)
    health.record("a", COUNT, now=100, reason="refused")
    health.tick(101)
    health.tick(102)
    assert health.ping_succeeded(2, 102.2) == ()
    assert health.ping_failed(1, UNKNOWN, now=110, reason="timed out") == ()
    assert changes(health.ping_succeeded(3, 110.1)) == [(FAILED_OVER, HEALTHY)]


def test_a_late_answer_of_a_ping_is_an_answer() -> None:
    health = make(failover_interval=0, ping_primary_interval=1)
    health.begin("a", 100)
    health.record("a", COUNT, now=100, reason="refused")
    health.tick(101)
    assert health.ping_failed(2, COUNT, now=101, reason="refused") == ()
    assert changes(health.ping_succeeded(1, 105)) == [(FAILED_OVER, HEALTHY)]


def test_what_abandoned_attempts_meet_counts_as_a_ping_would_once_an_interval() -> None:
    health = make(failover_interval=1, ping_primary_interval=60)
    health.begin("a", 100)
    health.tick(103)
    health.ping_failed(1, MISSING, now=104, reason="gone")
    assert health.answered_late(MISSING, now=105, reason="gone") == ()
    for now in (106, 120, 164):
        assert health.answered_late(MISSING, now=now, reason="gone") == ()
    assert changes(health.answered_late(MISSING, now=165, reason="gone")) == [(FAILED_OVER, FAULTED)]


def test_an_outage_that_abandoned_attempts_meet_late_tells_nothing() -> None:
    health = make(failover_interval=1, ping_primary_interval=60)
    health.begin("a", 100)
    health.tick(103)
    health.ping_failed(1, MISSING, now=104, reason="gone")
    health.ping_failed(health.status().pings, MISSING, now=104, reason="gone")
    assert health.answered_late(COUNT, now=105, reason="refused") == ()
    assert health.state is FAILED_OVER


@pytest.mark.parametrize(("chance", "due"), [(0.0, 160.0), (0.5, 157.0), (0.999999, 154.000006)])
def test_jitter_makes_a_ping_early_and_never_late(chance: float, due: float) -> None:
    health = make(random=lambda: chance, ping_primary_interval=60, ping_jitter=0.1)
    health.force_over(100, "drill")
    assert health.next_deadline == pytest.approx(due)


def test_one_good_ping_brings_every_send_back() -> None:
    health = brought_to(FAILED_OVER)
    (number,) = pings(health.tick(160))
    effects = health.ping_succeeded(number, 161)
    assert changes(effects) == [(FAILED_OVER, HEALTHY)]
    assert health.route is Route.PRIMARY
    assert health.next_deadline is None
    assert health.status().reason == "a ping succeeded"


def test_a_threshold_wants_good_pings_in_a_row() -> None:
    health = brought_to(FAILED_OVER, good_pings=2)
    outcomes = [True, False, True, True]
    states = []
    for good in outcomes:
        now = health.next_deadline
        assert now is not None
        (number,) = pings(health.tick(now))
        if good:
            health.ping_succeeded(number, now)
        else:
            health.ping_failed(number, COUNT, now=now, reason="refused")
        states.append(health.state)
    assert states == [FAILED_OVER, FAILED_OVER, FAILED_OVER, HEALTHY]


@pytest.mark.parametrize(
    ("verdicts", "state"),
    [
        ([MISSING, MISSING], FAILED_OVER),
        ([MISSING, MISSING, MISSING], FAULTED),
        ([MISSING, MISSING, UNAUTHORIZED, MISSING, MISSING], FAILED_OVER),
        ([MISSING, MISSING, COUNT, MISSING, MISSING], FAILED_OVER),
        ([COUNT] * 10, FAILED_OVER),
        ([CALLER] * 10, FAILED_OVER),
        ([throttled()] * 10, FAILED_OVER),
        ([MISSING, UNAUTHORIZED, UNAUTHORIZED, UNAUTHORIZED], FAULTED),
    ],
)
def test_three_equal_permanent_errors_in_a_row_fault(verdicts: list[Ruling], state: EntityState) -> None:
    health = brought_to(FAILED_OVER)
    for verdict in verdicts:
        now = health.next_deadline
        assert now is not None
        (number,) = pings(health.tick(now))
        health.ping_failed(number, verdict, now=now, reason=verdict.kind.name)
    assert health.state is state


def test_a_faulted_entity_refuses_sends_with_the_cause() -> None:
    health = brought_to(FAULTED)
    assert health.route is Route.REFUSED
    fault = health.fault()
    assert (fault.path, fault.cause) == ("orders", "gone")
    assert health.status().reason == "3 pings in a row: gone"


def test_a_faulted_entity_sends_to_the_backlog_if_told_to() -> None:
    assert brought_to(FAULTED, on_permanent="backlog").route is Route.BACKLOG


def test_pings_go_on_while_faulted_and_a_good_one_mends() -> None:
    health = brought_to(FAULTED)
    for _ in range(3):
        now = health.next_deadline
        assert now is not None
        (number,) = pings(health.tick(now))
        assert health.ping_failed(number, COUNT, now=now, reason="refused") == ()
    now = health.next_deadline
    assert now is not None
    (number,) = pings(health.tick(now))
    assert changes(health.ping_succeeded(number, now)) == [(FAULTED, HEALTHY)]


def test_a_ping_that_nobody_waits_for_is_ignored() -> None:
    health = make(failover_interval=0)
    health.begin("a", 100)
    health.record("a", COUNT, now=100, reason="refused")
    effects = health.mark_healthy(101)
    assert effects[0] == StopPing("orders", 1)
    assert health.ping_succeeded(1, 102) == ()
    health.begin("b", 110)
    health.record("b", COUNT, now=110, reason="refused")
    assert health.ping_failed(1, MISSING, now=111, reason="late") == ()
    assert health.ping_succeeded(1, 111) == ()
    assert health.state is FAILED_OVER
    assert changes(health.ping_succeeded(2, 112)) == [(FAILED_OVER, HEALTHY)]


def test_a_forced_failover_is_not_undone_by_a_ping_at_once() -> None:
    health = make(ping_primary_interval=60)
    health.begin("a", 99)
    effects = health.force_over(100, "drill")
    assert effects[0] == AbandonAttempts("orders", ("a",))
    assert pings(effects) == []
    assert health.tick(159) == ()
    assert pings(health.tick(160)) == [1]
