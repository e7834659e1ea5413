"""`df.write.format("servicebus")` on a real session, judged by the official SDK."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import functions as F

from pairbus.broker.engine.settings import QueueSettings

from .bus import PRIMARY_ENV, SECONDARY_ENV, Bus
from .test_source_read import client_of, refusal

pytestmark = pytest.mark.timeout(600)

MANY = 12_000


def write(rows: Any, **options: Any) -> None:
    chosen = {"connectionStringEnv": PRIMARY_ENV, **options}
    rows.write.format("servicebus").options(**chosen).mode("append").save()


def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The first attempt fails when its rows have gone on."""
    yield from batches
    context = TaskContext.get()
    assert context is not None
    if context.attemptNumber() == 0:
        raise RuntimeError("the first attempt fails")


def test_rows_go_where_they_say_with_all_that_they_have(spark: Any, full_bus: Bus) -> None:
    rows = spark.range(0, 90, 1, 2).select(
        F.when(F.col("id") % 3 == 0, "orders")
        .when(F.col("id") % 3 == 1, "carts")
        .otherwise("news")
        .alias("entity"),
        F.concat(F.lit("body "), F.col("id")).alias("body"),
        F.when(F.col("id") % 3 == 1, F.concat(F.lit("s"), F.col("id") % 2)).alias("session_id"),
        F.struct(F.col("id").alias("number"), F.lit(1.5).alias("price")).alias("properties"),
        F.lit(3600).alias("time_to_live"),
        F.when(F.col("id") == 0, F.lit("2100-01-01 00:00:00").cast("timestamp")).alias("scheduled"),
    )
    write(rows, jobId="load")
    with client_of(full_bus.primary) as client:
        with client.get_queue_receiver("orders") as receiver:
            orders = receiver.peek_messages(100, sequence_number=1)
        with client.get_subscription_receiver("news", "all") as receiver:
            news = receiver.peek_messages(100, sequence_number=1)
        with client.get_queue_receiver("carts", session_id="s0") as receiver:
            carts = receiver.peek_messages(100, sequence_number=1)
    assert sorted(int(str(one).split()[1]) for one in orders) == list(range(0, 90, 3))
    assert sorted(int(str(one).split()[1]) for one in news) == list(range(2, 90, 3))
    numbers = [int(str(one).split()[1]) for one in carts]
    assert sorted(numbers) == [number for number in range(1, 90, 3) if number % 2 == 0]
    for half in (range(45), range(45, 90)):  # the order of each partition is kept in a session
        assert [number for number in numbers if number in half] == sorted(set(numbers) & set(half))
    (first,) = [one for one in orders if str(one) == "body 0"]
    assert first.scheduled_enqueue_time_utc is not None
    assert first.scheduled_enqueue_time_utc.year == 2100
    assert first.message_id == "load-0-0"
    assert first.application_properties == {b"number": 0, b"price": 1.5}
    assert first.time_to_live is not None
    assert first.time_to_live.total_seconds() == 3600


def test_a_task_that_fails_loses_nothing_and_repeats_its_ids(spark: Any, bus: Bus) -> None:
    bus.primary.create_queue("orders", QueueSettings(requires_duplicate_detection=True))
    rows = (
        spark.range(0, MANY, 1, 1)
        .selectExpr("cast(id as string) as body")
        .mapInArrow(fail_once, "body string")
    )
    write(rows, entity="orders")
    bodies = [message.body_bytes[5:].decode() for message in bus.found("orders")]
    assert sorted(map(int, bodies)) == list(range(MANY))


def test_rows_that_nobody_takes_go_to_the_error_table_or_fail(spark: Any, bus: Bus, tmp_path: Path) -> None:
    bus.primary.create_queue("orders")
    rows = spark.range(0, 10, 1, 2).selectExpr(
        "case when id % 5 = 3 then repeat('x', 2000000) else 'small' end as body",
        "cast(id as string) as message_id",
    )
    assert "10 rows" not in (told := refusal(lambda: write(rows, entity="orders", jobId="one")))
    assert "1 rows cannot be sent" in told
    assert "errorTable" in told
    table = tmp_path / "refused"
    write(rows, entity="orders", errorTable=str(table))
    found = spark.read.parquet(str(table)).select("message_id", "error").collect()
    assert sorted(row.message_id for row in found) == ["3", "8"]
    assert all("message-size-exceeded" in row.error for row in found)
    assert {message.message_id for message in bus.found("orders")} == {*"01245679"}


def test_what_cannot_be_written_is_said_before_any_row(spark: Any, bus: Bus) -> None:
    rows = spark.range(1).selectExpr("'x' as body", "id")
    told = {
        "There is no place in a message for the column 'id'": (rows, {"entity": "orders"}),
        "A write needs a column `body`": (rows.select(F.col("id").alias("priority")), {"entity": "orders"}),
        "has to be string": (rows.selectExpr("body", "id as subject"), {"entity": "orders"}),
        "Say where to": (rows.select("body"), {}),
        "is not for a write": (rows.select("body"), {"entity": "orders", "maxMessages": "1"}),
    }
    for text, (wrong, options) in told.items():
        assert text.replace("has to be", "must be") in refusal(lambda w=wrong, o=options: write(w, **o))  # type: ignore[misc]


def test_a_pair_fails_over_like_the_client(spark: Any, bus: Bus) -> None:
    bus.primary.create_queue("orders")
    bus.primary.faults.set("refuse")
    rows = spark.range(0, 50, 1, 1).selectExpr("cast(id as string) as body", "'s' as session_id")
    write(rows, entity="orders", secondary=SECONDARY_ENV, failoverInterval="0.5", timeout=300)
    found = (
        spark.read.format("servicebus")
        .option("connectionStringEnv", SECONDARY_ENV)
        .load("contoso/x-servicebus-transfer/*")
        .orderBy("entity", "sequence_number")
        .collect()
    )
    assert [row.body_text for row in found] == [str(number) for number in range(50)]
    assert {(row.path, row.session_id) for row in found} == {("orders", "s")}
