"""Spark Connect: a client without Java, and a server in the Java process that the other tests have."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .bus import PRIMARY_ENV, SECONDARY_ENV, Bus, until
from .test_command import PAIR, call, receipts_of, start
from .traffic import assert_whole, letters

pytestmark = pytest.mark.timeout(900)

# A process of its own: one that has a session of Spark itself cannot have one of Spark Connect beside it.
DRAIN = """
import json, sys
from pathlib import Path
from pairbus.spark import Backlog, PumpPair, Syphon, load_receipts, open_session, verify

state, primary, secondary = sys.argv[1:]
spark = open_session()
pair = PumpPair.from_env(primary, secondary)
summary = Syphon(spark, pair, state=state).run(once=True)
verdict = verify(spark, [Backlog(pair=pair)], records=[Path(state, "records")])
receipts = load_receipts(spark, Path(state, "records")).count()
spark.stop()
print(json.dumps([summary.moved, summary.dead_lettered, receipts, verdict.delivered, len(summary.paths)]))
"""


@pytest.fixture(scope="module")
def connect(spark: Any, hold_port: Callable[[], int]) -> Iterator[str]:
    """The address of the server. It is there for whoever asks until the session ends."""
    port = hold_port()
    conf = spark.sparkContext._jsc.sc().conf()
    conf.set("spark.connect.grpc.binding.address", "127.0.0.1")
    conf.set("spark.connect.grpc.binding.port", str(port))
    service = spark._jvm.org.apache.spark.sql.connect.service.SparkConnectService
    service.start(spark.sparkContext._jsc.sc())
    yield f"sc://127.0.0.1:{port}"
    none = spark._jvm.scala.Option.empty()
    service.stop(none, none)


def test_a_drain_its_receipts_and_the_verdict(connect: str, full_bus: Bus, tmp_path: Path) -> None:
    sent = letters(210)
    full_bus.put(sent)
    done = subprocess.run(
        [sys.executable, "-c", DRAIN, str(tmp_path), PRIMARY_ENV, SECONDARY_ENV],
        env={**os.environ, "SPARK_REMOTE": connect},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [210, 0, 210, 210, 7]
    assert_whole(full_bus, sent, is_once=True)
    assert {path.name for path in (tmp_path / "records").glob(".*")} == {".compaction.lock"}


@pytest.mark.long
def test_the_stream_obeys_commands_and_leaves_nothing_behind(
    connect: str, full_bus: Bus, tmp_path: Path
) -> None:
    first, second = letters(70, prefix="a"), letters(70, prefix="b")
    full_bus.put(first)
    log, state = tmp_path / "log", ["--state", str(tmp_path)]
    process = start("syphon", "run", *PAIR, *state, "--master", connect, log=log)
    try:
        until(lambda: full_bus.left() == 0 or process.poll() is not None, within=150)
        code, told, _ = call("syphon", "pause", *PAIR, *state, "--json")
        assert (code, told["order"]) == (0, "pause"), log.read_text()
        until(lambda: full_bus.locked() == 0)
        full_bus.put(second)
        assert call("syphon", "resume", *PAIR, *state, "--json")[1]["order"] == "run"
        until(lambda: full_bus.left() == 0 or process.poll() is not None, within=150)
        assert call("syphon", "stop", *PAIR, *state, "--json")[0] == 0
        assert process.wait(100) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
    assert full_bus.locked() == 0
    assert_whole(full_bus, [*first, *second], is_once=True)
    assert receipts_of(tmp_path / "records") == {letter.id for letter in [*first, *second]}
    assert "moved 140 " in log.read_text()
    assert {path.name for path in (tmp_path / "records").glob(".*")} == {".compaction.lock"}


SOURCE = """
import json, sys
from pairbus.spark import open_session, register

spark = open_session()
register(spark)
rows = spark.range(0, 40, 1, 2).selectExpr("cast(id as string) as body")
rows.write.format("servicebus").option("connectionStringEnv", sys.argv[1]).mode("append").save("orders")
orders = spark.read.format("servicebus").option("connectionStringEnv", sys.argv[1]).load("orders")
found = sorted(int(row.body_text) for row in orders.collect())
stream = spark.readStream.format("servicebus").options(connectionStringEnv=sys.argv[1], mode="consume")
query = (
    stream.load("orders").writeStream.format("parquet")
    .options(path=f"{sys.argv[2]}/out", checkpointLocation=f"{sys.argv[2]}/checkpoint")
    .trigger(availableNow=True).start()
)
query.awaitTermination()
print(json.dumps([found, spark.read.parquet(f"{sys.argv[2]}/out").count()]))
"""


@pytest.mark.long
def test_service_bus_is_read_and_written(connect: str, full_bus: Bus, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SOURCE, PRIMARY_ENV, str(tmp_path)],
        env={**os.environ, "SPARK_REMOTE": connect},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [list(range(40)), 40]
    assert full_bus.primary.message_count("orders") == 0
