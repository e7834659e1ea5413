"""Where a namespace's word is kept. A store listens to the engine: it is given the events of a turn and
commits them all or none.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from pairbus.broker.engine.events import EngineEvent
from pairbus.broker.engine.message import ContentSource


class Store(Protocol):
    """Keeps what the engine decided. `remembers`: whether `load` gives back what was committed."""

    remembers: bool

    def load(self) -> Iterable[EngineEvent]:
        """Everything that was committed, as events for `Namespace.replay`."""

    def commit(self, events: Sequence[EngineEvent]) -> None:
        """Make a turn's events durable, or raise StoreError and keep none of them."""

    def write(self, events: Sequence[EngineEvent]) -> None:
        """The first half of `commit`, as far as that need not wait for the disk."""

    def finish(self) -> None:
        """The second half of `commit`."""

    def is_heavy(self, events: Sequence[EngineEvent]) -> bool:
        """Whether to write these takes so long that nobody should wait for it."""

    def source(self, queue: str) -> ContentSource | None:
        """Where the contents of a queue's messages can be read that are committed; None if there are none."""

    def close(self) -> None:
        """Let go of files."""


class MemoryStore:
    """Keeps nothing: a namespace for tests, gone with its process."""

    remembers = False

    def load(self) -> Iterable[EngineEvent]:
        return ()

    def commit(self, events: Sequence[EngineEvent]) -> None:
        """In memory the engine itself is the only copy."""

    write = commit

    def finish(self) -> None:
        """There is nothing to finish."""

    def is_heavy(self, events: Sequence[EngineEvent]) -> bool:
        return False

    def source(self, queue: str) -> ContentSource | None:
        return None

    def close(self) -> None:
        """There is nothing to let go of."""
