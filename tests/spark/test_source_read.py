"""`spark.read.format("servicebus")` on a real session."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from pairbus.broker.handle import NamespaceHandle

from .bus import PRIMARY_ENV, SECONDARY_ENV, Bus, Letter
from .strategies import plain_messages
from .test_source_messages import assert_plain

pytestmark = pytest.mark.timeout(600)

# A burial, and what a filter of a subscription lets through, need no more.
FEW = 5
SOME = 2500


def client_of(side: NamespaceHandle) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(side.connection_string)


def send(side: NamespaceHandle, path: str, count: int) -> None:
    with client_of(side) as client, client.get_queue_sender(path) as sender:
        for begin in range(0, count, 500):
            some = range(begin, min(count, begin + 500))
            sender.send_messages([ServiceBusMessage(f"{number}", message_id=f"{number}") for number in some])


def read(spark: Any, **options: Any) -> Any:
    return (
        spark.read.format("servicebus").option("connectionStringEnv", PRIMARY_ENV).options(**options).load()
    )


def refusal(act: Callable[[], Any]) -> str:
    with pytest.raises(PySparkException) as caught:
        act()
    return str(caught.value)


@pytest.mark.long
def test_entities_are_read_in_ranges_and_nothing_is_touched(spark: Any, full_bus: Bus) -> None:
    side = full_bus.primary
    send(side, "orders", SOME)
    send(side, "invoices", FEW)
    with client_of(side) as client:
        with client.get_topic_sender("news") as sender:
            sender.send_messages([ServiceBusMessage("x", message_id=f"n{number}") for number in range(FEW)])
        with client.get_queue_receiver("invoices") as receiver:
            (held,) = receiver.receive_messages(1, max_wait_time=30)
            receiver.dead_letter_message(held, reason="bad")
    rows = read(spark, entity="orders", columns="message_id,body_text,sequence_number")
    assert rows.columns == ["message_id", "body_text", "sequence_number"]
    assert rows.rdd.getNumPartitions() == 2
    found = rows.collect()
    assert [row.message_id for row in found] == [f"{number}" for number in range(SOME)]
    assert all(row.body_text == row.message_id for row in found)
    assert rows.where("sequence_number = 1").count() == 1
    assert rows.count() == SOME  # a filter that was pushed down would have stayed
    several = read(spark, entity="*", deadLetters="too").groupBy("entity").count().collect()
    assert {row["entity"]: row["count"] for row in several} == {
        "orders": SOME,
        "invoices": FEW - 1,
        "invoices/$DeadLetterQueue": 1,
        "news/Subscriptions/all": FEW,
    }
    few = read(spark, entity="orders,invoices", maxMessages=3, fromSequenceNumber=2)
    assert sorted((row.entity, row.sequence_number) for row in few.collect()) == [
        *(("invoices", number) for number in (2, 3, 4)),
        *(("orders", number) for number in (2, 3, 4)),
    ]
    assert full_bus.primary.message_count("orders") == SOME


@settings(max_examples=2, suppress_health_check=list(HealthCheck))
@given(arguments=st.lists(plain_messages(), min_size=20, max_size=40))
def test_spark_reads_what_the_sdk_sent(spark: Any, bus: Bus, arguments: list[dict[str, Any]]) -> None:
    messages = [ServiceBusMessage(**one) for one in arguments]
    bus.primary.create_queue("mixture")
    with client_of(bus.primary) as client, client.get_queue_sender("mixture") as sender:
        for message in messages:
            sender.send_messages(message)
    rows = read(spark, entity="mixture").orderBy("sequence_number").toArrow().to_pylist()
    bus.primary.delete_queue("mixture")
    for row, sent in zip(rows, messages, strict=True):
        assert_plain(row, sent)


def test_what_is_wrong_is_said_on_the_driver(spark: Any, bus: Bus) -> None:
    secret = bus.primary.connection_string
    plain = spark.read.format("servicebus")
    told = {
        "Say which namespace": lambda: plain.load("orders"),
        "Say what to read": lambda: plain.option("connectionStringEnv", PRIMARY_ENV).load(),
        "did you mean columns?": lambda: read(spark, entity="orders", colums="body"),
        "did you mean body?": lambda: read(spark, entity="orders", columns="bodi"),
        "is the name of an environment variable": lambda: read(
            spark, entity="orders", connectionStringEnv="no name"
        ),
        "is not taken as an option, since": lambda: read(spark, entity=secret).collect(),
        "is not taken as an option": lambda: read(spark, entity="orders", connectionString=secret),
        "and name that": lambda: read(spark, entity="orders", connectionStringEnv=secret),
        "is a whole number of 1 or more": lambda: read(spark, entity="orders", maxMessages="0"),
        "There is no entity 'nowhere'": lambda: read(spark, entity="nowhere").collect(),
        "The environment variable NO_SUCH_NAME is not set": lambda: read(
            spark, entity="orders", connectionStringEnv="NO_SUCH_NAME"
        ).collect(),
        "maxMessagesPerBatch is not for a batch read": lambda: read(
            spark, entity="orders", maxMessagesPerBatch="5"
        ).collect(),
    }
    key = secret.partition("SharedAccessKey=")[2].partition(";")[0]
    assert len(key) > 20
    for text, act in told.items():
        found = refusal(act)
        assert text in found
        assert key not in found


def test_backlog_queues_are_read_as_their_receivers_will_get_them(spark: Any, bus: Bus) -> None:
    letters = [
        Letter(
            path="orders", id="a", session="s1", ttl_ms=60_000, scheduled_ms=4_000_000_000_000, body=b"one"
        ),
        Letter(path="news", id="b", body=b"two"),
    ]
    bus.put(letters, spread=lambda index, letter: index)
    bus.put_raw(bus.backlog[2], [b"\x00\x53\x75\xa0\x05stray"])
    rows = (
        spark.read.format("servicebus")
        .option("connectionStringEnv", SECONDARY_ENV)
        .load("contoso/x-servicebus-transfer/*")
        .orderBy(F.col("path").asc_nulls_last())
        .collect()
    )
    news, orders, stray = rows
    assert (news.path, news.message_id, news.body_text, news.session_id) == ("news", "b", "two", None)
    assert (orders.path, orders.session_id, orders.time_to_live) == ("orders", "s1", 60.0)
    assert orders.scheduled.timestamp() == 4_000_000_000
    assert orders.properties == {}
    assert orders.age >= 0
    assert orders.problem is None
    assert (stray.path, stray.body_text) == (None, "stray")
    assert "x-ms-path" in stray.problem


SECRET_JOB = """
import os, sys
from pairbus.spark import open_session
spark = open_session(settings={
    "spark.eventLog.enabled": "true",
    "spark.eventLog.dir": sys.argv[1],
    "spark.ui.enabled": "true",
    "spark.ui.port": "0",
    "spark.driver.extraJavaOptions": "",
})
import urllib.request
# Known by itself: nobody has registered it.
rows = spark.read.format("servicebus").option("connectionStringEnv", "CONTOSO").load("orders")
rows.explain("extended")
print(rows.count(), "rows")
web = spark.sparkContext.uiWebUrl
for page in ("SQL/execution/?id=0", "environment/", "jobs/", "stages/", "api/v1/applications"):
    print(urllib.request.urlopen(f"{web}/{page}", timeout=60).read().decode())
spark.stop()
"""


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_secret_is_seen_nowhere(java: Path, bus: Bus, tmp_path: Path) -> None:
    bus.primary.create_queue("orders")
    send(bus.primary, "orders", FEW)
    done = subprocess.run(
        [sys.executable, "-c", SECRET_JOB, str(tmp_path)], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    assert f"{FEW} rows" in done.stdout
    secret = bus.primary.connection_string.partition("SharedAccessKey=")[2].partition(";")[0]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    for text in (done.stdout, done.stderr, *(path.read_text(errors="replace") for path in files)):
        assert secret not in text
