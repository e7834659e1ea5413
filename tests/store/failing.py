"""A real store that fails when a test says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from pairbus.broker.engine.events import EngineEvent
from pairbus.broker.errors import StoreError
from pairbus.broker.store.sqlite import SqliteStore


class FailingStore(SqliteStore):
    """Commits and loads as the real one does, unless told to fail. `loads` counts what was tried."""

    made: ClassVar[list[FailingStore]] = []

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.refuses_commits = False
        self.is_unreadable = False
        self.loads = 0
        self.made.append(self)

    def finish(self) -> None:
        """Where a full disk is found out."""
        if self.refuses_commits:
            self._roll_back()
            raise StoreError("the store was told to fail.")
        super().finish()

    def load(self) -> Iterator[EngineEvent]:
        self.loads += 1
        if self.is_unreadable:
            raise StoreError("the store was told to be unreadable.")
        return super().load()
