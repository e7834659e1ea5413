"""A task for Airflow that drains the backlog of a pair; any scheduler that runs Python can use `drain`.

    from airflow.decorators import task
    from airflow_drain import drain

    drained = task(retries=3)(drain)("PRIMARY", "SECONDARY", "/var/lib/pairbus")

A failure of the task is an exception: what cannot be reached is worth another try, wrong usage is not.
"""

import json
import subprocess
import sys
from typing import Any

MEANINGS = {
    1: "messages wait for entities that are down",
    2: "wrong usage",
    3: "a namespace cannot be reached, or another syphon has the lease",
    4: "it was stopped before its end",
}


def drain(primary_env: str, secondary_env: str, state: str) -> dict[str, Any]:
    """Drain once; the summary. RuntimeError with the meaning of the exit code."""
    words = ["syphon", "run", "--once", "--engine", "local", "--json", "--state", state]
    words += ["--primary-env", primary_env, "--secondary-env", secondary_env]
    done = subprocess.run(
        [sys.executable, "-m", "pairbus.cli", *words],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{MEANINGS.get(done.returncode, 'it failed')} (exit code {done.returncode})")
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary
