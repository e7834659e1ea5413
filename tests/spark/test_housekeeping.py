"""Chores of an endless run: done now and then, told when they fail, and tried again."""

from __future__ import annotations

import logging

import pytest

from pairbus.spark.housekeeping import Chore


class Compaction:
    """Fails as long as it is told to; counts how often it was tried."""

    def __init__(self) -> None:
        self.tries = 0
        self.error: Exception | None = None

    def __call__(self) -> None:
        self.tries += 1
        if self.error is not None:
            raise self.error


def test_a_chore_is_done_whenever_its_time_has_come() -> None:
    work = Compaction()
    chore = Chore("compaction", work, begun=100.0, every=900.0)
    for now in (100.0, 999.0, 1000.0, 1001.0, 1899.0, 1900.0):
        chore.tick(now)
    assert work.tries == 2


def test_a_chore_that_fails_is_told_and_tried_again_less_and_less_soon(
    caplog: pytest.LogCaptureFixture,
) -> None:
    work = Compaction()
    work.error = RuntimeError("no space left\n\tat java.base/Thread.run")
    chore = Chore("compaction", work, begun=0.0, every=900.0)
    tried = []
    with caplog.at_level(logging.WARNING, "pairbus"):
        for now in range(0, 4000):
            before = work.tries
            chore.tick(float(now))
            tried += [now] * (work.tries - before)
    assert tried == [900, 930, 990, 1110, 1350, 1830, 2730, 3630]
    assert (chore.trouble or "").endswith("RuntimeError: no space left")
    assert len(caplog.messages) == len(tried)
    assert caplog.messages[0] == "compaction failed: RuntimeError: no space left; it is tried again in 30 s"
    work.error = None
    chore.tick(4530.0)
    chore.tick(5429.0)
    assert (work.tries, chore.trouble) == (len(tried) + 1, None), "well again, it has time"
