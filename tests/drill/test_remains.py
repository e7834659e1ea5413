"""What is found after a drill."""

from pathlib import Path

import pytest

from pairbus.client.state.directory import records_dir
from pairbus.client.state.records import UNANSWERED, UNKNOWN, RedirectRecord, SegmentRecords
from pairbus.drill.remains import read_redirects

QUEUE = "contoso/x-servicebus-transfer/0"


def record(number: int, outcome: str | None = None, *, queue: str = QUEUE) -> RedirectRecord:
    return RedirectRecord(
        message_id=f"payments-{number}",
        path="Payments",
        session_id="a",
        queue=queue,
        at=1_800_000_000.0 + number,
        outcome=outcome,
    )


@pytest.mark.parametrize("outcome", [UNANSWERED, UNKNOWN])
async def test_what_may_have_gone_two_ways_is_compared_with_nothing(tmp_path: Path, outcome: str) -> None:
    """On a busy machine the primary had taken some of them, long before the drain brought the others."""
    records = SegmentRecords(records_dir(tmp_path))
    await records.append([record(number) for number in range(4)])
    await records.append([record(2, outcome, queue=f"{QUEUE}1"), record(3, outcome)])
    await records.close()
    ways = read_redirects(tmp_path)
    assert list(ways) == [("payments", f"payments-{number}") for number in range(4)]
    first, second, third, fourth = ways.values()
    assert first == second == QUEUE
    assert len({first, third, fourth}) == 3
