"""What the processes of an ordeal are told by signals: the time, and when to end."""

from __future__ import annotations

import asyncio
import signal
import time

from pairbus.clock import SystemClock

__all__ = ["set_clock_by_signals", "stop_at_sigterm"]

HOUR = 3600.0


def set_clock_by_signals() -> None:
    """SIGUSR1 sets the clock of this process an hour ahead, SIGUSR2 an hour back."""
    ahead = 0.0

    def move(number: int, frame: object) -> None:
        nonlocal ahead
        ahead += HOUR if number == signal.SIGUSR1 else -HOUR

    signal.signal(signal.SIGUSR1, move)
    signal.signal(signal.SIGUSR2, move)

    def now(clock: SystemClock) -> float:
        return time.time() + ahead

    SystemClock.now = now  # type: ignore[assignment, method-assign]


def stop_at_sigterm() -> asyncio.Event:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    return stop
