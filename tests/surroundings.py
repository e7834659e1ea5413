"""What a test finds around it and has to leave as it was, or the tests after it fail for its sake.

A thread or a process that goes on after its test keeps a lease, a port or a lock. A variable or a setting
of the interpreter that stays is seen by every later test. A test that fails half-way is where this happens.
"""

import gc
import logging
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .waiting import LONGEST_PAUSE, PATIENCE, PAUSE

__all__ = ["Surroundings"]

# pytest says in it what runs.
PYTEST_VARIABLE = b"PYTEST_CURRENT_TEST"
SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE)
# Threads of libraries that keep what they have started until the process ends.
LASTING = ("py4j.", "pyspark.")
# Threads that start late for what several tests share, and end with it: the pool of `tests/broker/shells.py`,
# and the strand of a broker, whose other threads are told. And those of the SDK's handlers that were
# forgotten before their client was closed.
SHARED = re.compile(r"sdk_\d+|pairbus-decides-.+|Thread-\d+ \(_keep_alive\)")


def variables() -> dict[bytes, bytes]:
    """As bytes, which nothing has to decode before and after each test."""
    found = dict(os.environb)
    found.pop(PYTEST_VARIABLE, None)
    return found


def set_variables(wanted: dict[bytes, bytes]) -> None:
    for name in variables().keys() - wanted.keys():
        del os.environb[name]
    os.environb.update(wanted)


def handlers() -> list[Any]:
    return [signal.getsignal(number) for number in SIGNALS]


def set_handlers(wanted: list[Any]) -> None:
    for number, handler in zip(SIGNALS, wanted, strict=True):
        signal.signal(number, handler)


# By what it is called: how it is read, and set again.
SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "environment variables": (variables, set_variables),
    "the working directory": (os.getcwd, os.chdir),
    "handlers of signals": (handlers, set_handlers),
    "what logging is disabled for": (lambda: logging.root.manager.disable, logging.disable),
    "whether garbage is collected": (gc.isenabled, lambda on: gc.enable() if on else gc.disable()),
    "the usual time-out of sockets": (socket.getdefaulttimeout, socket.setdefaulttimeout),
    "the path of modules": (lambda: [*sys.path], lambda path: sys.path.__setitem__(slice(None), path)),
    "the limit of recursion": (sys.getrecursionlimit, sys.setrecursionlimit),
}


def running_threads() -> set[threading.Thread]:
    return {
        thread
        for thread in threading.enumerate()
        if not type(thread).__module__.startswith(LASTING) and not SHARED.fullmatch(thread.name)
    }


def child_processes() -> set[int]:
    """Also those that have ended and that nobody has waited for. None where there is no /proc to tell it."""
    found: set[int] = set()
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # most tests start none, and a thread's children are a file to read
        return found
    for file in Path("/proc/self/task").glob("*/children"):
        try:
            found.update(map(int, file.read_text(encoding="ascii").split()))
        except OSError:  # the thread has ended
            continue
    return found


@dataclass(frozen=True)
class Surroundings:
    """As they were when this was made."""

    threads: set[threading.Thread] = field(default_factory=running_threads)
    children: set[int] = field(default_factory=child_processes)
    settings: dict[str, Any] = field(
        default_factory=lambda: {name: read() for name, (read, _) in SETTINGS.items()}
    )

    def restore(self, *, patience: float = PATIENCE) -> list[str]:
        """Wait for what is about to end, end the rest as far as possible, and tell what that was."""
        ends, pause = time.monotonic() + patience, PAUSE
        while (left := self._left()) and time.monotonic() < ends:
            time.sleep(pause)
            pause = min(1.5 * pause, LONGEST_PAUSE)
        for child in child_processes() - self.children:
            os.kill(child, signal.SIGKILL)
        return [*left, *self._set_back()]

    def _left(self) -> list[str]:
        return [
            *(f"thread {thread.name}" for thread in running_threads() - self.threads),
            *(f"process {child}: {command_of(child)}" for child in child_processes() - self.children),
        ]

    def _set_back(self) -> list[str]:
        changed = [name for name, (read, _) in SETTINGS.items() if read() != self.settings[name]]
        told = [f"{name}: {describe_change(self.settings[name], SETTINGS[name][0]())}" for name in changed]
        for name in changed:
            SETTINGS[name][1](self.settings[name])
        return told


def describe_change(before: Any, after: Any) -> str:
    """Of variables only the names: a value may be a secret."""
    if isinstance(before, dict):
        names = [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
        return ", ".join(sorted(map(os.fsdecode, names)))
    return f"{after}, was {before}"


def command_of(child: int) -> str:
    try:
        words = Path(f"/proc/{child}/cmdline").read_text(encoding="utf-8").split("\0")
    except OSError:
        words = []
    return " ".join(words).strip() or "ended"
