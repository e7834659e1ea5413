"""A standalone cluster on the loopback, of which one worker is killed in the middle of a drain."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pyspark
import pytest

from tests.processes import killed_at_end

from .bus import PRIMARY_ENV, SECONDARY_ENV, Bus, Letter, until
from .test_command import receipts_of, start
from .test_source_read import send

pytestmark = pytest.mark.timeout(600)

HOME = Path(pyspark.__file__).parent
LOOPBACK = "127.0.0.1"


@contextmanager
def daemon(arguments: list[str], *, log: Path, ready: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of Spark's own, from the moment when it says that it is ready."""
    environment = {
        **os.environ,
        "SPARK_HOME": str(HOME),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_IP": LOOPBACK,
        "PYSPARK_PYTHON": sys.executable,
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(HOME / "bin" / "spark-class"), *arguments], stdout=output, stderr=output, env=environment
        )
    try:
        until(lambda: re.search(ready, log.read_text()) is not None or process.poll() is not None, within=120)
        assert process.poll() is None, log.read_text()
        yield process
    finally:
        process.kill()
        process.wait()


class Cluster(NamedTuple):
    """A master by its address, and its workers, of one core each."""

    master: str
    workers: list[subprocess.Popen[bytes]]


@pytest.fixture
def cluster(
    java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hold_port: Callable[[], int]
) -> Iterator[Cluster]:
    monkeypatch.setenv("SPARK_LOCAL_IP", LOOPBACK)
    master = f"spark://{LOOPBACK}:{hold_port()}"
    with ExitStack() as stack:
        place = ["--host", LOOPBACK, "--port", master.rpartition(":")[2], "--webui-port", "0"]
        stack.enter_context(
            daemon(
                ["org.apache.spark.deploy.master.Master", *place],
                log=tmp_path / "master.log",
                ready="elected leader",
            )
        )
        workers = [
            stack.enter_context(
                daemon(
                    [
                        *["org.apache.spark.deploy.worker.Worker", "--host", LOOPBACK, "--cores", "1"],
                        *["--memory", "1g", "--webui-port", "0", "--work-dir", str(tmp_path / f"work{n}")],
                        master,
                    ],
                    log=tmp_path / f"worker{n}.log",
                    ready="Successfully registered",
                )
            )
            for n in range(2)
        ]
        yield Cluster(master, workers)


def test_a_cluster_drains_though_a_worker_is_killed(cluster: Cluster, bus: Bus, tmp_path: Path) -> None:
    bus.create_entities(queues=["orders"], sessions=["carts"], topics=[])
    letters = [Letter(path="orders", id=f"o{n:05d}") for n in range(5000)]
    letters += [Letter(path="carts", id=f"c{n:05d}", session=f"s{n % 7}") for n in range(5000)]
    bus.put(letters)
    log = tmp_path / "log"
    pair = ["--primary-env", PRIMARY_ENV, "--secondary-env", SECONDARY_ENV, "--state", str(tmp_path)]
    run = [*pair, "--master", cluster.master, "--shards", "2", "--max-rate", "1000"]
    with killed_at_end(start("syphon", "run", "--once", *run, log=log)) as process:
        until(lambda: bus.left() < 9000 or process.poll() is not None, within=200)
        assert bus.left() > 1000, log.read_text()
        cluster.workers[0].kill()
        assert process.wait(300) == 0, log.read_text()
    assert bus.left() == 0
    assert set(bus.ids("orders")) | set(bus.ids("carts")) == {letter.id for letter in letters}
    assert receipts_of(tmp_path / "records") == {letter.id for letter in letters}


SOURCE = """
import sys
from pairbus.spark import open_session, register

master, variable, checkpoint = sys.argv[1:]
spark = open_session(master=master, settings={"spark.executor.memory": "512m"})
register(spark)
namespace = {"connectionStringEnv": variable}
orders = spark.read.format("servicebus").options(**namespace).load("orders")
assert orders.count() == 6000
orders.write.format("servicebus").options(**namespace).mode("append").save("copies")
stream = spark.readStream.format("servicebus").options(**namespace, mode="consume", maxMessagesPerBatch=2000)
query = stream.load("orders").writeStream.format("noop").option("checkpointLocation", checkpoint)
query = query.trigger(availableNow=True).start()
assert query.awaitTermination(300) and query.exception() is None
spark.stop()
"""


def test_a_cluster_reads_writes_and_consumes_though_a_worker_is_killed(
    cluster: Cluster, bus: Bus, tmp_path: Path
) -> None:
    bus.create_entities(queues=["orders", "copies"], sessions=[], topics=[])
    send(bus.primary, "orders", 6000)
    command = [sys.executable, "-c", SOURCE, cluster.master, PRIMARY_ENV, str(tmp_path / "checkpoint")]
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    with killed_at_end(process):
        until(lambda: bus.ids("copies") != [] or process.poll() is not None, within=300)
        cluster.workers[0].kill()
        assert process.wait(300) == 0, log.read_text()
    assert set(bus.ids("copies")) == {f"{number}" for number in range(6000)}
    assert bus.ids("orders") == []
