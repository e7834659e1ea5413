"""What an idle syphon costs: the receives that its polls are, and next to no work."""

import time
from pathlib import Path
from typing import Any

import pytest

from pairbus.broker.counters import OperationKind
from pairbus.spark import Backlog, PumpOptions, PumpPair, Syphon

from .bus import Bus, until
from .processes import cpu_seconds
from .traffic import running

pytestmark = pytest.mark.timeout(900)


def by_epoch(bus: Bus, kind: OperationKind) -> list[int]:
    """Operations on the secondary, epoch by epoch: each has a pump, and each pump a connection."""
    return [bus.secondary.count(kind, connection=one.name) for one in bus.pumps()]


@pytest.mark.long
def test_ten_idle_queues_cost_what_the_polls_are(
    spark: Any, bare_bus: Bus, pair: PumpPair, tmp_path: Path
) -> None:
    # The lease has operations of its own, so there is none.
    # An epoch that would end within the third poll lasts as long as that.
    syphon = Syphon(
        spark,
        pair,
        state=tmp_path,
        options=PumpOptions(poll=1.0),
        shards=1,
        busy_epoch=0.5,
        longest_epoch=2.5,
    )
    with running(syphon) as done:
        until(lambda: by_epoch(bare_bus, OperationKind.MANAGEMENT)[:4] == [10] * 4, within=150)
    assert done[0].moved == 0
    first, second, third, *rest = by_epoch(bare_bus, OperationKind.EMPTY_RECEIVE)
    assert first == 10, "a short epoch to begin with, for there may be work"
    # Three polls, or two where opening the links took its time.
    assert {second, third} <= {10 * 3, 10 * 2}, "no epoch has cut a poll"
    assert max(rest) <= 10 * 3
    assert max(by_epoch(bare_bus, OperationKind.MANAGEMENT)) == 10, (
        "an epoch begins with a look at its queues"
    )
    kinds = {tally.kind for tally in bare_bus.secondary.counters()}
    assert kinds == {OperationKind.EMPTY_RECEIVE, OperationKind.MANAGEMENT, OperationKind.ADMIN}


@pytest.mark.long
def test_a_thousand_idle_queues_on_two_tasks_use_next_to_no_cpu(
    spark: Any, bare_bus: Bus, pair: PumpPair, tmp_path: Path
) -> None:
    many = Bus(bare_bus.broker, queues=1000, begin=10)
    backlog = Backlog(pair=pair, count=1000)
    syphon = Syphon(spark, backlog, state=tmp_path, shards=2, busy_epoch=300.0)
    with running(syphon) as done:
        until(lambda: many.secondary.count(OperationKind.MANAGEMENT) == 1000, within=120)
        workers = [pump.pid for pump in syphon.pumps()]
        assert len(set(workers)) == 2
        until(lambda: is_quiet(workers), within=60)
        operations = [many.secondary.count(kind) for kind in OperationKind]
        begun, before = time.monotonic(), [cpu_seconds(pid) for pid in workers]
        until(lambda: time.monotonic() > begun + 4)
        used = [cpu_seconds(pid) - was for pid, was in zip(workers, before, strict=True)]
        # A loop that asked its queues again and again would use all of a core.
        assert max(used) < 0.25 * 4
        assert [many.secondary.count(kind) for kind in OperationKind] == operations
    assert done[0].moved == 0
    assert many.secondary.count(OperationKind.EMPTY_RECEIVE) == 1000
    assert many.secondary.count(OperationKind.MANAGEMENT) == 1000


def is_quiet(workers: list[int]) -> bool:
    """Whether the links are open: the processes do nothing for half a second."""
    before = [cpu_seconds(pid) for pid in workers]
    begun = time.monotonic()
    until(lambda: time.monotonic() > begun + 0.5)
    return all(cpu_seconds(pid) - was < 0.1 for pid, was in zip(workers, before, strict=True))
