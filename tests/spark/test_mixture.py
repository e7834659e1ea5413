"""What a backlog may hold besides: messages of two pairs, times to live of either policy, and rubbish."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pairbus.amqp.message import Header, Properties, encode_data, encode_header, encode_properties
from pairbus.ledger.operations import read_operations
from pairbus.ledger.segment import closed_segments
from pairbus.spark import PumpOptions, PumpPair, Syphon, load_receipts

from .bus import OTHER_ENV, SECONDARY_ENV, Bus, Letter
from .traffic import HOUR_MS, assert_receipts

pytestmark = pytest.mark.timeout(900)


def rubbish(name: str) -> bytes:
    """A message that no client of ours has put there."""
    return b"".join(
        (
            encode_header(Header(durable=True)),
            encode_properties(Properties(message_id=name)),
            encode_data(b"hello"),
        )
    )


@pytest.mark.long
def test_two_pairs_with_one_secondary_both_policies_and_rubbish(
    spark: Any, bus: Bus, pair: PumpPair, tmp_path: Path
) -> None:
    other = Bus(bus.broker, primary="fabrikam", queues=3)
    other.make_lease()
    for one in (bus, other):
        one.create_entities(queues=["orders", "quotes"], sessions=["carts"], topics=[])
        one.put([Letter(path="orders", id=f"{one.primary.name}-o{n:03d}") for n in range(100)])
        one.put([Letter(path="carts", id=f"c{n:03d}", session="s") for n in range(50)])
        for path in ("orders", "quotes"):
            one.put([Letter(path=path, id=f"{path}-hour", ttl_ms=HOUR_MS)])
            one.put([Letter(path=path, id=f"{path}-over", ttl_ms=1)])
        one.put([Letter(path="x" * 300, id="long-name"), Letter(path="a//b", id="no-name")])
        one.put_raw(one.backlog[0], [rubbish("rubbish")])
    # Here time in the backlog counts, save for orders; there it does not, save for quotes.
    options = [
        PumpOptions(ttl_policy="deduct", ttl_policies={"Orders": "pause"}),
        PumpOptions(ttl_policies={"quotes": "deduct"}),
    ]
    pairs = [pair, PumpPair.from_env(OTHER_ENV, SECONDARY_ENV)]
    records = [tmp_path / name / "records" for name in ("contoso", "fabrikam")]
    job = tmp_path / "job"
    summary = Syphon(spark, pairs, records=records, state=job, options=options, shards=2).run(once=True)
    for one in (bus, other):
        assert one.left() == 0
        assert one.dead_letters() == {
            "quotes-over": "TTLExpiredException",
            **dict.fromkeys(("long-name", "no-name", "rubbish"), "MalformedEnvelope"),
        }
        assert one.ids("carts") == [f"c{n:03d}" for n in range(50)]
        (hour,) = [m for m in one.found("orders") if m.message_id == "orders-hour"]
        assert hour.ttl_ms == HOUR_MS
        (less,) = one.found("quotes")
        assert less.message_id == "quotes-hour"
        assert less.ttl_ms is not None
        assert 0 < less.ttl_ms < HOUR_MS
        plain = {message_id for message_id in one.ids("orders") if message_id.startswith(one.primary.name)}
        assert plain == {f"{one.primary.name}-o{n:03d}" for n in range(100)}
    # A millisecond is over as soon as the primary has it: orders-over arrived, and has expired there.
    moved = 2 * (100 + 50 + 2 + 1)
    assert (summary.moved, summary.dead_lettered, summary.waiting) == (moved, 8, 0)
    assert summary.is_complete
    for directory, name in zip(records, ("contoso", "fabrikam"), strict=True):
        assert_receipts(directory, moved=moved // 2, dead=4)
        rows = load_receipts(spark, directory).collect()
        assert Counter(row["pair"] for row in rows) == {name: moved // 2 + 4}
        assert all(row["backlog_queue"].startswith(f"{name}/") for row in rows)
        assert {one.pair for one in read_operations(closed_segments(directory, "operations")).operations} == {
            name
        }
    assert summary.tables == tuple(str(path) for one in records for path in one.glob("receipts-*.parquet"))
    assert not (job / "records").exists()
