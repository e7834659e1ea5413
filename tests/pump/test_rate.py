"""The limiter, and the credit that follows from the rate."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from pairbus.pump.rate import Limiter, Pace


def send(limiter: Limiter, seconds: float, *, at_once: int = 10, size: int = 0, begin: float = 0.0) -> float:
    """Send as fast as allowed; messages a second."""
    now, sent = begin, 0
    while now < begin + seconds:
        now += limiter.take(at_once, size, now)
        sent += at_once
        now += 1e-5
    return sent / seconds


def test_a_maximum_is_kept_by_messages_and_by_bytes() -> None:
    assert 90 <= send(Limiter(max_messages=100, adaptive=False), 10.0) <= 112
    assert 45 <= send(Limiter(max_bytes=5000, adaptive=False), 10.0, size=1000) <= 56


def test_it_starts_gently_and_is_soon_out_of_the_way() -> None:
    limiter = Limiter(start=100.0)
    assert send(limiter, 0.25) <= 200
    send(limiter, 4.0, begin=0.25)
    assert limiter.take(100_000, 10**9, 4.5) == 0.0


def test_trouble_halves_the_rate_once_a_second_and_it_grows_back_slowly() -> None:
    limiter = Limiter(start=1000.0)
    limiter.take(1, 0, 0.0)
    for _ in range(50):
        limiter.trouble(0.1)
    assert limiter.rate == 500.0
    limiter.trouble(1.2)
    assert 250 <= limiter.rate <= 300
    lowest = limiter.rate
    for tenth in range(20, 60):
        limiter.take(1, 0, tenth / 10)
    assert lowest < limiter.rate < 500
    assert Limiter(adaptive=False).rate == inf


@given(st.lists(st.sampled_from(["take", "trouble"]), max_size=60), st.floats(1.0, 1e5))
def test_the_rate_stays_within_its_bounds(acts: list[str], ceiling: float) -> None:
    limiter, now = Limiter(max_messages=ceiling), 0.0
    for act in acts:
        now += 0.3
        if act == "take":
            assert limiter.take(5, 5, now) >= 0
        else:
            limiter.trouble(now)
        assert 0 < limiter.rate <= max(ceiling, 1.0)


def test_credit_is_what_the_rate_moves_in_a_third_of_a_lock() -> None:
    pace = Pace(lock_duration=30.0, least=1, most=5000)
    for tenth in range(1, 40):
        pace.count(10, tenth / 10)  # 100 a second
    assert 900 <= pace.credit(inf) <= 1100
    assert pace.credit(20.0) == 200
    assert pace.credit(0.01) == 1
    assert Pace(most=70).credit(inf) == 70
