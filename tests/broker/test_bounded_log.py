"""What a client can cause to be logged is logged at a bounded rate, and nothing of it is kept silent."""

import logging

import pytest

from pairbus.broker.bounded_log import MOST_LINES, WINDOW, BoundedLog

pytestmark = pytest.mark.usefixtures("noisy")


async def test_a_loop_of_refusals_is_a_bounded_number_of_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    now = 100.0
    bounded = BoundedLog(logging.getLogger("pairbus.bounded"), monotonic=lambda: now)
    for _ in range(10_000):
        bounded.tell(logging.INFO, "token refused", {"reason": "bad"})
    bounded.tell(logging.INFO, "another kind", {})
    lines = [record.getMessage() for record in caplog.records if record.name == "pairbus.bounded"]
    assert lines == ["token refused"] * MOST_LINES + ["another kind"]
    now += WINDOW
    bounded.tell(logging.INFO, "token refused", {"reason": "bad"})
    summary, line = caplog.records[-2:]
    assert summary.getMessage() == "token refused, more of the same"
    assert summary.__dict__["fields"] == {"times": 10_000 - MOST_LINES, "seconds": WINDOW}
    assert line.getMessage() == "token refused"


async def test_what_was_held_back_is_told_even_if_nothing_follows(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    bounded = BoundedLog(logging.getLogger("pairbus.bounded"), monotonic=lambda: 0.0)
    for _ in range(MOST_LINES + 7):
        bounded.tell(logging.INFO, "token refused", {})
    bounded._tell_rest(logging.INFO, "token refused", bounded._windows["token refused"])
    assert caplog.records[-1].__dict__["fields"]["times"] == 7


def test_a_level_that_is_off_costs_nothing() -> None:
    log = logging.getLogger("pairbus.bounded.off")
    log.setLevel(logging.ERROR)
    bounded = BoundedLog(log)
    bounded.tell(logging.INFO, "token refused", {})
    assert not bounded._windows
