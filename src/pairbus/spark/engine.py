"""Where the pumps of a syphon run: in the tasks of Spark, or in this process.

Which queues there are, who may pump and what is told is the syphon's; the leash holds all pumps alike.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

from pairbus.backlog.served_queue import ServedQueue
from pairbus.errors import PairbusError
from pairbus.stores.places import RecordPlace

from .leash.leash import Leash
from .shard import ShardJob
from .summary import ReceiptCounts

#: How often whoever waits for an engine looks up.
TICK = 0.2


class SyphonError(PairbusError):
    """The syphon cannot go on; the text says why."""


class SyphonEngine(ABC):
    """Runs shards. `watch` is called repeatedly while they run."""

    #: What it is called where people see it.
    kind: str
    #: Whether the driver is another process, so that pumps cannot reach this one.
    is_remote = False
    #: Whether pumps may outlive the driver.
    leaves_orphans = True

    @abstractmethod
    def drain(
        self, job: ShardJob, queues: Sequence[ServedQueue], leash: Leash, watch: Callable[[], None]
    ) -> None:
        """Serve these queues until nothing is left to do."""

    @abstractmethod
    def stream(self, job: ShardJob, leash: Leash, watch: Callable[[], None], *, state: Path | None) -> None:
        """Serve the queues of the leash until it says stop; `state` is for what the engine remembers."""

    @abstractmethod
    def count(self, places: Sequence[RecordPlace], *, run: str) -> ReceiptCounts | None:
        """The counts by the receipts of a run; None if those told by the pumps are as good."""

    @abstractmethod
    def prepare(self, places: Sequence[RecordPlace]) -> None:
        """Do a part of what `compact` would have to do, if there is one that is better done meanwhile."""

    @abstractmethod
    def compact(self, places: Sequence[RecordPlace]) -> tuple[str, ...]:
        """Put receipts into tables; those that there are."""


class BackgroundWork:
    """Runs something in a thread, so that this one can tell of progress and be interrupted."""

    def __init__(self, action: Callable[[], object]) -> None:
        self.error: Exception | None = None
        self._action = action
        self._is_done = threading.Event()
        threading.Thread(target=self._run, name="pairbus-syphon", daemon=True).start()

    def _run(self) -> None:
        try:
            self._action()
        except Exception as error:  # noqa: BLE001 - it is raised where the end is waited for
            self.error = error
        finally:
            self._is_done.set()

    def wait(self, leash: Leash, watch: Callable[[], None]) -> None:
        """Wait for its end. On an interrupt the pumps end first."""
        try:
            while not self._is_done.wait(TICK):
                watch()
                if leash.final_fault is not None:
                    raise SyphonError(leash.final_fault)
        except BaseException:
            leash.stop()
            self._is_done.wait()
            raise
