"""What the processes of an ordeal are told by signals: the time, and when to end."""

import asyncio
import os
import signal
import time
from pathlib import Path

from pairbus.clock import SystemClock

__all__ = ["CLOCK_FILE", "HOUR", "set_clock_by_signals", "stop_at_sigterm"]

HOUR = 3600.0
#: The variable that names the file to which a process writes what time it is when its clock has been set.
CLOCK_FILE = "ORDEAL_CLOCK"


def set_clock_by_signals() -> None:
    """SIGUSR1 sets the clock of this process an hour ahead, SIGUSR2 an hour back."""
    ahead, told = 0.0, Path(os.environ[CLOCK_FILE])

    def move(number: int, frame: object) -> None:
        nonlocal ahead
        ahead += HOUR if number == signal.SIGUSR1 else -HOUR
        draft = told.with_suffix(".draft")
        draft.write_text(f"{SystemClock().now()}", encoding="ascii")
        draft.rename(told)

    signal.signal(signal.SIGUSR1, move)
    signal.signal(signal.SIGUSR2, move)

    def now(clock: SystemClock) -> float:
        return time.time() + ahead

    SystemClock.now = now  # type: ignore[assignment, method-assign]


def stop_at_sigterm() -> asyncio.Event:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    return stop
