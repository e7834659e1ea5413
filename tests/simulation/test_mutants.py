"""Each mistake that is known by name is found by looking for it, not by a seed that is known to show it."""

import os

import pytest

from . import client_mutants, pump_mutants  # noqa: F401 - they put theirs into the list
from .mutants import MUTANTS, catch

# Found within a second; `make soak` asks for all of them.
FEW = (
    "complete before send",
    "complete before the receipt",
    "take silence for a yes",
    "forget the message id",
    "drop on an empty rotation",
    "never ping",
)
CHOSEN = tuple(MUTANTS) if os.environ.get("PAIRBUS_SIMULATION_MUTANTS") == "all" else FEW


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", CHOSEN)
def test_a_mutant_is_caught(name: str) -> None:
    assert catch(name) is not None


@pytest.mark.parametrize("name", MUTANTS)
def test_what_a_mutant_replaces_is_there(name: str) -> None:
    """Else only the long form would tell that something has another name now."""
    with MUTANTS[name].alive():
        pass


def test_there_are_enough_of_them() -> None:
    assert len(MUTANTS) >= 20
