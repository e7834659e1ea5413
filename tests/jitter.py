"""Makes time unkind: with `--jitter SEED` whatever may come late does, so that no test passes by luck.

1. Half of the tests, as the dice have it, run with threads that are late: in all threads but the main one a
   few milliseconds pass now and then at a call from code of Pairbus, and at the end of one of its functions.
   What a thread does after the state that a test waits for then comes after the test has gone on.
2. For the others it is the test that is late: the same happens to the main thread, in code of the tests. What
   a test expects to find half-way may then be over.
3. Every event loop stands still for a moment now and then, and so does whoever has made a file durable.
4. A place is late when it is passed for the first times, if at all, and a thread works at least as long as it
   has been late before it is late again: what takes a second takes two, so that deadlines hold. To watch
   costs processor time as well: for what has been passed often enough no dice are thrown.
5. The dice are thrown by seed, test, place and how often the test has passed it: a failure can be repeated,
   as far as threads can.

Nothing of this is in a process that a test starts.
"""

import asyncio
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from hashlib import blake2b
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from .hurry import HELD_UP

__all__ = ["Jitter"]

SOURCES = str(Path(__file__).parents[1] / "src" / "pairbus") + os.sep
TESTS = str(Path(__file__).parent) + os.sep
# Waiting is what a test does in any case, and what is here must not wait for itself.
EXCEPTED = {__file__, str(Path(__file__).with_name("waiting.py"))}
# In seconds: how late one call is at most, a loop, and how long a loop goes on between two such moments.
LATE = 0.015
STALL = (0.02, 0.05)
PEACE = (0.05, 0.6)
# The first pass of a place is late with these odds; those after it ever less, and after so many none.
ODDS = 0.5
PASSES = 30
DURABLE = ("fsync", "fdatasync", "replace", "rename", "link")
# By event: how often each place of a piece of code was passed; None for code that is not near.
Places = dict[str, dict[CodeType, dict[int, int] | None]]


def _no_places() -> Places:
    return {"call": {}, "c_call": {}, "return": {}}


class Jitter:
    """The dice, and what they are thrown for."""

    def __init__(
        self, seed: int, *, sources: str = SOURCES, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        self._seed = seed
        self._sources = sources
        self._sleep = sleep
        self._test = ""
        self._home = sources
        self._passed: Counter[object] = Counter()
        self._near = _no_places()
        self._thread = threading.local()

    def begin(self, test: str) -> None:
        """A test begins: who is late in it."""
        self._test = test
        self._passed = Counter()
        self._near = _no_places()
        is_late_itself = self._throw("who is late") < 0.5
        self._home = TESTS if is_late_itself else self._sources
        sys.setprofile(self.watch if is_late_itself else None)
        threading.setprofile(None if is_late_itself else self.watch)

    def end(self) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _throw(self, what: object) -> float:
        """A number below 1, the same for the same seed, test and question. Not a checksum: with those, who is
        late in one test would tell who is in the next.
        """
        asked = f"{self._seed} {self._test} {what}".encode()
        return int.from_bytes(blake2b(asked, digest_size=4).digest(), "big") / (1 << 32)

    def _between(self, span: tuple[float, float], what: object) -> float:
        return span[0] + (span[1] - span[0]) * self._throw(what)

    def watch(self, frame: FrameType, event: str, argument: object) -> None:
        """Be late, perhaps, where code that is near calls something or ends. Called for all that is called:
        if it took longer, watching would be what makes a test slow.
        """
        if event == "call":
            if frame.f_back is None:
                return
            frame = frame.f_back
        elif event != "c_call" and event != "return":
            return
        code = frame.f_code
        try:
            places = self._near[event][code]
        except KeyError:
            places = self._near[event][code] = {} if self._is_ours(code.co_filename) else None
        if places is not None:
            place = frame.f_lasti
            count = places.get(place, 0)
            if count < PASSES:
                places[place] = count + 1
                self._throw_for((code.co_filename, frame.f_lineno, place, event), count)

    def _is_ours(self, file: str) -> bool:
        return file.startswith(self._home) and file not in EXCEPTED

    def be_late(self, place: object) -> None:
        count = self._passed[place]
        self._passed[place] = count + 1
        self._throw_for(place, count)

    def _throw_for(self, place: object, count: int) -> None:
        if self._throw((place, count, "whether")) < ODDS / (1 + count):
            now, seconds = time.monotonic(), LATE * self._throw((place, count, "for how long"))
            if now >= getattr(self._thread, "works_until", 0.0):
                self._hold_up(seconds)
                self._thread.works_until = time.monotonic() + seconds

    def _hold_up(self, seconds: float) -> None:
        self._sleep(seconds)
        HELD_UP.seconds += seconds

    def delay_files(self) -> None:
        """Whoever has made a file durable goes on later."""
        for name in DURABLE:
            setattr(os, name, self._delayed(getattr(os, name)))

    def _delayed(self, act: Callable[..., Any]) -> Callable[..., Any]:
        def delayed(*arguments: Any, **named: Any) -> Any:
            done = act(*arguments, **named)
            self.be_late(act.__name__)
            return done

        return delayed

    def stall_loops(self) -> None:
        """Every event loop stands still now and then before it goes on."""
        kind: Any = asyncio.BaseEventLoop
        turn = kind._run_once

        def late_turn(loop: Any) -> None:
            now = time.monotonic()
            if now >= getattr(loop, "_peace_ends", 0.0):
                self._passed["turn"] += 1
                count = self._passed["turn"]
                self._hold_up(self._between(STALL, ("stall", count)))
                loop._peace_ends = now + self._between(PEACE, ("peace", count))
            turn(loop)

        kind._run_once = late_turn


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--jitter",
        type=int,
        metavar="SEED",
        help="make threads, loops and tests late: which race?",
    )


def pytest_report_header(config: pytest.Config) -> list[str]:
    seed = config.getoption("--jitter")
    return [] if seed is None else [f"jitter: {seed}"]


def pytest_configure(config: pytest.Config) -> None:
    seed = config.getoption("--jitter")
    if seed is not None:
        jitter = Jitter(seed)
        jitter.delay_files()
        jitter.stall_loops()
        config.pluginmanager.register(JitteredTests(jitter))


class JitteredTests:
    """Every test is one of its own for the dice."""

    def __init__(self, jitter: Jitter) -> None:
        self._jitter = jitter

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self._jitter.begin(item.nodeid)
        try:
            return (yield)
        finally:
            self._jitter.end()
