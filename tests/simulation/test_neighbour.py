"""The real pump beside an application, both namespaces with credits: it takes them slowly, on either side."""

import logging
from math import inf

import pytest

from .neighbour import Beside, play_beside
from .pump_plan import PRIMARY, SECONDARY


def spells(moments: list[float]) -> list[float]:
    """When credits ran out: those who are refused within the same second met the same empty second."""
    return [at for before, at in zip([-inf, *moments], moments, strict=False) if at - before > 1.0]


@pytest.mark.parametrize("side", [PRIMARY, SECONDARY])
def test_a_drain_leaves_the_application_its_credits(side: str) -> None:
    """At the beginning too, when a thousand messages could be received at once."""
    plan = Beside(seed=1, credits=200, app_rate=40.0, messages=1000, busy_sides=(side,))
    logging.disable(logging.CRITICAL)
    try:
        outcome = play_beside(plan)
    finally:
        logging.disable(logging.NOTSET)
    assert outcome.summary is not None
    assert outcome.summary.moved == plan.messages
    assert len(spells(outcome.throttled)) <= 3
    left = plan.credits - 2 * plan.app_rate
    assert 0.5 * left <= plan.messages / outcome.seconds <= left
