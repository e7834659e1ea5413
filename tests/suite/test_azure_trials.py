"""`make test-azure`, tried where it can be: on embedded namespaces, which must be what it says of them."""

import os
import subprocess
import sys

from pairbus.broker import Broker
from tests.guards.sources import ROOT

SCRIPT = ROOT / "scripts" / "try_azure.py"
DEADLINE = 110.0


def run_trials(**variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if "AZURE" not in name}
    return subprocess.run(
        [sys.executable, str(SCRIPT)],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )


def test_embedded_namespaces_are_as_the_table_says() -> None:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        done = run_trials(
            PAIRBUS_AZURE_PRIMARY=broker["contoso"].connection_string,
            PAIRBUS_AZURE_SECONDARY=broker["contoso-dr"].connection_string,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        for name in broker:
            left = broker._run(broker._hosts[name], lambda engine, now: engine.list_queues())
            assert left == [], "it removes what it made"
    assert done.stdout.count(" same") == 14
    assert done.stdout.count("not tried: PAIRBUS_AZURE_SLOW=1") == 2


def test_without_the_variables_it_says_what_it_wants() -> None:
    done = run_trials(PAIRBUS_AZURE_PRIMARY="x")
    assert done.returncode == 2
    assert "set PAIRBUS_AZURE_SECONDARY to the connection string" in done.stderr
