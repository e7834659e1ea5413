"""A cluster whose hosts share nothing but the network and an object store.

Applications on two hosts send through an outage. A master, two workers and a driver drain what they have
left, while one worker is killed and the other one cut off. Then a host that has seen nothing is asked.

However fast the drain is, it is not over before that: one queue of the primary takes nothing until then.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyspark
import pytest

from tests.object_places import ENVIRONMENT, azure_uri

from .bus import PRIMARY_ENV, SECONDARY_ENV, until
from .conftest import IS_LONG
from .hosts import Hosts

pytestmark = pytest.mark.timeout(1800)

HOME = Path(pyspark.__file__).parent
ROOT = Path(__file__).resolve().parents[2]
APPLICATIONS = ("app1", "app2")
WORKERS = ("worker1", "worker2")
STORE_PORT, MASTER_PORT = 10000, 7077
PAIR = ["--primary-env", PRIMARY_ENV, "--secondary-env", SECONDARY_ENV, "--count", "4"]
# Of each application, a second, and for how long a worker is cut off: for longer than a lock of the backlog.
COUNT, RATE, CUT, LOCK = (4000, 150, 30.0, 15) if IS_LONG else (200, 40, 6.0, 5)
# Of each application for the queue that takes nothing at first.
HELD = 10
START = 240.0
MAKE_CONTAINER = """
import sys
from tests.object_places import make_azure_container
make_azure_container(sys.argv[1], "records")
"""
ENTITIES = """
[namespaces.contoso.queues.orders]
[namespaces.contoso.queues.invoices]
[namespaces.contoso-dr.queues."contoso/x-pairbus-syphon"]
requires_session = true
lock_duration = 60
""" + "".join(
    f'[namespaces.contoso-dr.queues."contoso/x-servicebus-transfer/{index}"]\nlock_duration = {LOCK}\n'
    f"max_delivery_count = 1000\n"
    for index in range(4)
)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    names = ("store", "bus", "master", "driver", *WORKERS, *APPLICATIONS, "operator", "auditor")
    with Hosts(tmp_path, names).laid() as hosts:
        yield hosts


class Cluster:
    """What runs on the hosts."""

    def __init__(self, hosts: Hosts, directory: Path) -> None:
        self._hosts = hosts
        self._directory = directory
        self._store = f"{hosts.address('store')}:{STORE_PORT}"
        self._uri = azure_uri(self._store, "records")
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        self._environment = {**ENVIRONMENT, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}

    # -- programs

    def _begin(self, host: str, *command: str) -> subprocess.Popen[bytes]:
        return self._hosts.start(host, *command, environment=self._environment)

    def _python(self, host: str, *arguments: str) -> subprocess.Popen[bytes]:
        return self._begin(host, sys.executable, *arguments)

    def _command(self, host: str, *arguments: str) -> subprocess.Popen[bytes]:
        return self._python(host, "-m", "pairbus.cli", *arguments)

    def _await(self, host: str, process: subprocess.Popen[bytes], ready: str) -> None:
        until(lambda: ready in self._hosts.log_of(host) or process.poll() is not None, within=START)
        assert process.poll() is None, self._hosts.log_of(host)

    def _await_end(self, host: str, process: subprocess.Popen[bytes]) -> None:
        assert process.wait(START) == 0, self._hosts.log_of(host)

    # -- what the test does

    def start(self, azurite: Sequence[str]) -> None:
        """Bus and store, then a cluster, and meanwhile what applications leave in the backlog."""
        place = ("--blobHost", self._hosts.address("store"), "--blobPort", str(STORE_PORT))
        store = self._begin("store", *azurite, *place)
        self._start_bus()
        self._await("store", store, "successfully listens")
        self._await_end("auditor", self._python("auditor", "-c", MAKE_CONTAINER, self._store))
        state = f"{self._hosts.disk}/state"
        asked = ("-m", "tests.spark.fleet_application", state, self._uri, str(COUNT), str(HELD))
        sending = {host: self._python(host, *asked, host) for host in APPLICATIONS}
        self._start_spark()
        for host, process in sending.items():
            self._await_end(host, process)

    def _start_bus(self) -> None:
        entities = self._directory / "entities.toml"
        entities.write_text(ENTITIES)
        place = ["--host", self._hosts.address("bus"), "--entities", str(entities), "--limits", "relaxed"]
        names = ["--namespace", "contoso=5672", "--namespace", "contoso-dr=5673"]
        process = self._command("bus", "broker", *place, *names, "--json", "--log-level", "error")
        self._await("bus", process, "control")
        until(lambda: self._hosts.log_of("bus").rstrip().endswith("\n}"), within=START)
        told = json.loads(self._hosts.log_of("bus"))
        for name, variable in (("contoso", PRIMARY_ENV), ("contoso-dr", SECONDARY_ENV)):
            self._environment[variable] = told[name]["connection_string"]
        ready = self._directory / "ready.json"
        ready.write_text(json.dumps(told))
        self._environment["PAIRBUS_READY_FILE"] = str(ready)

    def _start_spark(self) -> None:
        self._environment |= {"SPARK_HOME": str(HOME), "SPARK_DAEMON_MEMORY": "256m"}
        place = ["--host", self._hosts.address("master"), "--port", str(MASTER_PORT), "--webui-port", "0"]
        self._await("master", self._spark("master", "master.Master", *place), "elected leader")
        begun = {host: self._start_worker(host) for host in WORKERS}
        for host, process in begun.items():
            self._await(host, process, "Successfully registered")

    def _start_worker(self, host: str) -> subprocess.Popen[bytes]:
        own = ["--host", self._hosts.address(host), "--work-dir", f"{self._hosts.disk}/work"]
        size = ["--cores", "1", "--memory", "1g", "--webui-port", "0"]
        return self._spark(host, "worker.Worker", *own, *size, self._master)

    def _spark(self, host: str, what: str, *arguments: str) -> subprocess.Popen[bytes]:
        program = (str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{what}")
        return self._begin(host, *program, *arguments)

    @property
    def _master(self) -> str:
        return f"spark://{self._hosts.address('master')}:{MASTER_PORT}"

    def _operate(self, *arguments: str) -> str:
        """What a command says."""
        before = len(self._hosts.log_of("operator"))
        self._await_end("operator", self._command("operator", *arguments))
        return self._hosts.log_of("operator")[before:]

    def hold(self) -> None:
        """Have one of the queues take nothing, so that no drain can be whole."""
        self._operate("fault", "set", "contoso", "busy", "--entity", "invoices")

    def let_go(self) -> None:
        self._operate("fault", "clear", "contoso")

    def drain(self) -> subprocess.Popen[bytes]:
        where = ["--master", self._master, "--driver-host", self._hosts.address("driver")]
        pace = ["--shards", "2", "--max-rate", str(RATE), "--patience", str(START)]
        records = ["--records", self._uri, "--state", f"{self._hosts.disk}/state"]
        return self._command("driver", "syphon", "run", "--once", *PAIR, *where, *pace, *records, "--json")

    def moved(self) -> int:
        """How many messages the bus has taken for the queue that is open."""
        rows = json.loads(self._operate("counters", "contoso", "--json"))["contoso"]
        return sum(row["count"] for row in rows if (row["entity"], row["kind"]) == ("orders", "send"))

    def verify(self) -> tuple[int, dict[str, Any]]:
        """What a host says that has seen nothing."""
        asked = ["verify", *PAIR, "--records", self._uri, "--state", f"{self._hosts.disk}/state", "--json"]
        code = self._command("auditor", *asked).wait(2 * START)
        told = self._hosts.log_of("auditor")
        return code, json.loads(told[told.index("{\n") :])


def test_hosts_that_share_only_the_store_drain_it_whole_though_one_dies_and_one_is_cut_off(
    java: Path, azurite_command: list[str], hosts: Hosts, tmp_path: Path
) -> None:
    cluster = Cluster(hosts, tmp_path)
    cluster.start(azurite_command)
    cluster.hold()
    driver = cluster.drain()
    until(lambda: driver.poll() is not None or cluster.moved() > RATE, within=START)
    hosts.kill(WORKERS[0])
    with hosts.cut(WORKERS[1]):
        time.sleep(CUT)  # the fault itself, and not something that is waited for
    assert driver.poll() is None, hosts.log_of("driver")
    cluster.let_go()
    assert driver.wait(2 * START) == 0, hosts.log_of("driver")
    code, verdict = cluster.verify()
    sent = 2 * (COUNT + HELD)
    assert (code, verdict["gaps"], verdict["lost"]) == (0, [], 0), verdict
    assert (verdict["redirected"], verdict["delivered"], verdict["unexpected"]) == (sent, sent, 0)
    assert verdict["is_clean"]
