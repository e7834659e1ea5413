"""Runs one of the scripts beside this file with Node and reads what it reports: one JSON line a check."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pairbus.broker import Broker

# A script takes a few seconds; it is given up before the test that waits for it is.
DEADLINE = 55.0


class Report(Mapping[str, Any]):
    """What the checks of a script have seen, by their names. A check that failed raises when asked for."""

    def __init__(self, lines: list[str], ending: str) -> None:
        self._outcomes = {outcome["check"]: outcome for outcome in map(json.loads, lines)}
        self._ending = ending

    def __getitem__(self, check: str) -> Any:
        outcome = self._outcomes.get(check)
        assert outcome is not None, f"no report of {check!r}; {self._ending}"
        assert "failure" not in outcome, outcome["failure"]
        return outcome["seen"]

    def __iter__(self) -> Iterator[str]:
        return iter(self._outcomes)

    def __len__(self) -> int:
        return len(self._outcomes)


def run_script(node: Path, script: str, *, broker: Broker) -> Report:
    """Run a script against the broker's only namespace. What it printed before it broke off is kept."""
    (namespace,) = (broker[name] for name in broker)
    environment = {
        **os.environ,
        "NODE_EXTRA_CA_CERTS": str(broker.certificate),
        "PAIRBUS_CONNECTION_STRING": namespace.connection_string,
        "PAIRBUS_POLICIES": json.dumps(namespace.policies),
    }
    command = [str(node), str(Path(__file__).parent / script)]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            output, errors = process.communicate(timeout=DEADLINE)
            ending = f"the script ended with {process.returncode}: {errors}"
        except subprocess.TimeoutExpired:
            process.kill()
            output, errors = process.communicate()
            ending = f"the script was given up after {DEADLINE:.0f} s: {errors}"
    return Report(output.splitlines(), ending)
