"""Beside an application, where namespaces have credits: what it meets of a drain, and what the drain gets."""

import pytest

from pairbus.pump.gait import KEPT_ALONE, STANDARD_CREDITS
from pairbus.pump.rate import Limiter
from pairbus.sdk.side import SideName

from .thrift import Thrift, play_thrift

BOTH: tuple[SideName, ...] = ("primary", "secondary")


@pytest.mark.parametrize("seed", range(2))
def test_an_application_is_refused_once_a_minute_at_most_and_leaves_the_rest(seed: int) -> None:
    plan = Thrift(seed=seed)
    outcome = play_thrift(plan)
    assert len(outcome.throttled) <= outcome.seconds / 60
    left = plan.credits - 2 * plan.app_rate
    assert plan.messages / outcome.seconds >= 0.8 * left


@pytest.mark.parametrize("seed", [2, 7])
def test_so_it_is_at_the_secondary_where_refusals_have_to_be_asked_for(seed: int) -> None:
    """Who receives is not refused but left without; there the application may notice first."""
    plan = Thrift(sides=BOTH, seed=seed)
    outcome = play_thrift(plan)
    assert len(outcome.throttled) <= outcome.seconds / 60
    assert plan.messages / outcome.seconds >= 0.8 * (plan.credits - 2 * plan.app_rate)


def test_one_that_does_not_keep_time_gets_more_room() -> None:
    plan = Thrift(is_random=True, messages=60_000)
    outcome = play_thrift(plan)
    assert len(outcome.throttled) <= 0.001 * outcome.asked
    assert plan.messages / outcome.seconds >= 0.75 * (plan.credits - 2 * plan.app_rate)


def test_one_that_wants_more_gets_it() -> None:
    """From the tenth second on it takes 800 of 1,000 credits; soon that is known."""
    outcome = play_thrift(Thrift(messages=15_000, change=(10.0, 400.0)))
    assert len(outcome.throttled) < 400
    assert sum(at > 40 for at in outcome.throttled) <= outcome.seconds / 60 + 1
    assert outcome.rates[-1] <= 210


def test_nobody_beside_it_leaves_all_but_a_little() -> None:
    outcome = play_thrift(Thrift(sides=(), messages=80_000))
    assert outcome.rates[-1] == KEPT_ALONE * STANDARD_CREDITS


def drain(limiter: Limiter, seconds: float, begin: float = 0.0) -> float:
    """Use all that there is; until when."""
    now = begin
    while now < begin + seconds:
        intake = limiter.inlet.fill(now)
        limiter.inlet.take(int(min(intake, 50)))
        room = limiter.room(now)
        limiter.take(int(min(50.0 if room is None else room.messages, 50)), 0)
        now += 0.01
    return now


def test_credits_that_are_only_supposed_are_soon_shown_to_be_none() -> None:
    limiter = Limiter()
    for side in BOTH:
        limiter.expect(side, STANDARD_CREDITS, is_certain=False)
    assert limiter.rate == STANDARD_CREDITS / 2
    now = drain(limiter, 240.0)
    assert limiter.room(now) is None
    assert limiter.inlet.fill(now) == float("inf")


def test_a_rate_that_is_not_used_does_not_grow() -> None:
    limiter = Limiter()
    limiter.expect("primary", 1000.0, is_certain=True)
    for tick in range(1000):
        limiter.room(tick / 10)
        limiter.take(5, 0)
    assert limiter.rate == 500


def test_a_lost_line_does_not_count_against_the_credits() -> None:
    limiter = Limiter()
    limiter.expect("primary", 1000.0, is_certain=True)
    now = drain(limiter, 20.0)
    before = limiter.rate
    limiter.trouble(now)
    assert limiter.rate == before / 2
    drain(limiter, 6.0, begin=now)
    assert limiter.rate >= before


def test_a_namespace_that_says_it_has_none_is_not_spared() -> None:
    limiter = Limiter(start=100.0)
    limiter.expect("primary", 1000.0, is_certain=False)
    limiter.expect("primary", float("inf"), is_certain=True)
    assert limiter.rate == 100.0
    assert Limiter(adaptive=False).rate == 1e6


def test_of_several_pumps_each_begins_with_its_part() -> None:
    limiter = Limiter()
    limiter.take_share(0.25)
    limiter.expect("primary", 1000.0, is_certain=True)
    assert limiter.rate == 125


def test_soundings_leave_a_low_rate_to_messages() -> None:
    """Who was throttled while little came begins again with a low rate, of which soundings are a part."""
    limiter, now, sounded, received = Limiter(), 0.0, 0.0, 0
    limiter.expect("secondary", STANDARD_CREDITS, is_certain=False)
    for now in (5.0, 9.0, 13.0):
        limiter.trouble(now, "secondary", is_busy=True)
    assert limiter.rate < 5
    soundings, ends = 0, now + 60.0
    while now < ends:
        now += 0.01
        if (asked := int(limiter.inlet.fill(now))) > 0:
            limiter.inlet.take(asked)
            received += asked
        pause = limiter.sounding_pause()
        if pause is not None and now - sounded >= pause:
            sounded, soundings = now, soundings + 1
            limiter.inlet.take(1)
    assert soundings > 10
    assert received > 2 * soundings
