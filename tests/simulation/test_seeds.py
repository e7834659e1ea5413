"""A history depends on its seed alone."""

import json
import os
import subprocess
import sys

import pytest

from tests.waiting import PATIENCE

from .search import WORLDS, play

SCRIPT = """
import json
from tests.simulation.search import WORLDS, play
print(json.dumps({world: play(world, 0).digest for world in WORLDS}))
"""


@pytest.fixture(scope="module")
def told_elsewhere() -> dict[str, str]:
    """The histories of another process, where hashes of text are others."""
    hashes = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONHASHSEED": hashes},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=True,
    )
    told: dict[str, str] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize("world", WORLDS)
def test_a_seed_tells_the_whole_history(world: str, told_elsewhere: dict[str, str]) -> None:
    assert told_elsewhere[world] == play(world, 0).digest
