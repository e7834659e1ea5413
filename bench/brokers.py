"""The brokers that are measured. Each runs in a process, and a session, of its own."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.client import BenchError, Client, Endpoint
from bench.processor import processor_seconds
from bench.serve import QUEUE

__all__ = ["Measured", "Pairbus", "RabbitMq", "find_rabbitmq", "running"]

# Erlang takes some seconds to start, Python half of one, and a million messages a minute on a busy machine.
PATIENCE = 300.0
# Where Debian has the script itself; the one on the path changes to another user first.
_DEBIAN_SCRIPT = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


class Measured(ABC):
    """A broker under measurement."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.directory = directory
        self.endpoint = Endpoint("127.0.0.1", 0, "", "", "")
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def start(self) -> None:
        """Start it and wait until its queue can be used."""

    def stop(self) -> None:
        """End it, with all that it has started."""
        process = self._process
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(PATIENCE)
        self._process = None

    @property
    def pid(self) -> int:
        """The process, which also leads the session of all that it has started."""
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    def processor_seconds(self) -> float:
        """The processor time that it has used so far."""
        return processor_seconds(self.pid)

    def _spawn(self, command: list[str], variables: dict[str, str] | None = None) -> None:
        with (self.directory / f"{self.name}.log").open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **(variables or {})},
            )

    def _check_alive(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            log = (self.directory / f"{self.name}.log").read_text(errors="replace")
            raise BenchError(f"{self.name} did not start:\n{log[-2000:]}")


class Pairbus(Measured):
    """Our broker, in memory or durable."""

    def __init__(self, name: str, directory: Path, *, durable: bool) -> None:
        super().__init__(name, directory)
        self.durable = durable
        self.connection_string = ""
        self._status_file = directory / f"{name}.json"

    def start(self) -> None:
        command = [sys.executable, "-m", "bench.serve", str(self._status_file)]
        self._spawn([*command, str(self.directory / self.name)] if self.durable else command)
        status = self._await_status(after=0.0)
        self.connection_string = status["connection_string"]
        parts = dict(part.split("=", 1) for part in self.connection_string.rstrip(";").split(";"))
        user, key = parts["SharedAccessKeyName"], parts["SharedAccessKey"]
        self.endpoint = Endpoint("127.0.0.1", status["port"], user, key, QUEUE)

    def commits(self) -> int:
        """How many turns its store has committed so far."""
        before = json.loads(self._status_file.read_text(encoding="utf-8"))["at"]
        os.kill(self.pid, signal.SIGUSR1)
        return int(self._await_status(after=before)["commits"])

    def _await_status(self, *, after: float) -> dict[str, Any]:
        for _ in _tries():
            self._check_alive()
            if self._status_file.exists():
                status: dict[str, Any] = json.loads(self._status_file.read_text(encoding="utf-8"))
                if status["at"] > after:
                    return status
        raise BenchError(f"{self.name} did not say that it is ready")


class RabbitMq(Measured):
    """RabbitMQ with its AMQP 1.0 plugin, on loopback, with directory, cookie and port mapper of its own."""

    def __init__(self, name: str, directory: Path, script: Path) -> None:
        super().__init__(name, directory)
        self._script = script
        self._variables: dict[str, str] = {}

    def start(self) -> None:
        home = self.directory / self.name
        home.mkdir()
        port, distribution, mapper = _free_port(), _free_port(), _free_port()
        (home / "plugins").write_text("[rabbitmq_amqp1_0].\n")
        (home / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{port}\nlog.console = true\n")
        self._variables = {
            "HOME": str(home),
            "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
            "RABBITMQ_LOG_BASE": str(home / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq.conf"),
            "RABBITMQ_DIST_PORT": str(distribution),
            "ERL_EPMD_PORT": str(mapper),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }
        self._spawn([str(self._script)], self._variables)
        # Asking for a terminus of this address makes the queue, durable as the client asks for it.
        self.endpoint = Endpoint("127.0.0.1", port, "guest", "guest", "/queue/bench")
        self._await_port()

    def stop(self) -> None:
        super().stop()
        epmd = shutil.which("epmd")
        if epmd is not None and self._variables:
            command = [epmd, "-port", self._variables["ERL_EPMD_PORT"], "-kill"]
            subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False)

    def _await_port(self) -> None:
        for _ in _tries():
            self._check_alive()
            with contextlib.suppress(OSError, BenchError), Client(self.endpoint):
                return
        raise BenchError(f"{self.name} did not open its port")


def find_rabbitmq() -> Path | None:
    """The script that starts RabbitMQ, if it is installed."""
    if _DEBIAN_SCRIPT.exists():
        return _DEBIAN_SCRIPT
    found = shutil.which("rabbitmq-server")
    return None if found is None else Path(found)


@contextlib.contextmanager
def running(brokers: list[Measured]) -> Iterator[None]:
    """Have them all running."""
    try:
        for broker in brokers:
            broker.start()
        yield
    finally:
        for broker in brokers:
            broker.stop()


def _tries() -> Iterator[None]:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        yield
        time.sleep(0.02)


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
