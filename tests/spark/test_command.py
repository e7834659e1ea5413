"""The commands as processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pairbus.ledger import closed_segments
from tests.ledger.receipts import read_receipts

from .bus import PRIMARY_ENV, SECONDARY_ENV, Bus, Letter

pytestmark = pytest.mark.timeout(900)

PAIR = ["--primary-env", PRIMARY_ENV, "--secondary-env", SECONDARY_ENV]


def start(*arguments: str, log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "pairbus.cli", *arguments]
    # A syphon that is to run for long starts slowly, to be quick later on. Here it does not live that long.
    environment = {**os.environ, "JAVA_TOOL_OPTIONS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}
    with log.open("ab") as output:
        return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)


def call(*arguments: str) -> tuple[int, Any, str]:
    done = subprocess.run(
        [sys.executable, "-m", "pairbus.cli", *arguments], capture_output=True, text=True, timeout=300
    )
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def test_a_drain_by_command(java: Path, bus: Bus, tmp_path: Path) -> None:
    bus.create_entities(queues=["orders", "returns", "quotes", "invoices"], sessions=[], topics=[])
    for path in ("orders", "returns", "quotes", "invoices", "gone"):
        bus.put([Letter(path=path, id=f"{path}-{n}") for n in range(20)])
    bus.primary.faults.set("full", entity="returns")
    bus.primary.faults.set("refuse", entity="quotes")
    bus.primary.faults.set("error", entity="invoices", condition="amqp:unauthorized-access")
    code, told, errors = call("syphon", "run", "--once", *PAIR, "--state", str(tmp_path), "--json")
    assert errors == "", "not a byte on standard error"
    assert code == 1, "some wait"
    assert (told["moved"], told["waiting"], told["dead_lettered"], told["receipts"]) == (20, 60, 20, 40)
    assert told["paths"]["orders"]["waiting"] == 0
    assert [told["paths"][path]["waiting"] for path in ("returns", "quotes", "invoices")] == [20, 20, 20]
    assert told["paths"]["gone"]["dead_lettered"] == 20
    assert "maximum entity size" in told["paths"]["returns"]["trouble"]
    assert told["slowest_path"] == "orders"
    assert "unauthorized" in told["paths"]["invoices"]["trouble"]
    assert len(bus.waiting()) == bus.left() == 60
    assert Counter(bus.dead_letters().values()) == {"EntityNotFound": 20}


def receipts_of(records: Path) -> set[str]:
    import pyarrow.parquet as parquet

    assert read_receipts(closed_segments(records, "receipts")) == {}
    (table,) = records.glob("receipts-*.parquet")
    ids = parquet.read_table(table, columns=["message_id"]).column("message_id").to_pylist()
    assert len(ids) == len(set(ids))
    return set(ids)
