"""What one task writes of a day of the ledger: its rows and their brief, whole or not at all."""

from __future__ import annotations

import secrets
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from .day_brief import Brief, brief_of, join_briefs, write_brief

# Briefs that are held before they are added up.
_MOST_BRIEFS = 32


class DayDraft:
    """Rows of a day, taken as they come."""

    def __init__(self, directory: Path, writer: parquet.ParquetWriter, *, now: float) -> None:
        self._directory = directory
        self._writer = writer
        self._now = now
        self._briefs: list[Brief] = []
        self._ids = array("q")

    @classmethod
    @contextmanager
    def open(cls, directory: Path, schema: pa.Schema, *, part: int, now: float) -> Iterator[DayDraft]:
        """One that is published when the block ends."""
        directory.mkdir(parents=True, exist_ok=True)
        file = directory / f".part-{part:05d}-{secrets.token_hex(4)}"
        with parquet.ParquetWriter(file, schema) as writer:
            draft = cls(directory, writer, now=now)
            yield draft
        write_brief(join_briefs(draft._briefs, now=now), directory, part=part)
        file.replace(directory / f"part-{part:05d}.parquet")

    def add(self, rows: pa.Table) -> None:
        """Take rows, at least one."""
        self._writer.write_table(rows)
        self._briefs.append(brief_of(rows, now=self._now))
        if len(self._briefs) >= _MOST_BRIEFS:
            self._briefs = [join_briefs(self._briefs, now=self._now)]
        self._ids.extend(map(hash, rows["id"].to_pylist()))

    @property
    def is_once(self) -> bool:
        """Whether no two rows have the same id: a number for each id tells that, if it tells them apart."""
        numbers = pa.Array.from_buffers(pa.int64(), len(self._ids), [None, pa.py_buffer(self._ids)])
        return bool(pc.count_distinct(numbers).as_py() == len(self._ids))
