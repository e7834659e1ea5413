"""Programs in a process of their own, and what they leave behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType

from .conftest import Namespaces

__all__ = ["Script"]

ROOT = Path(__file__).parents[2]
LIMIT = 50.0
HEAD = """
import os, signal, sys, threading
from functools import partial
from pairbus.client import lifetime
from pairbus.portal import Portal
from tests.hurry import HurriedLoop

if os.environ["HURRY"]:
    lifetime.Portal = partial(Portal, make_loop=HurriedLoop)

from azure.servicebus import ServiceBusMessage
from pairbus import PairedServiceBusClient, SendAvailabilityOptions

def on_change(change):
    pass

def connect(**keywords):
    # Time-outs that are long also on a loop in a hurry.
    options = SendAvailabilityOptions(failover_interval=3600.0, send_timeout=600.0, backlog_queue_count=2)
    strings = os.environ["PRIMARY"], os.environ["SECONDARY"]
    return PairedServiceBusClient.from_connection_strings(*strings, options=options, **keywords)

client = connect(
    on_state_change=lambda change: on_change(change), state_dir=os.environ["STATE"] or None
)
sender = client.get_queue_sender("orders")

def say(word):
    print(word, flush=True)

def hear():
    return sys.stdin.readline().strip()

def wait_for_attempt():
    while not client.status().entities[0].health.attempts:
        pass
"""


class Script:
    """A running program that starts with a client and a sender. It is ended with the block."""

    def __init__(
        self, namespaces: Namespaces, body: str, *, hurry: bool = True, state_dir: Path | None = None
    ) -> None:
        primary, secondary = namespaces.strings
        own = {"PRIMARY": primary, "SECONDARY": secondary, "STATE": str(state_dir or "")}
        self._process = subprocess.Popen(
            # Newer Pythons warn of any fork while there are threads; that is what is tried here.
            [sys.executable, "-W", "ignore::DeprecationWarning", "-c", HEAD + body],
            cwd=ROOT,
            env={**os.environ, **own, "HURRY": "1" if hurry else ""},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._watch = threading.Timer(LIMIT, self._process.kill)
        self._watch.start()

    def __enter__(self) -> Script:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watch.cancel()
        self._process.kill()
        self._process.communicate()

    def expect(self, word: str) -> None:
        """Wait until the program says this."""
        assert self._process.stdout is not None
        said = self._process.stdout.readline().strip()
        assert said == word, f"{said!r} and then: {self.end()}"

    def tell(self, word: str) -> None:
        """Let the program hear this."""
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self._process.send_signal(signal.SIGINT)

    def end(self) -> tuple[int, str, str]:
        """Wait for its end: the exit code, what else it said, and what it complained of."""
        out, complaints = self._process.communicate()
        return self._process.returncode, out, complaints
