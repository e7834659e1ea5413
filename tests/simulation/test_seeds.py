"""A history depends on its seed alone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from .search import WORLDS, play


@pytest.mark.parametrize("world", WORLDS)
def test_a_seed_tells_the_whole_history(world: str) -> None:
    """In another process, too, where hashes of text are others."""
    script = (
        "from tests.simulation.search import play\n"
        f"print(','.join(play({world!r}, seed).digest for seed in range(2)))"
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
    assert told[0] == told[1] == ",".join(play(world, seed).digest for seed in range(2))
