"""Mistakes that somebody could make, by name. The simulation must find each of them within a bounded search.

A mutant replaces functions of the real code for as long as it lives. A checker that no mutant passes by is
worth something; one that has never been shown a mistake is not. They stand in `pump_mutants` and
`client_mutants`, which put them into the list.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from .search import Finding, find

__all__ = ["MUTANTS", "Mutant", "catch", "mutant"]

Patches = Callable[[], Iterator[Any]]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mistake, and where it is made."""

    name: str
    world: str
    patches: Patches

    @contextmanager
    def alive(self) -> Iterator[None]:
        """Make the mistake."""
        with ExitStack() as stack:
            for patch in self.patches():
                stack.enter_context(patch)
            yield


MUTANTS: dict[str, Mutant] = {}


def mutant(name: str, *, world: str = "pump") -> Callable[[Patches], Patches]:
    """Put a mistake into the list."""

    def add(patches: Patches) -> Patches:
        MUTANTS[name] = Mutant(name, world, patches)
        return patches

    return add


def catch(name: str, *, first: int = 0, histories: int = 1000) -> Finding | None:
    """The first history that shows a mutant."""
    chosen = MUTANTS[name]
    with chosen.alive():
        return next(find(chosen.world, range(first, first + histories)), None)
