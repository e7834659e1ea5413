"""Writes to an object store are counted where they are made, and billed by the ledger of that process."""

from pathlib import Path

import pytest

from pairbus.clock import ManualClock
from pairbus.ledger.operation_log import OperationLog
from pairbus.ledger.operations import KIND, ledger_of, read_operations
from pairbus.ledger.segment import closed_segments, parse_lines
from pairbus.stages import Stage
from pairbus.stores.store import open_store
from pairbus.stores.writes import take_writes
from tests.object_places import ENVIRONMENT, make_s3_bucket, place_of


def test_writes_to_a_store_are_on_the_bill(
    tmp_path: Path, moto: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the ledger itself, its last word included, and of others below the same bucket; each once."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    place = place_of(make_s3_bucket(moto))
    clock = ManualClock(start=1_763_208_000.0)
    open_store(place / "elsewhere").put("words-1", b"one")
    first, second = (OperationLog(place, role="client", pair="contoso", clock=clock) for _ in range(2))
    shipped = OperationLog(tmp_path, role="client", pair="contoso", clock=clock, ships_to=place)
    for log in (first, second, shipped):
        log.flush("begin")
        clock.advance(60)
        log.flush("interval")
    for log in (first, second):
        log.flush("end")
    shipped.start()
    shipped.close()
    assert take_writes(place) == 0
    local, store = closed_segments(tmp_path, KIND), open_store(place)
    names = store.list(KIND)
    found = ledger_of([*(parse_lines(store.read(name)) for name in names)]).operations
    writes = [one for one in [*found, *read_operations(local).operations] if one.stage is Stage.STORE_WRITE]
    assert {(one.namespace, one.entity, one.kind, one.size_class) for one in writes} == {
        ("$records", "$records", "put", 1)
    }
    assert sum(one.count for one in writes) == len(names) + 1


def test_a_directory_costs_nothing(tmp_path: Path) -> None:
    open_store(tmp_path).put("words-1", b"one")
    assert take_writes(tmp_path) == 0
