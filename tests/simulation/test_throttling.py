"""Throttling of a namespace, for long and with short locks: when it ends, the backlog moves within seconds.

The pump once held more under lock than its rate could send before those locks ended. Then nothing moved at
all, and the rate itself took minutes to find back.
"""

import logging
import random

import pytest

from .faults import Fault
from .pump_history import play_pump
from .pump_plan import PRIMARY, Crash, Knobs, PlannedMessage, PumpPlan

#: From the end of the throttling until all has arrived, apart from what has to wait for a lock to end.
RECOVERY = 25.0


def throttled(seed: int) -> PumpPlan:
    chance = random.Random(f"throttled {seed}")
    knobs = Knobs(
        queues=chance.choice((1, 3)),
        mode="stream",
        lock=chance.choice((2.0, 5.0, 20.0)),
        fetch=200,
        batch=chance.choice((1, 100)),
        page=250,
        in_hand=1000,
        send_timeout=10.0,
        detects_duplicates=False,
        skew=0.0,
        start_rate=20.0,
    )
    sessions = [None, *(f"s{number}" for number in range(chance.choice((0, 2, 40))))]
    messages = tuple(
        PlannedMessage(
            f"m{number:03}",
            chance.randrange(knobs.queues),
            chance.choice(("orders", "bills")),
            chance.choice(sessions),
            0.0,
            10,
        )
        for number in range(300)
    )
    busy = Fault("busy", PRIMARY, 0.5, chance.uniform(20, 60), None, chance.choice((1.0, 0.9, 0.5)))
    return PumpPlan(seed, knobs, messages, (busy,), ())


@pytest.mark.parametrize("seed", range(3))
def test_the_backlog_moves_within_seconds_when_the_throttling_ends(seed: int) -> None:
    plan = throttled(seed)
    logging.disable(logging.CRITICAL)
    try:
        history = play_pump(plan)
    finally:
        logging.disable(logging.NOTSET)
    assert not history.failures
    begun = min(attempt.at for attempt in history.primary.attempts)
    last = max(attempt.at for attempt in history.primary.attempts)
    assert last - begun <= plan.healed_at + plan.knobs.lock + RECOVERY


@pytest.mark.parametrize("step", [1100, 1200, 1400])
def test_a_slow_pump_takes_no_more_in_hand_than_its_first_locks_last_for(step: int) -> None:
    """It asked for what it could move in a lock of a minute, before it knew how long a lock is. Then it sent
    what it could not complete any more; whoever came next sent that again.
    """
    knobs = Knobs(
        queues=1,
        mode="stream",
        lock=5.0,
        fetch=5,
        batch=10,
        page=20,
        in_hand=1000,
        send_timeout=10.0,
        detects_duplicates=False,
        skew=0.0,
        start_rate=50.0,
        max_rate=10.0,
    )
    messages = tuple(PlannedMessage(f"m{number:03}", 0, "orders", None, 9.0, 10) for number in range(100))
    stopped = Crash(step, 10.0, is_clean=True)
    assert not play_pump(PumpPlan(step, knobs, messages, (), (stopped,))).failures
