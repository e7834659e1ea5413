"""The commands as processes of their own: a drain, and a driver that is killed and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pairbus.ledger import closed_segments
from pairbus.ledger.receipts import read_receipts

from .bus import PRIMARY_ENV, SECONDARY_ENV, Bus, Letter, until

pytestmark = pytest.mark.timeout(400)

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
    bus.create_entities(queues=["orders", "returns"], sessions=[], topics=[])
    bus.put([Letter(path="orders", id=f"o{n}") for n in range(50)])
    bus.put([Letter(path="returns", id=f"r{n}") for n in range(20)])
    bus.primary.faults.set("full", entity="returns")
    code, told, errors = call("syphon", "run", "--once", *PAIR, "--state", str(tmp_path), "--json")
    assert errors == "", "not a byte on standard error"
    assert code == 1, "some wait"
    assert (told["moved"], told["waiting"], told["receipts"]) == (50, 20, 50)
    assert told["paths"]["returns"]["waiting"] == 20
    assert told["slowest_path"] == "orders"
    assert bus.left() == 20


def test_a_killed_driver_is_followed_by_one_that_goes_on_and_obeys(
    java: Path, bus: Bus, tmp_path: Path
) -> None:
    bus.create_entities(queues=["orders"], sessions=["carts"], topics=[])
    state = ["--state", str(tmp_path)]
    run = ["syphon", "run", *PAIR, *state, "--max-rate", "250", "--shards", "2"]
    letters = [Letter(path="orders", id=f"o{n:04d}") for n in range(1000)]
    letters += [Letter(path="carts", id=f"c{n:04d}", session=f"s{n % 5}") for n in range(1000)]
    bus.put(letters)
    log = tmp_path / "log"
    first = start(*run, log=log)
    until(lambda: bus.left() < 1800 or first.poll() is not None, within=150)
    first.kill()
    first.wait()
    left = bus.left()
    assert 0 < left < 2000, log.read_text()
    second = start(*run, log=log)
    try:
        until(lambda: bus.left() < left or second.poll() is not None, within=150)
        code, told, _ = call("syphon", "pause", *PAIR, *state, "--json")
        assert (code, told["order"]) == (0, "pause"), log.read_text()
        until(lambda: bus.locked() == 0)
        assert bus.left() > 0
        assert call("syphon", "resume", *PAIR, *state, "--json")[1]["order"] == "run"
        until(lambda: bus.left() == 0, within=150)
        assert call("syphon", "stop", *PAIR, *state, "--json")[0] == 0
        assert second.wait(60) == 0, log.read_text()
    finally:
        second.send_signal(signal.SIGKILL)
    assert set(bus.ids("orders")) | set(bus.ids("carts")) == {letter.id for letter in letters}
    by_session: dict[str, list[str]] = {}
    for message in bus.found("carts"):
        ids = by_session.setdefault(str(message.session_id), [])
        if message.message_id not in ids:
            ids.append(str(message.message_id))
    assert all(ids == sorted(ids) for ids in by_session.values())
    assert closed_segments(tmp_path / "records", "receipts") == []
    assert call("syphon", "stop", *PAIR, *state)[0] == 3, "none runs any more"
    assert receipts_of(tmp_path / "records") == {letter.id for letter in letters}


def receipts_of(records: Path) -> set[str]:
    import pyarrow.parquet as parquet

    assert read_receipts(closed_segments(records, "receipts")) == {}
    (table,) = records.glob("receipts-*.parquet")
    ids = parquet.read_table(table, columns=["message_id"]).column("message_id").to_pylist()
    assert len(ids) == len(set(ids))
    return set(ids)
