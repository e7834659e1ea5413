"""What the trouble of one path means for the pace of all."""

from collections.abc import Sequence
from typing import cast

import pytest

from pairbus import conditions
from pairbus.clock import SystemClock
from pairbus.ledger.receipts import MemoryReceipts, Receipt
from pairbus.pump.destinations import Destinations
from pairbus.pump.judgement import judge
from pairbus.pump.options import PumpOptions
from pairbus.pump.rate import Limiter
from pairbus.pump.station import Station
from pairbus.pump.summary import PumpTally
from pairbus.pump.transport import Transport
from pairbus.pump.turnstile import Entrance, Turnstile
from pairbus.wire.errors import CONNECTION_LOST, UNANSWERED, TransportError
from tests.ledger.test_receipts import receipt


class FrozenClock(SystemClock):
    """Nothing grows while a test looks."""

    def monotonic(self) -> float:
        return 100.0


@pytest.fixture
def station() -> Station:
    limiter = Limiter(start=2000.0)
    return Station(
        pair="contoso",
        options=PumpOptions(),
        primary=cast(Transport, None),
        receipts=MemoryReceipts(),
        clock=FrozenClock(),
        conditions=Destinations(first=1.0, longest=60.0),
        limiter=limiter,
        turnstile=Turnstile(limiter, FrozenClock()),
        entrance=Entrance(limiter, FrozenClock()),
        tally=PumpTally(0.0),
        longest_wait=900.0,
    )


@pytest.mark.parametrize(
    "condition", [conditions.RESOURCE_LIMIT, conditions.ENTITY_DISABLED, conditions.DETACH_FORCED]
)
def test_a_path_that_is_down_does_not_slow_the_others(station: Station, condition: str) -> None:
    station.note_trouble("orders", judge(TransportError(condition, "")), 0.0)
    assert station.limiter.rate == 2000


@pytest.mark.parametrize(
    "condition", [UNANSWERED, CONNECTION_LOST, conditions.INTERNAL_ERROR, conditions.SERVER_BUSY]
)
def test_trouble_slows_all_when_it_begins_and_not_with_each_try(station: Station, condition: str) -> None:
    judgement = judge(TransportError(condition, "wait 2 seconds"))
    station.note_trouble("orders", judgement, 0.0)
    assert station.limiter.rate == 1000
    for now in (10.0, 20.0, 40.0):
        assert station.conditions.claim_try("orders", now)
        assert station.limiter._outlet.gait is not None
        station.limiter._outlet.gait._reacted_at = 0.0  # a reaction is long ago
        station.note_trouble("orders", judgement, now)
    assert station.limiter.rate == 1000
    station.conditions.sent("orders", 41.0)
    station.note_trouble("orders", judgement, 42.0)
    assert station.limiter.rate == 500, "it was up again, and more was sent"


def test_a_throttled_path_is_tried_as_often_as_it_asks_for(station: Station) -> None:
    judgement = judge(TransportError(conditions.SERVER_BUSY, "wait 2 seconds"))
    station.note_trouble("orders", judgement, 0.0)
    for tried in range(2, 60, 2):
        assert station.conditions.claim_try("orders", float(tried))
        station.note_trouble("orders", judgement, float(tried))


async def test_receipts_that_are_not_confirmed_are_a_reason_why_nothing_moves(station: Station) -> None:
    class Slow(MemoryReceipts):
        async def append(self, rows: Sequence[Receipt]) -> None:
            assert "the disk or store has not confirmed them" in station.describe_stall(0)
            raise OSError("full")

    station.receipts = Slow()
    with pytest.raises(OSError, match="full"):
        await station.record([receipt(1)])
    assert "receipts" not in station.describe_stall(0)
