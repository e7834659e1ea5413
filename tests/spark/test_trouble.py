"""Entities in every sort of trouble, in one run: the others drain, nothing spins, and each message ends where
it should.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from pairbus.broker.counters import OperationKind
from pairbus.spark import PumpOptions, PumpPair, Syphon, load_receipts

from .bus import Bus, Letter

pytestmark = pytest.mark.timeout(900)

HEALTHY = ["orders", "invoices", "carts"]
DOWN = ["refusing", "silent", "full", "forbidden"]
DEAD = {"deleted": "EntityNotFound"}
EACH = 400
# Of a path that is down, the messages of this session show whether order outlives the trouble.
SESSION = "s"


def mail(paths: Sequence[str]) -> list[Letter]:
    return [
        Letter(path=path, id=f"{path}-{number:04d}", session=SESSION if number % 2 else None)
        for number in range(EACH)
        for path in paths
    ]


@pytest.fixture
def troubled(bus: Bus) -> Bus:
    """A backlog for healthy and sick entities, of which each backlog queue has its part."""
    bus.create_entities(queues=[*HEALTHY, *DOWN, *DEAD], sessions=[], topics=[])
    bus.primary.faults.set("refuse", entity="refusing")
    bus.primary.faults.set("blackhole", entity="silent")
    bus.primary.faults.set("full", entity="full")
    bus.primary.faults.set("error", entity="forbidden", condition="amqp:unauthorized-access")
    bus.primary.delete_queue("deleted")
    # A session stays in one queue, as senders keep it; all else is dealt out.
    sent = mail([*HEALTHY, *DOWN, *DEAD])
    bus.put(sent, spread=lambda index, letter: index // 16 if letter.session is None else len(letter.path))
    return bus


@pytest.mark.long
def test_trouble_of_some_entities_is_theirs_alone(
    spark: Any, troubled: Bus, pair: PumpPair, tmp_path: Path
) -> None:
    bus = troubled
    options = PumpOptions(send_timeout=3.0)
    summary = Syphon(spark, pair, state=tmp_path, options=options, shards=2).run(once=True)
    assert (summary.moved, summary.waiting) == (EACH * len(HEALTHY), EACH * len(DOWN))
    assert summary.dead_lettered == EACH * len(DEAD)
    assert not summary.is_complete
    for path in HEALTHY:
        assert sorted(bus.ids(path)) == sorted(letter.id for letter in mail([path]))
    assert bus.dead_letters() == {letter.id: DEAD[letter.path] for letter in mail(list(DEAD))}
    assert sorted(bus.waiting()) == sorted(letter.id for letter in mail(DOWN))
    assert bus.left() == len(bus.waiting())
    assert bus.locked() == 0
    for path in DOWN:
        assert summary.paths[path].waiting == EACH
        assert summary.paths[path].trouble
    assert_calm(bus)
    assert_swift(spark, tmp_path / "records")
    assert_mended(spark, bus, pair, tmp_path)


def assert_calm(bus: Bus) -> None:
    """Each message was looked at once, and sick entities were tried now and then."""
    total = EACH * (len(HEALTHY) + len(DOWN) + len(DEAD))
    tries = 50
    assert bus.secondary.count(OperationKind.DELIVERY) <= total + tries
    assert bus.secondary.count(OperationKind.DEFER) <= EACH * len(DOWN) + tries
    assert bus.secondary.count(OperationKind.DEAD_LETTER) == EACH * len(DEAD)
    assert bus.secondary.count(OperationKind.ABANDON) == bus.secondary.count(OperationKind.RELEASE) == 0
    assert (
        bus.secondary.count(OperationKind.MANAGEMENT) + bus.secondary.count(OperationKind.EMPTY_RECEIVE) < 400
    )
    for path in (*DOWN, *DEAD):
        # What was on its way when the first refusal came, and a try after each back-off.
        sends = [
            bus.primary.count(kind, entity=path) for kind in (OperationKind.SEND, OperationKind.SEND_REFUSED)
        ]
        assert sum(sends) <= EACH + tries, path
    for path in HEALTHY:
        assert bus.primary.count(OperationKind.SEND, entity=path) == EACH


def assert_swift(spark: Any, records: Path) -> None:
    """Back-offs and deadlines of the sick were not waited for: they would add up to many minutes."""
    moved = load_receipts(spark, records).where("outcome = 'moved'")
    row = moved.agg((F.max("moved").cast("double") - F.min("moved").cast("double")).alias("span")).collect()
    assert row[0]["span"] < 60


def assert_mended(spark: Any, bus: Bus, pair: PumpPair, state: Path) -> None:
    """When the entities are well again, what has waited arrives, in order."""
    bus.primary.faults.clear()
    again = Syphon(spark, pair, state=state).run(once=True)
    assert (again.moved, again.waiting, again.dead_lettered) == (EACH * len(DOWN), 0, 0)
    assert again.is_complete
    assert bus.left() == 0
    for path in DOWN:
        ids = bus.ids(path)
        assert set(ids) == {letter.id for letter in mail([path])}
        in_session = list(dict.fromkeys(m.message_id for m in bus.found(path) if m.session_id == SESSION))
        assert in_session == sorted(in_session)
