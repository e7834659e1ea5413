"""Rows that could not be sent, as Parquet with the column `error`; rule 4 of the writer."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet

from pairbus.errors import ConfigurationError, PairbusError

# Spark passes over names that begin with it.
_HIDDEN = "_"
# Of rows that fail a write, so many are told.
_TOLD = 3


class ErrorTable:
    """Where refused rows go. Without a place, the first refused rows end the write."""

    def __init__(self, place: str | None) -> None:
        self._place = place
        self._refused: list[pa.Table] = []
        self.count = 0

    def add(self, batch: pa.RecordBatch, refused: dict[int, str]) -> None:
        """Keep the rows of these places, each with its reason."""
        if not refused:
            return
        places = sorted(refused)
        if self._place is None:
            told = "; ".join(refused[place] for place in places[:_TOLD])
            raise PairbusError(
                f"{len(refused)} rows cannot be sent: {told}. To put such rows aside and send the others, "
                'give a directory: .option("errorTable", "DIRECTORY")'
            )
        rows = pa.Table.from_batches([batch.take(pa.array(places, pa.int64()))])
        reasons = pa.array([refused[place] for place in places], pa.string())
        self._refused.append(rows.append_column("error", reasons))
        self.count += len(places)

    def write(self, name: str) -> str | None:
        """Write what was kept under a hidden name; that name, or None if there is nothing."""
        if not self._refused:
            return None
        system, base = self._open()
        system.create_dir(base, recursive=True)
        hidden = f"{_HIDDEN}part-{name}.parquet"
        pyarrow.parquet.write_table(pa.concat_tables(self._refused), f"{base}/{hidden}", filesystem=system)
        return hidden

    def show(self, names: Sequence[str]) -> None:
        """Let the files of these hidden names be seen."""
        for name in names:
            system, base = self._open()
            if system.get_file_info(f"{base}/{name}").type == pyarrow.fs.FileType.NotFound:
                raise ConfigurationError(
                    "The errorTable has to be a directory that driver and executors share: the driver does "
                    "not find there what a task has written"
                )
            system.move(f"{base}/{name}", f"{base}/{name.removeprefix(_HIDDEN)}")

    def drop(self, names: Sequence[str]) -> None:
        """The write has failed, and its rows will come again."""
        for name in names:
            system, base = self._open()
            if system.get_file_info(f"{base}/{name}").type != pyarrow.fs.FileType.NotFound:
                system.delete_file(f"{base}/{name}")

    def _open(self) -> tuple[Any, str]:
        assert self._place is not None
        if "://" in self._place:
            system, base = pyarrow.fs.FileSystem.from_uri(self._place)
            return system, base.rstrip("/")
        return pyarrow.fs.LocalFileSystem(), self._place.rstrip("/")
