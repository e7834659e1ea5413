"""Makes a history that fails shorter, for whoever has to understand it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

__all__ = ["kind_of", "shrink"]

P = TypeVar("P", bound=Any)


def kind_of(failures: Sequence[str]) -> str:
    """What kind of failure the first one is."""
    return failures[0].partition(":")[0] if failures else ""


def shrink(plan: P, failures_of: Callable[[P], Sequence[str]], *, parts: Sequence[str], runs: int = 200) -> P:
    """Take away from the lists `parts` of a plan what can be taken away while it fails in the same way."""
    wanted = kind_of(failures_of(plan))
    left = runs
    has_shrunk = True
    while has_shrunk and left > 0:
        has_shrunk = False
        for part in parts:
            size = max(1, len(getattr(plan, part)) // 2)
            while size and left > 0:
                begin = 0
                while begin < len(items := getattr(plan, part)) and left > 0:
                    shorter = replace(plan, **{part: items[:begin] + items[begin + size :]})
                    left -= 1
                    if kind_of(failures_of(shorter)) == wanted:
                        plan, has_shrunk = shorter, True
                    else:
                        begin += size
                size //= 2
    return plan
