"""Chores of an endless run: done now and then, told when they fail, and tried again."""

import logging

import pytest

from pairbus.spark.housekeeping import Chore
from tests.logs import our_lines


class Work:
    """Takes its time and fails as long as it is told to; knows when it was tried."""

    def __init__(self, *, every: float = 900.0) -> None:
        self.now = 0.0
        self.tried: list[float] = []
        self.takes = 0.0
        self.error: Exception | None = None
        self.chore = Chore("compaction", self.act, every=every, now=lambda: self.now)

    def act(self) -> None:
        self.tried.append(self.now)
        self.now += self.takes
        if self.error is not None:
            raise self.error

    def pass_time(self, until: float) -> None:
        while self.now < until:
            self.now += 1.0
            self.chore.tick()


def test_a_chore_is_done_so_long_after_the_last_time() -> None:
    work = Work()
    work.takes = 100.0
    work.pass_time(3000.0)
    assert work.tried == [900.0, 1900.0, 2900.0]


def test_a_chore_that_fails_is_told_and_tried_again_less_and_less_soon(
    caplog: pytest.LogCaptureFixture,
) -> None:
    work = Work()
    work.error = RuntimeError("no space left\n\tat java.base/Thread.run")
    with caplog.at_level(logging.WARNING, "pairbus"):
        work.pass_time(4000.0)
    assert work.tried == [900.0, 930.0, 990.0, 1110.0, 1350.0, 1830.0, 2730.0, 3630.0]
    assert (work.chore.trouble or "").endswith("RuntimeError: no space left")
    told = our_lines(caplog)
    assert len(told) == len(work.tried)
    assert told[0] == "compaction failed: RuntimeError: no space left; it is tried again in 30 s"


def test_a_chore_of_every_moment_that_fails_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    work = Work(every=0.5)
    work.error = PermissionError("a segment")
    with caplog.at_level(logging.WARNING, "pairbus"):
        work.pass_time(100.0)
    assert work.tried == [1.0, 31.0, 91.0]
    assert len(our_lines(caplog)) == len(work.tried)
    work.error = None
    work.pass_time(220.0)
    assert work.tried[3:6] == [211.0, 212.0, 213.0]


def test_a_chore_that_is_well_again_has_time_and_then_fails_anew() -> None:
    work = Work()
    work.error = RuntimeError("no space left")
    work.pass_time(950.0)
    work.error = None
    work.pass_time(2700.0)
    assert work.tried == [900.0, 930.0, 990.0, 1890.0]
    assert work.chore.trouble is None
    work.error = RuntimeError("no space left")
    work.pass_time(2830.0)
    assert work.tried[4:] == [2790.0, 2820.0]


def test_a_chore_may_fail_for_months() -> None:
    work = Work()
    work.error = RuntimeError("no space left")
    for _ in range(10_000):
        work.now += 900.0
        work.chore.tick()
    assert len(work.tried) == 10_000
