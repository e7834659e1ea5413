"""Histories of the pump, as many as `make test` has time for; `make soak` plays a hundred thousand."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from .pump_history import play_pump
from .pump_plan import draw_pump_plan
from .search import report, search

HISTORIES = 300


@pytest.mark.timeout(300)
def test_nothing_is_lost_doubled_disordered_or_stuck() -> None:
    findings = search("pump", 0, HISTORIES)
    assert not findings, report(findings[0])


def test_a_seed_tells_the_whole_history() -> None:
    """In another process, too, where hashes of text are others."""
    script = (
        "from tests.simulation.search import play\n"
        "print(','.join(play('pump', seed).digest for seed in range(6)))"
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    ]
    assert told[0] == told[1] == ",".join(play_pump(draw_pump_plan(seed)).digest for seed in range(6))
