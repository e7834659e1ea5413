"""Files of Parquet by `pyarrow`, for whoever has no Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

_TYPES = {str: "string", int: "int64", float: "float64", bool: "bool_"}


def has_parquet() -> bool:
    """Whether this machine can write Parquet."""
    return find_spec("pyarrow") is not None


def encode_table(columns: Mapping[str, type | None], rows: Sequence[Sequence[Any]]) -> bytes:
    """Rows as a file. The type of a column; None is that of moments, which come as Unix seconds."""
    import pyarrow as pa
    from pyarrow import parquet

    arrays = []
    for index, kind in enumerate(columns.values()):
        cells = [row[index] for row in rows]
        if kind is None:
            stamps = [None if cell is None else round(cell * 1e6) for cell in cells]
            arrays.append(pa.array(stamps, pa.timestamp("us", tz="UTC")))
        else:
            arrays.append(pa.array(cells, getattr(pa, _TYPES[kind])()))
    sink = BytesIO()
    parquet.write_table(pa.table(arrays, names=list(columns)), sink)
    return sink.getvalue()


def join_tables(files: Sequence[bytes]) -> bytes:
    """The rows of several files in one; columns that an older one has not are null."""
    import pyarrow as pa
    from pyarrow import parquet

    tables = [parquet.read_table(BytesIO(data)) for data in files]
    sink = BytesIO()
    parquet.write_table(pa.concat_tables(tables, promote_options="permissive"), sink)
    return sink.getvalue()


def has_rows_before(file: Path, column: str, moment: float) -> bool:
    """Whether a file may have rows of an earlier time, by what it tells of its columns."""
    from pyarrow import parquet

    found = parquet.ParquetFile(file)
    index = found.schema_arrow.names.index(column)
    for group in range(found.metadata.num_row_groups):
        told = found.metadata.row_group(group).column(index).statistics
        if told is None or not told.has_min_max or _aware(told.min) < _at(moment):
            return True
    return False


def copy_rows_since(file: Path, to: Path, column: str, moment: float) -> None:
    """Write the rows of a file that are not earlier, if there are any."""
    from pyarrow import compute, parquet

    rows = parquet.read_table(file)
    kept = rows.filter(compute.greater_equal(rows[column], compute.cast(_at(moment), rows[column].type)))
    if kept.num_rows:
        parquet.write_table(kept, to)


def _at(moment: float) -> datetime:
    return datetime.fromtimestamp(moment, UTC)


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
