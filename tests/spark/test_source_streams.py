"""`readStream` and `writeStream` of `servicebus`: batches that can be read again, and what removes them."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext

from pairbus.broker.engine.settings import QueueSettings

from .bus import PRIMARY_ENV, Bus
from .test_source_read import refusal, send

pytestmark = pytest.mark.timeout(600)

BATCH = 400


def stream(spark: Any, **options: Any) -> Any:
    chosen = {
        "connectionStringEnv": PRIMARY_ENV,
        "columns": "entity,sequence_number,body,message_id",
        **options,
    }
    return spark.readStream.format("servicebus").options(**chosen).load()


def run(rows: Any, directory: Path) -> list[dict[str, Any]]:
    """All that is there now, into Parquet; what Spark tells of each batch."""
    query = (
        rows.writeStream.format("parquet")
        .option("path", str(directory / "out"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [json.loads(one.json) for one in query.recentProgress if one.numInputRows]


def numbers(spark: Any, directory: Path) -> list[int]:
    return sorted(row.sequence_number for row in spark.read.parquet(str(directory / "out")).collect())


def die_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The first worker of the first batch is killed in the middle."""
    yield from batches
    context = TaskContext.get()
    assert context is not None
    if context.attemptNumber() == 0 and context.getLocalProperty("streaming.sql.batchId") == "0":
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_stream_reads_each_message_once_in_batches_and_removes_none(
    spark: Any, bus: Bus, tmp_path: Path
) -> None:
    bus.primary.create_queue("orders")
    send(bus.primary, "orders", 2 * BATCH + 100)
    told = run(stream(spark, entity="orders", maxMessagesPerBatch=BATCH), tmp_path)
    assert [one["numInputRows"] for one in told] == [BATCH, BATCH, 100]
    send(bus.primary, "orders", 10)
    run(stream(spark, entity="orders", maxMessagesPerBatch=BATCH), tmp_path)
    assert numbers(spark, tmp_path) == list(range(1, 2 * BATCH + 111))
    assert bus.primary.message_count("orders") == 2 * BATCH + 110
    # Created again, with numbers that were read.
    bus.primary.delete_queue("orders")
    bus.primary.create_queue("orders")
    send(bus.primary, "orders", 5)
    assert "was created again" in refusal(lambda: run(stream(spark, entity="orders"), tmp_path))


@pytest.mark.long
def test_a_worker_that_is_killed_loses_nothing_and_finished_batches_are_removed(
    spark: Any, bus: Bus, tmp_path: Path
) -> None:
    for name in ("orders", "invoices"):
        bus.primary.create_queue(name)
        send(bus.primary, name, BATCH)
    rows = stream(spark, entity="orders,invoices", mode="consume", maxMessagesPerBatch=BATCH, timeout=300)
    schema = rows.schema
    run(rows.mapInArrow(die_once, schema), tmp_path)
    found = spark.read.parquet(str(tmp_path / "out")).groupBy("entity").count().collect()
    assert {row["entity"]: row["count"] for row in found} == {"orders": BATCH, "invoices": BATCH}
    assert numbers(spark, tmp_path) == sorted([*range(1, BATCH + 1)] * 2)
    assert bus.primary.message_count("orders") == bus.primary.message_count("invoices") == 0


def test_entities_with_sessions_are_not_consumed(spark: Any, full_bus: Bus, tmp_path: Path) -> None:
    told = refusal(lambda: run(stream(spark, entity="carts", mode="consume"), tmp_path))
    assert "entities with sessions are read by mode=peek" in told


@pytest.mark.long
def test_a_batch_that_is_written_again_has_the_same_ids(spark: Any, bus: Bus, tmp_path: Path) -> None:
    bus.primary.create_queue("orders")
    bus.primary.create_queue("copies", QueueSettings(requires_duplicate_detection=True))
    send(bus.primary, "orders", 50)

    def copy() -> None:
        query = (
            stream(spark, entity="orders", columns="body")
            .writeStream.format("servicebus")
            .option("connectionStringEnv", PRIMARY_ENV)
            .option("entity", "copies")
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    copy()
    (tmp_path / "commits" / "0").unlink()  # as if the driver had died before it knew
    (tmp_path / "commits" / ".0.crc").unlink()
    copy()
    assert bus.primary.message_count("copies") == 50
