"""A driver that is killed in the middle of a batch: the same batch is read again, and nothing is lost."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pairbus.broker.engine.settings import QueueSettings
from tests.processes import killed_at_end

from .bus import Bus, until
from .processes import kill_tree
from .test_source_read import send
from .test_source_streams import numbers

DRIVER = """
import sys, time
from pathlib import Path
from pairbus.spark import open_session
spark = open_session(master="local[2,4]")
rows = (spark.readStream.format("servicebus")
        .options(connectionStringEnv="CONTOSO", mode="consume", columns="sequence_number")
        .options(maxMessagesPerBatch=200, timeout=300).load("orders"))
schema, held = rows.schema, Path(sys.argv[1]) / "held"
def hold(batches):
    batches = list(batches)
    held.touch()
    while (Path(sys.argv[1]) / "hold").exists():
        time.sleep(0.05)
    yield from batches
(rows.mapInArrow(hold, schema).writeStream.format("parquet")
 .options(path=sys.argv[1] + "/out", checkpointLocation=sys.argv[1] + "/checkpoint")
 .trigger(availableNow=True).start().awaitTermination())
spark.stop()
"""


@pytest.mark.timeout(600)
def test_a_driver_that_is_killed_in_a_batch_reads_it_again(
    java: Path, spark: Any, bus: Bus, tmp_path: Path
) -> None:
    bus.primary.create_queue("orders", QueueSettings(lock_duration=5.0))
    send(bus.primary, "orders", 500)
    hold = tmp_path / "hold"
    hold.touch()
    command = [sys.executable, "-c", DRIVER, str(tmp_path)]
    with killed_at_end(subprocess.Popen(command, start_new_session=True)) as driver:
        until((tmp_path / "held").exists)
        kill_tree(driver)
    assert bus.primary.message_count("orders") == 500
    hold.unlink()
    assert subprocess.run(command, timeout=500).returncode == 0
    assert numbers(spark, tmp_path) == list(range(1, 501))
    assert bus.primary.message_count("orders") == 0
