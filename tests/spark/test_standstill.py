"""When a drain is given up: not while something is on its way, may move soon, or is waited for on purpose."""

from math import inf

import pytest

from pairbus.pump.options import PumpOptions
from pairbus.spark.leash.leash import COUNTS, Order, Progress
from pairbus.spark.standstill import Standstill


class Drain:
    """A drain, as its driver sees it every second."""

    def __init__(self, **options: float) -> None:
        self._watch = Standstill([PumpOptions(**options)])  # type: ignore[arg-type]
        self._now = 1000.0
        self.counts = dict.fromkeys(COUNTS, 0)

    def goes_on(
        self, seconds: float, *, may_work: bool = True, pumps: int = 1, order: Order = "run"
    ) -> float:
        """For so long, and as it is; after how many seconds it is given up."""
        for second in range(int(seconds) + 1):
            progress = Progress(self.counts, pumps, order)
            if self._watch.note(progress, may_work=may_work, now=self._now + second) is not None:
                return second
        self._now += seconds
        return inf


def test_a_drain_that_stands_still_is_given_up_after_the_longest_lock() -> None:
    drain = Drain()
    for name in ("moved", "dead_lettered", "waiting"):
        assert drain.goes_on(300) == inf
        drain.counts[name] += 1
    assert drain.goes_on(1000) == 331


def test_what_is_put_aside_again_is_no_headway() -> None:
    drain = Drain()
    drain.counts["waiting"] = 5
    assert drain.goes_on(100) == inf
    drain.counts["waiting"] = 4
    assert drain.goes_on(100) == inf
    drain.counts["waiting"] = 5
    assert drain.goes_on(1000) == 131


@pytest.mark.parametrize("patience", [200.0, 600.0, 5000.0])
def test_a_drain_that_is_patient_ends_by_itself(patience: float) -> None:
    """What it waits for in vain is counted as waiting, and nobody has stopped it."""
    assert Drain(patience=patience).goes_on(patience + 300) == inf


@pytest.mark.parametrize("options", [{"max_rate": 0.002}, {"max_byte_rate": 256.0}])
def test_a_rate_that_is_low_enough_is_no_standstill(options: dict[str, float]) -> None:
    """At 256 bytes a second a message of the Standard tier keeps the next one waiting for 1,000 s."""
    assert Drain(**options).goes_on(1000) == inf
    assert Drain(**options).goes_on(10**6) < inf


def test_a_lease_that_comes_back_ends_nothing() -> None:
    """However long a drain has waited before for what another one has locked."""
    drain = Drain()
    for _ in range(3):
        assert drain.goes_on(70) == inf
        assert drain.goes_on(20, may_work=False) == inf
    assert drain.goes_on(1000) == 331 - 3 * 90


def test_a_lease_that_does_not_come_back_ends_it() -> None:
    assert Drain().goes_on(1000, may_work=False) == 66
    assert Drain().goes_on(1000, may_work=False, pumps=0) == 66
    drain = Drain(patience=600.0)
    assert drain.goes_on(300) == inf
    assert drain.goes_on(1000, may_work=False) == 601, "the secondary may be down, and come back"


def test_who_pauses_it_or_waits_for_spark_does_not_lose_it() -> None:
    drain = Drain()
    assert drain.goes_on(5000, order="pause") == inf
    assert drain.goes_on(5000, order="pause", may_work=False) == inf
    assert drain.goes_on(5000, pumps=0) == inf
