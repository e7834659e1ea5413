"""A standalone cluster on the loopback, of which one worker is killed in the middle of a drain."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

from tests.processes import killed_at_end

from .bus import PRIMARY_ENV, SECONDARY_ENV, Bus, Letter, until
from .test_command import receipts_of, start

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


def test_a_cluster_drains_though_a_worker_is_killed(
    java: Path, bus: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hold_port: Callable[[], int]
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", LOOPBACK)
    bus.create_entities(queues=["orders"], sessions=["carts"], topics=[])
    letters = [Letter(path="orders", id=f"o{n:05d}") for n in range(5000)]
    letters += [Letter(path="carts", id=f"c{n:05d}", session=f"s{n % 7}") for n in range(5000)]
    bus.put(letters)
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
        log = tmp_path / "log"
        pair = ["--primary-env", PRIMARY_ENV, "--secondary-env", SECONDARY_ENV, "--state", str(tmp_path)]
        run = ["syphon", "run", "--once", *pair, "--master", master, "--shards", "2", "--max-rate", "1000"]
        with killed_at_end(start(*run, log=log)) as process:
            until(lambda: bus.left() < 9000 or process.poll() is not None, within=200)
            assert bus.left() > 1000, log.read_text()
            workers[0].kill()
            assert process.wait(300) == 0, log.read_text()
    assert bus.left() == 0
    assert set(bus.ids("orders")) | set(bus.ids("carts")) == {letter.id for letter in letters}
    assert receipts_of(tmp_path / "records") == {letter.id for letter in letters}
