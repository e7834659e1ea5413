"""The examples for those who run a syphon: what stands in them is run, up to what needs another machine."""

import re
import runpy
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pairbus.broker import Broker
from tests.guards.sources import ROOT
from tests.processes import killed_at_end
from tests.spark.bus import Bus, until
from tests.spark.processes import kill_tree
from tests.spark.test_local import fill

EXAMPLES = ROOT / "examples" / "operations"


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bus]:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        bus = Bus(broker)
        bus.create_entities(queues=["orders"], sessions=[], topics=[])
        monkeypatch.setenv("PRIMARY", bus.primary.connection_string)
        monkeypatch.setenv("SECONDARY", bus.secondary.connection_string)
        fill(bus, 30)
        yield bus


def start(words: list[str], state: Path) -> subprocess.Popen[bytes]:
    """Our own command in the place of theirs, and a directory of the test in the place of the state."""
    given = [str(state) if word in ("/var/lib/pairbus", "/state") else word for word in words[1:]]
    ours = ["0" if word == "9464" else word for word in given]
    return subprocess.Popen([sys.executable, "-m", "pairbus.cli", *ours], stdout=subprocess.DEVNULL)


def test_the_unit_of_systemd(bus: Bus, tmp_path: Path) -> None:
    unit = (EXAMPLES / "pairbus-syphon.service").read_text(encoding="utf-8")
    (command,) = re.findall(r"^ExecStart=(.+)$", unit, flags=re.MULTILINE)
    process = start(shlex.split(command), tmp_path)
    try:
        until(lambda: len(bus.ids("orders")) == 30)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0, "to be stopped is its usual end"
    finally:
        kill_tree(process)
    assert bus.locked() == 0


def test_the_job_of_kubernetes(bus: Bus, tmp_path: Path) -> None:
    text = (EXAMPLES / "cronjob.yaml").read_text(encoding="utf-8")
    (listed,) = re.findall(r"^ +command: .(.+).$", text, flags=re.MULTILINE)
    words = [word.strip().strip('"') for word in listed.split(",")]
    with killed_at_end(start(words, tmp_path)) as process:
        assert process.wait(timeout=120) == 0
    assert len(bus.ids("orders")) == 30


def test_the_task_of_airflow(bus: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drain = runpy.run_path(str(EXAMPLES / "airflow_drain.py"))["drain"]
    assert drain("PRIMARY", "SECONDARY", str(tmp_path))["moved"] == 30
    with pytest.raises(RuntimeError, match=r"wrong usage \(exit code 2\)"):
        drain("NO_SUCH_NAME", "SECONDARY", str(tmp_path))


def test_the_job_of_databricks(bus: Bus, tmp_path: Path) -> None:
    drain = runpy.run_path(str(EXAMPLES / "databricks_job.py"))["drain"]
    assert drain(None, str(tmp_path / "records"), str(tmp_path / "state")) == 30
