"""Several pumps at one queue that die together: the next one finds all that they have put aside.

What they held is under lock, and looks as if nobody had ever touched it. Behind it lies what they put aside.
"""

import logging
import random

import pytest

from pairbus.pump import intake

from .faults import Fault
from .pump_history import play_pump
from .pump_plan import PRIMARY, Knobs, PlannedMessage, PumpPlan

RIVALS, IN_HAND = 4, 10
MESSAGES = RIVALS * IN_HAND


def plan_of(seed: int) -> PumpPlan:
    """Messages for a silent path are held, those for a full one put aside, somewhere near the end."""
    chance = random.Random(f"rivals {seed}")
    aside = set(chance.sample(range(MESSAGES - IN_HAND, MESSAGES), 3))
    knobs = Knobs(
        queues=1,
        mode="stream",
        lock=chance.choice((20.0, 60.0)),
        fetch=200,
        batch=100,
        page=3,
        in_hand=IN_HAND,
        send_timeout=10.0,
        detects_duplicates=False,
        skew=0.0,
        rivals=RIVALS,
        rivals_for=chance.uniform(1.0, 5.0),
    )
    messages = tuple(
        PlannedMessage(f"m{number:03}", 0, "bills" if number in aside else "orders", None, 0.0, 10)
        for number in range(MESSAGES)
    )
    faults = (Fault("silence", PRIMARY, 0.0, 8.0, "orders"), Fault("full", PRIMARY, 0.0, 6.0, "bills"))
    return PumpPlan(seed, knobs, messages, faults, ())


def failures(seed: int) -> list[str]:
    logging.disable(logging.CRITICAL)
    try:
        return play_pump(plan_of(seed)).failures
    finally:
        logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", range(5))
def test_what_pumps_that_died_have_put_aside_is_found(seed: int) -> None:
    assert not failures(seed)


def test_a_look_that_is_too_short_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "_PUMPS_BEFORE", 1)
    assert any(failures(seed) for seed in range(5))
