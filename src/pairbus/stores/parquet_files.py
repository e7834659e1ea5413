"""Parquet files by `pyarrow`, without Spark."""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

_TYPES = {str: "string", int: "int64", float: "float64", bool: "bool_"}
# Lines of one file are read in pieces; one that is longer is left to others.
_BLOCK = 4 << 20
_LARGEST = 2**63 - 1
# Rows that tell whether the values of a column repeat.
_LOOKED_AT = 1000


def has_parquet() -> bool:
    """Whether this machine can write Parquet."""
    return find_spec("pyarrow") is not None


def can_read(file: Path) -> bool:
    """Whether a file is Parquet that can be read to its end. A disk that fails is no answer, and raises."""
    import pyarrow as pa
    from pyarrow import parquet

    with file.open("rb") as opened:
        try:
            for _ in parquet.ParquetFile(opened).iter_batches():
                pass
        except (pa.ArrowException, OSError, ValueError) as error:
            if getattr(error, "errno", None) is not None:
                raise
            return False  # what Arrow itself says of a file has no number
    return True


def encode_table(columns: Mapping[str, type | None], rows: Sequence[Sequence[Any]]) -> bytes:
    """Rows as a file. The type of a column; None is that of moments, which come as Unix seconds."""
    import pyarrow as pa

    arrays = []
    for index, kind in enumerate(columns.values()):
        cells = [row[index] for row in rows]
        if kind is None:
            stamps = [None if cell is None else round(cell * 1e6) for cell in cells]
            arrays.append(pa.array(stamps, pa.timestamp("us", tz="UTC")))
        else:
            arrays.append(pa.array(cells, getattr(pa, _TYPES[kind])()))
    return _encode(pa.table(arrays, names=list(columns)))


def encode_lines(
    columns: Mapping[str, type | None],
    blocks: Iterable[bytes],
    *,
    needed: Sequence[str],
    choices: Mapping[str, Sequence[str]],
    last_moment: float,
) -> bytes | None:
    """Blocks of JSON, a line each row, as a file: what `encode_table` makes of them, in a tenth of the time.

    None if a line is not as all should be: an object whose values have the types of their columns, with all
    that are `needed`, one of the `choices` where there are some, and moments from 0 to the last one. Then
    they must be looked at one by one.
    """
    import pyarrow as pa
    from pyarrow import compute

    schema = pa.schema([(name, getattr(pa, _TYPES[kind or float])()) for name, kind in columns.items()])
    tables = []
    for data in blocks:
        if (found := read_json_lines(data, schema)) is None:
            return None
        tables.append(found)
    rows = pa.concat_tables(tables)
    if any(rows[name].null_count for name in needed):
        return None
    if not all(
        compute.all(compute.is_in(rows[name], pa.array(some))).as_py() for name, some in choices.items()
    ):
        return None
    cells = {}
    for name, kind in columns.items():
        values = rows[name]
        if kind in (None, int, float):
            least, most = compute.min_max(values).as_py().values()
            bounds = (0, last_moment) if kind is None else (-_LARGEST, _LARGEST)
            if least is not None and not bounds[0] <= least <= most <= bounds[1]:
                return None
        if kind is None:
            stamps = compute.cast(compute.round(compute.multiply(values, 1e6)), pa.int64())
            values = compute.cast(stamps, pa.timestamp("us", tz="UTC"))
        cells[name] = values
    return _encode(pa.table(cells))


def read_json_lines(data: bytes, schema: Any, *, use_threads: bool = True) -> Any:
    """Lines of JSON as a table of these columns; None if not each of them is a row that Arrow takes."""
    import pyarrow as pa
    from pyarrow import json

    lines = data.count(b"\n") + (not data.endswith(b"\n"))
    # Arrow 26 ends the process with a segmentation fault where a block of lines begins with null.
    if b"\r" in data or not data.startswith(b"{") or data.count(b"\n{") != lines - 1:
        return None
    read = json.ReadOptions(use_threads=use_threads, block_size=_BLOCK)
    parse = json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    try:
        if not data.isascii():
            data.decode("utf-8")
        rows = json.read_json(pa.BufferReader(data), read, parse)
    except (UnicodeDecodeError, pa.ArrowInvalid):
        return None
    return rows if rows.num_rows == lines else None


def join_tables(files: Sequence[bytes]) -> bytes:
    """The rows of several files in one; columns that an older one has not are null."""
    import pyarrow as pa

    tables = [_read_rows(BytesIO(data)) for data in files]
    return _encode(pa.concat_tables(tables, promote_options="permissive"))


def _encode(rows: Any) -> bytes:
    sink = BytesIO()
    _write(rows, sink)
    return sink.getvalue()


def _write(rows: Any, to: Path | BytesIO) -> None:
    """Write a file. Columns whose values hardly repeat get no dictionary: it takes time, and is given up."""
    from pyarrow import compute, parquet

    first = rows.slice(0, _LOOKED_AT)
    repeating = [name for name in rows.column_names if 2 * len(compute.unique(first[name])) <= first.num_rows]
    parquet.write_table(rows, to, use_dictionary=repeating)


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
    from pyarrow import compute

    rows = _read_rows(file)
    kept = rows.filter(compute.greater_equal(rows[column], compute.cast(_at(moment), rows[column].type)))
    if kept.num_rows:
        _write(kept, to)


def _at(moment: float) -> datetime:
    return datetime.fromtimestamp(moment, UTC)


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def may_share_rows(file: Path, others: Sequence[Path], column: str) -> bool:
    """Whether a file may have a row in common with others, by the least and the largest of a moment that such
    rows would share. A file that does not tell may have.
    """
    spans = [_span(one, column) for one in (file, *others)]
    own, *rest = spans
    return any(own is None or one is None or (own[0] <= one[1] and one[0] <= own[1]) for one in rest)


def _span(file: Path, column: str) -> tuple[datetime, datetime] | None:
    from pyarrow import parquet

    found = parquet.ParquetFile(file).metadata
    index = found.schema.to_arrow_schema().names.index(column)
    told = [found.row_group(group).column(index).statistics for group in range(found.num_row_groups)]
    if not told or any(one is None or not one.has_min_max or one.null_count != 0 for one in told):
        return None
    return min(_aware(one.min) for one in told), max(_aware(one.max) for one in told)


def find_repeated(files: Sequence[Path], column: str) -> set[str]:
    """The texts of a column that stand in more than one row of all these files. A number is held for each
    text, and only those are looked at again that have one in common.
    """
    import pyarrow as pa
    from pyarrow import compute

    numbers = array("q")
    for some in _texts(files, column):
        numbers.extend(map(hash, some))
    held = pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])
    if len(compute.unique(held)) == len(held):
        return set()
    counted = compute.value_counts(held)
    alike = set(counted.filter(compute.greater(counted.field("counts"), 1)).field("values").to_pylist())
    counts = Counter(text for some in _texts(files, column) for text in some if hash(text) in alike)
    return {text for text, count in counts.items() if count > 1}


def _texts(files: Sequence[Path], column: str) -> Iterator[list[str]]:
    """Some tens of thousands at a time."""
    from pyarrow import parquet

    for file in files:
        for batch in parquet.ParquetFile(file).iter_batches(columns=[column]):
            yield batch.column(0).to_pylist()


def part_rows(file: Path, to: Path, column: str, texts: set[str]) -> list[dict[str, Any]]:
    """The rows of a file that have one of the texts there, moments as Unix seconds. If there are any, the
    others are written, if there are any of those.
    """
    import pyarrow as pa
    from pyarrow import compute

    rows = _read_rows(file)
    is_one = compute.is_in(rows[column], pa.array(sorted(texts)))
    found, rest = rows.filter(is_one).to_pylist(), rows.filter(compute.invert(is_one))
    if found and rest.num_rows:
        _write(rest, to)
    return [
        {name: cell.timestamp() if isinstance(cell, datetime) else cell for name, cell in row.items()}
        for row in found
    ]


def _read_rows(source: Path | BytesIO) -> Any:
    """The rows of a file. Spark has written moments in its own way, which it reads from nobody else."""
    import pyarrow as pa
    from pyarrow import parquet

    rows = parquet.read_table(source)
    ours = pa.timestamp("us", tz="UTC")
    return rows.cast(
        pa.schema(
            [field.with_type(ours) if pa.types.is_timestamp(field.type) else field for field in rows.schema]
        ),
        safe=False,
    )
