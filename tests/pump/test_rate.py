"""The limiter, and the credit that follows from the rate."""

from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.pump.rate import Limiter, Pace
from tests.examples import examples

TICK = 0.05
#: How long after the last trouble a rate may take to be what it was, or to be no limit any more.
RECOVERY = 17.0


def send(limiter: Limiter, seconds: float, *, most: int = 1 << 30, size: int = 0, begin: float = 0.0) -> int:
    """Send as fast as allowed, or `most` each time that it is asked for; how many messages were sent."""
    now, sent = begin, 0
    while now < begin + seconds:
        room, count = limiter.room(now), 0
        while count < min(most, 10_000) and (room is None or room.take(size)):
            count += 1
        limiter.take(count, size * count)
        sent += count
        now += min(TICK, limiter.wait())
    return sent


def test_a_maximum_is_kept_by_messages_and_by_bytes() -> None:
    assert 900 <= send(Limiter(max_messages=100, adaptive=False), 10.0) <= 1012
    assert 45 <= send(Limiter(max_bytes=5000, adaptive=False), 10.0, size=1000) <= 56
    assert 4 <= send(Limiter(max_messages=0.5, adaptive=False), 10.0) <= 6


def test_it_starts_gently_and_is_soon_out_of_the_way() -> None:
    limiter = Limiter(start=100.0)
    assert send(limiter, 0.25) <= 200
    send(limiter, 4.0, begin=0.25)
    assert limiter.room(4.5) is None


def test_trouble_halves_the_rate_once_a_second_and_what_follows_finds_back() -> None:
    limiter = Limiter(start=1000.0)
    send(limiter, 0.2)
    for _ in range(50):
        limiter.trouble(0.2)
    assert limiter.rate == 500.0
    send(limiter, 2.0, begin=0.2)
    assert 900 <= limiter.rate <= 1000, "back where trouble came, and careful there"
    send(limiter, 1.0, begin=2.2)
    assert limiter.rate <= 1000
    assert Limiter(adaptive=False).room(0.0) is None


def test_a_primary_that_takes_so_much_is_asked_for_that_much() -> None:
    """It refuses what is above 800 a second; what is taken is most of that, and refusals are rare."""
    limiter, now, taken, refusals = Limiter(), 0.0, 0, 0
    while now < 60.0:
        count = send(limiter, 0.1, begin=now)
        taken += min(count, 80)
        if count > 88:
            before = limiter.rate
            limiter.trouble(now)
            refusals += limiter.rate < before
        now += 0.1
    assert taken > 0.75 * 800 * 60
    assert refusals < 20


Act = tuple[str, float]
acts = st.tuples(st.sampled_from(["send", "trickle", "trouble", "rest"]), st.floats(0.01, 5.0))


@settings(max_examples=examples(40))
@given(st.lists(acts, max_size=40), st.sampled_from([None, 0.5, 60.0, 1e5]), st.floats(1.0, 5000.0))
def test_after_any_history_the_rate_finds_back_and_stays_within_its_bounds(
    history: list[Act], ceiling: float | None, start: float
) -> None:
    limiter, now = Limiter(max_messages=ceiling, start=start), 0.0
    for act, seconds in history:
        if act == "trouble":
            for _ in range(int(seconds * 10)):
                limiter.trouble(now)
                now += 0.1
        elif act != "rest":
            send(limiter, seconds, most=1, begin=now)
        now += seconds
        assert 0 < limiter.rate <= (ceiling or inf)
    limiter.trouble(now)
    send(limiter, RECOVERY, most=1, begin=now)
    if ceiling is None:
        assert limiter.room(now + RECOVERY) is None
    else:
        assert limiter.rate == ceiling


@given(st.lists(st.tuples(st.floats(0.0, 3.0), st.booleans()), max_size=30), st.floats(0.5, 500.0))
def test_in_no_stretch_of_time_there_is_more_than_the_maximum(
    history: list[tuple[float, bool]], ceiling: float
) -> None:
    limiter, now = Limiter(max_messages=ceiling), 0.0
    times: list[float] = []
    for pause, is_trouble in history:
        now += pause
        if is_trouble:
            limiter.trouble(now)
        room = limiter.room(now)
        assert room is not None
        count = 0
        while room.take(1):
            count += 1
        limiter.take(count, count)
        times += [now] * count
    for first, begin in enumerate(times):
        for last in range(first, len(times)):
            assert last - first + 1 <= ceiling * (times[last] - begin) + max(1.0, 0.1 * ceiling) + 1e-6


def test_credit_is_what_the_rate_moves_in_a_third_of_a_lock() -> None:
    pace = Pace(lock_duration=30.0, least=1, most=5000)
    for tenth in range(1, 40):
        pace.count(10, tenth / 10)  # 100 a second
    assert 900 <= pace.credit(inf) <= 1100
    assert pace.credit(20.0) == 200
    assert pace.credit(0.01) == 1
    assert Pace(most=70).credit(inf) == 70
