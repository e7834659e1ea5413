"""How often brokers are killed, and by which dice."""

import os
import random

import pytest

from tests.conftest import SECTIONS
from tests.hurry import hurried_loops as pytest_asyncio_loop_factories  # noqa: F401 - a hook


@pytest.fixture(scope="session")
def seed(pytestconfig: pytest.Config) -> int:
    """A new one each time; PAIRBUS_CRASH_SEED repeats one."""
    seed = int(os.environ.get("PAIRBUS_CRASH_SEED") or random.SystemRandom().randrange(1 << 32))
    said = f"killed at random moments; PAIRBUS_CRASH_SEED={seed} chooses the same ones"
    pytestconfig.stash[SECTIONS]["crash tests"] = [said]
    return seed


@pytest.fixture(scope="session")
def kills() -> int:
    """How many times; the long form asks for more."""
    return int(os.environ.get("PAIRBUS_CRASH_KILLS") or 3)
