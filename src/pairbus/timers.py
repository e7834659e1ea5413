"""The one place from which the client takes its time, so that a test can put a clock of its own there."""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class TimerHandle(Protocol):
    """Something that will be called, unless it is cancelled first."""

    def cancel(self) -> None: ...


class Timers(Protocol):
    """Tells the time, which never steps back, and calls at a time."""

    def now(self) -> float: ...

    def call_at(self, when: float, act: Callable[[], None]) -> TimerHandle: ...


class LoopTimers:
    """The time of the running event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # The same clock, asked without the detour, unless the loop has one of its own.
        has_own = type(loop).time is not asyncio.BaseEventLoop.time
        self.now: Callable[[], float] = loop.time if has_own else time.monotonic

    def call_at(self, when: float, act: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_at(when, act)


async def sleep_by(timers: Timers, seconds: float) -> None:
    """Sleep for so long, by these timers."""
    over = asyncio.Event()
    timer = timers.call_at(timers.now() + seconds, over.set)
    try:
        await over.wait()
    finally:
        timer.cancel()
