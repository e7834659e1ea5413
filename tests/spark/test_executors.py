"""A small cluster: its executor is a Java process of its own, which dies in the middle of a drain.

Master and worker are within the driver's Java. `test_cluster`, of the long form, and `test_hosts`, of CI,
have processes for them, and hosts that share nothing.

However fast the drain is, it is not over before that: one queue of the primary takes nothing until then.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from .bus import Bus, Letter, until
from .hosts import quick_java
from .processes import executors_below, kill_tree
from .test_command import PAIR, receipts_of

pytestmark = pytest.mark.timeout(900)

PATHS = ["orders", "invoices"]
HOME = Path(pyspark.__file__).parent
# Of each queue.
MESSAGES = 100


@pytest.fixture
def work() -> Iterator[None]:
    """An executor of a cluster like this one leaves its directory in the home of Spark."""
    yield
    shutil.rmtree(HOME / "work", ignore_errors=True)


@pytest.mark.usefixtures("java", "work")
def test_what_an_executor_was_at_when_it_died_is_done_by_another(bus: Bus, tmp_path: Path) -> None:
    bus.create_entities(queues=PATHS, sessions=[], topics=[])
    sent = {path: [Letter(path=path, id=f"{path}-{n}") for n in range(MESSAGES)] for path in PATHS}
    for letters in sent.values():
        bus.put(letters)
    bus.primary.faults.set("busy", entity="invoices")
    where = ["--master", "local-cluster[1,1,512]", "--conf", "spark.executor.memory=512m"]
    drain = [
        "syphon",
        "run",
        "--once",
        *PAIR,
        *where,
        "--patience",
        "600",
        "--state",
        str(tmp_path),
        "--json",
    ]
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "pairbus.cli", *drain],
            stdout=out,
            stderr=err,
            env={**os.environ, "SPARK_HOME": str(HOME), "JAVA_TOOL_OPTIONS": " ".join(quick_java())},
            start_new_session=True,
        )
    try:
        until(lambda: process.poll() is not None or bool(bus.ids("orders")))
        (executor,) = executors_below(process.pid)
        os.kill(executor, signal.SIGKILL)
        bus.primary.faults.clear()
        code = process.wait(timeout=600)
    finally:
        kill_tree(process)
    assert code == 0, (tmp_path / "err").read_text(encoding="utf-8")
    told = json.loads((tmp_path / "out").read_text(encoding="utf-8"))
    assert (told["waiting"], bus.left()) == (0, 0)
    for path, letters in sent.items():
        assert set(bus.ids(path)) == {letter.id for letter in letters}
    assert receipts_of(tmp_path / "records") == {letter.id for letters in sent.values() for letter in letters}
