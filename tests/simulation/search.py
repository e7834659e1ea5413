"""Plays many histories, on several processes, and reports those that fail."""

import gc
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from .client_history import play_client
from .client_plan import draw_client_plan, draw_convoy_plan, draw_order_plan
from .fleet_history import draw_fleet_plan, play_fleet
from .pump_history import play_pump
from .pump_plan import draw_pump_plan
from .shrinker import shrink
from .spool_history import draw_spool_plan, play_spool

__all__ = ["WORLDS", "Finding", "World", "find", "report", "search"]
# So many histories leave some ten megabytes.
_COLLECTED_EVERY = 10


class History(Protocol):
    """What came of a plan."""

    plan: Any
    failures: list[str]
    trace: list[str]

    @property
    def digest(self) -> str: ...


@dataclass(frozen=True, slots=True)
class World:
    """A kind of history: how it is drawn and played, and which parts of its plan can be taken away."""

    draw: Callable[[int], Any]
    play: Callable[[Any], History]
    parts: tuple[str, ...]


WORLDS = {
    "pump": World(draw_pump_plan, play_pump, ("crashes", "faults", "messages")),
    "client": World(draw_client_plan, play_client, ("crashes", "faults", "deeds", "calls")),
    "convoy": World(draw_convoy_plan, play_client, ("crashes", "faults", "deeds", "calls")),
    "order": World(draw_order_plan, play_client, ("crashes", "faults", "calls")),
    "fleet": World(draw_fleet_plan, play_fleet, ("mishaps", "faults")),
    "spool": World(draw_spool_plan, play_spool, ("crashes", "faults", "calls")),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """A history that failed."""

    world: str
    seed: int
    failures: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.world}, seed {self.seed}: {self.failures[0]}"


def play(world: str, seed: int) -> History:
    """Play the history of a seed."""
    return WORLDS[world].play(WORLDS[world].draw(seed))


def find(world: str, seeds: Iterable[int]) -> Iterator[Finding]:
    """The histories of these seeds that fail."""
    logging.disable(logging.CRITICAL)  # what the code says of faults is no news here
    # Between histories: within one, garbage is looked for a hundred times, which takes a tenth of the time.
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        for played, seed in enumerate(seeds, start=1):
            failures = play(world, seed).failures
            if played % _COLLECTED_EVERY == 0:
                gc.collect()
            if failures:
                yield Finding(world, seed, tuple(failures))
    finally:
        if was_collecting:
            gc.enable()
        logging.disable(logging.NOTSET)


def _find_all(world: str, begin: int, end: int) -> list[Finding]:
    return list(find(world, range(begin, end)))


def search(world: str, first: int, count: int, *, processes: int = 2, chunk: int = 10) -> list[Finding]:
    """Play `count` histories from the seed `first` on, side by side."""
    begins = range(first, first + count, chunk)
    if processes <= 1:
        return _find_all(world, first, first + count)
    with ProcessPoolExecutor(min(processes, os.cpu_count() or 1)) as pool:
        jobs = [pool.submit(_find_all, world, at, min(at + chunk, first + count)) for at in begins]
        return [finding for job in jobs for finding in job.result()]


def report(finding: Finding, *, runs: int = 200, lines: int = 60) -> str:
    """A failure for people: how to repeat it, and the shortest history that shows it."""
    world = WORLDS[finding.world]
    logging.disable(logging.CRITICAL)
    try:
        drawn = world.draw(finding.seed)
        plan = shrink(drawn, lambda plan: world.play(plan).failures, parts=world.parts, runs=runs)
        history = world.play(plan)
    finally:
        logging.disable(logging.NOTSET)
    trace = history.trace
    if len(trace) > lines:
        trace = [*trace[: lines // 2], f"… {len(trace) - lines} more …", *trace[-lines // 2 :]]
    return "\n".join(
        [
            str(finding),
            f"again: python -m tests.simulation --world {finding.world} --seed {finding.seed} --histories 1",
            "shortened:",
            *(f"  {line}" for line in plan.lines()),
            "which goes so:",
            *(f"  {line}" for line in trace),
            *(f"  => {failure}" for failure in history.failures[:10]),
        ]
    )
