"""A broker in a process of its own, to be killed."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from azure.servicebus.management import ServiceBusAdministrationClient

from tests.waiting import PATIENCE, wait_until

__all__ = ["NAMESPACE", "BrokerProcess"]

NAMESPACE = "contoso"


class BrokerProcess:
    """`pairbus broker`. It keeps its port over restarts, and its data directory if it is durable."""

    def __init__(self, directory: Path, *, durable: bool = True) -> None:
        self._ready_file = directory / "ready.json"
        self._log = directory / "broker.log"
        self.data = directory / "data"
        self._storage = ["--data", str(self.data)] if durable else ["--memory"]
        self.port = 0
        self.connection_string = ""
        self.certificate = ""
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> BrokerProcess:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Start, and wait until the namespace can be reached."""
        self._ready_file.unlink(missing_ok=True)
        # With a neighbour, so that its commits are a thread's.
        arguments = ["--namespace", f"{NAMESPACE}={self.port}", "--namespace", "neighbour=0", *self._storage]
        arguments += ["--ready-file", str(self._ready_file), "--log-level", "error"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pairbus.cli", "broker", *arguments], stdout=log, stderr=log
            )
        try:
            wait_until(self._is_ready, what="the broker")
        except BaseException:
            self.kill()
            raise
        described: dict[str, Any] = json.loads(self._ready_file.read_text(encoding="utf-8"))[NAMESPACE]
        self.port = described["port"]
        self.connection_string = described["connection_string"]
        self.certificate = described["cert"]

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"the broker did not start:\n{self._log.read_text()}"
        return self._ready_file.exists()

    def kill(self) -> None:
        """SIGKILL: the process gets no chance to do anything more."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(timeout=PATIENCE)
            self._process = None

    def administer(self) -> ServiceBusAdministrationClient:
        """The official administration client."""
        client: ServiceBusAdministrationClient = ServiceBusAdministrationClient.from_connection_string(
            self.connection_string, connection_verify=self.certificate
        )
        return client

    def limit_files(self, size: int | None) -> None:
        """Let no file of the running broker grow beyond `size` bytes, or as far as it likes."""
        assert self._process is not None
        _, hard = resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (hard if size is None else size, hard))
