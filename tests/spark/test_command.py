"""The commands as processes of their own."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pairbus.ledger.segment import closed_segments
from tests.ledger.receipts import read_receipts

from .bus import PRIMARY_ENV, SECONDARY_ENV, Bus, Letter, until
from .processes import command_of, kill_tree, processes_below

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


@pytest.mark.long
def test_a_drain_by_command(java: Path, bus: Bus, tmp_path: Path) -> None:
    bus.create_entities(queues=["orders", "returns", "quotes", "invoices"], sessions=[], topics=[])
    for path in ("orders", "returns", "quotes", "invoices", "gone"):
        bus.put([Letter(path=path, id=f"{path}-{n}") for n in range(20)])
    bus.primary.faults.set("full", entity="returns")
    bus.primary.faults.set("refuse", entity="quotes")
    bus.primary.faults.set("error", entity="invoices", condition="amqp:unauthorized-access")
    code, told, errors = call("syphon", "run", "--once", *PAIR, "--state", str(tmp_path), "--json")
    progress = [json.loads(line) for line in errors.splitlines()]
    assert progress, "each line on standard error is JSON"
    assert progress[-1].keys() >= {"moved", "waiting", "rate", "seconds_left", "trouble", "paths"}
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


def java_below(pid: int) -> int:
    return next(
        one for one in processes_below(pid) if "org.apache.spark.deploy.SparkSubmit" in command_of(one)
    )


@pytest.mark.parametrize(
    "how",
    [
        "SIGINT",  # which Spark takes for itself
        pytest.param("SIGTERM", marks=pytest.mark.long),
        pytest.param("killed Java", marks=pytest.mark.long),
    ],
)
def test_a_drain_that_is_ended_from_outside(java: Path, bus: Bus, tmp_path: Path, how: str) -> None:
    bus.create_entities(queues=["orders"], sessions=[], topics=[])
    bus.put([Letter(path="orders", id=f"o-{n}") for n in range(2000)])
    state = tmp_path / "state [1]"
    arguments = ["--once", *PAIR, "--state", str(state), "--max-rate", "50", "--json"]
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "pairbus.cli", "syphon", "run", *arguments],
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
    try:
        until(lambda: len(bus.ids("orders")) > 20)
        if how == "killed Java":
            os.kill(java_below(process.pid), signal.SIGKILL)
        else:  # as `timeout`, systemd or a terminal does
            os.killpg(process.pid, signal.Signals[how])
        code = process.wait(timeout=120)
    finally:
        kill_tree(process)
    said = (tmp_path / "err").read_text(encoding="utf-8")
    if how == "killed Java":
        assert (code, "Spark's Java was killed by signal 9" in said.splitlines()[-1]) == (3, True), said
        assert "Traceback" not in said
        return
    told = json.loads((tmp_path / "out").read_text(encoding="utf-8"))
    assert (code, told["stopped"]) == (4, True), said
    assert told["left"] == bus.left() == 2000 - told["moved"]
    assert bus.locked() == 0


def receipts_of(records: Path) -> set[str]:
    import pyarrow.parquet as parquet

    assert read_receipts(closed_segments(records, "receipts")) == {}
    (table,) = records.glob("receipts-*.parquet")
    ids = parquet.read_table(table, columns=["message_id"]).column("message_id").to_pylist()
    assert len(ids) == len(set(ids))
    return set(ids)
