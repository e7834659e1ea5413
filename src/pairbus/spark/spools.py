"""What the spools of clients have to say to a verdict: messages that were taken and went nowhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pairbus.client.state.directory import spool_dir
from pairbus.client.state.spool_aside import list_damaged, list_refused
from pairbus.client.state.spool_store import newer_directories
from pairbus.client.state.spool_survey import list_unreadable, list_waiting


class SpoolsRead(NamedTuple):
    """How many messages were refused for good, what cannot be read, and notes."""

    refused: int
    gaps: tuple[str, ...]
    notes: tuple[str, ...]


def read_spools(states: Sequence[Path]) -> SpoolsRead:
    """The spools of these state directories."""
    gaps: list[str] = []
    notes: list[str] = []
    refused = 0
    for state in states:
        refused += len(list_refused(state))
        gaps += [f"{one.size:,} bytes of the spool cannot be read: {one.file}" for one in list_damaged(state)]
        spool = spool_dir(state)
        gaps += [
            f"{size:,} bytes of the spool cannot be read: {file}"
            for file, size in list_unreadable(spool, now=time.time())
        ]
        gaps += [f"{path} was written by a newer version of pairbus" for path in newer_directories(spool)]
        if waiting := len(list_waiting(spool)):
            notes.append(f"{waiting:,} messages wait in {spool}, and went nowhere yet")
    return SpoolsRead(refused, tuple(gaps), tuple(notes))
