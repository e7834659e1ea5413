"""Objects of a store as rows: Spark's own readers never see the store, tasks read and write by `pyarrow`.

A task gets the place and names. What the place names in its environment, it looks up where it runs.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pyarrow as pa
from pyarrow import parquet
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema

from pairbus.ledger.seal import seal_of
from pairbus.stores.places import StoreUri
from pairbus.stores.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
ArrowBatches = Iterator[pa.RecordBatch]
_LINES = pa.schema([("value", pa.string()), ("file", pa.string())])
_LINES_DDL = "value string, file string"
_WRITTEN_DDL = "day string, file string, seal string"
_WRITTEN = pa.schema([("day", pa.string()), ("file", pa.string()), ("seal", pa.string())])
# A task that reads objects waits for round trips; more of them than cores do no harm, but each is a process.
_TASKS = 16
_OBJECTS_A_TASK = 32
# How tasks of ours, and Spark's own, say that a file is gone.
_GONE = re.compile(r"FileNotFoundError|FILE_NOT_EXIST|PATH_NOT_FOUND")
# Some hundred megabytes in memory; a day with more has several files.
_ROWS_A_FILE = 1_000_000


class WrittenFile(NamedTuple):
    """A file of a day, and its seal."""

    day: str
    file: str
    seal: str


def object_lines(spark: SparkSession, place: StoreUri, names: Sequence[str]) -> DataFrame:
    """The lines of objects, `value`, each with the name of its `file`."""

    def read(batches: ArrowBatches) -> ArrowBatches:
        store = open_store(place)
        for name in first_cells(batches):
            # Lines end with a line feed only: whatever else text may hold, JSON has escaped.
            lines = store.read(name).decode("utf-8", "replace").removesuffix("\n").split("\n")
            yield pa.RecordBatch.from_pydict({"value": lines, "file": [name] * len(lines)}, _LINES)

    return object_names(spark, names).mapInArrow(read, _LINES_DDL)


def object_rows(spark: SparkSession, place: StoreUri, names: Sequence[str], ddl: str) -> DataFrame:
    """The rows of Parquet objects. Columns that an older one has not are null."""
    types = to_arrow_schema(spark.createDataFrame([], ddl).schema, timezone="UTC")

    def read(batches: ArrowBatches) -> ArrowBatches:
        store = open_store(place)
        for name in first_cells(batches):
            for found in parquet.ParquetFile(BytesIO(store.read(name))).iter_batches():
                there = dict(zip(found.schema.names, found.columns, strict=True))
                arrays = [
                    there[field.name].cast(field.type)
                    if field.name in there
                    else pa.nulls(found.num_rows, field.type)
                    for field in types
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=types)

    return object_names(spark, names).mapInArrow(read, ddl)


def write_days(rows: DataFrame, place: StoreUri, kind: str, *, number: int) -> list[WrittenFile]:
    """Put rows, which have a `day`, into objects of this generation, a few for each day."""
    columns = [name for name in rows.columns if name != "day"]

    def write(batches: ArrowBatches) -> ArrowBatches:
        store = open_store(place)

        def put(day: str, table: pa.Table) -> pa.RecordBatch:
            sink = BytesIO()
            parquet.write_table(table.select(columns), sink)
            name = f"{kind}-{day}-{number:06d}-{secrets.token_hex(6)}.parquet"
            store.put(name, sink.getvalue())
            told = {"day": [day], "file": [name], "seal": [seal_of(sink.getvalue())]}
            return pa.RecordBatch.from_pydict(told, _WRITTEN)

        held: list[pa.RecordBatch] = []
        day = ""
        for batch in batches:
            for begin, end, of in _runs(batch.column(batch.schema.get_field_index("day")).to_pylist()):
                if held and (of != day or sum(one.num_rows for one in held) >= _ROWS_A_FILE):
                    yield put(day, pa.Table.from_batches(held))
                    held = []
                day = of
                held.append(batch.slice(begin, end - begin))
        if held:
            yield put(day, pa.Table.from_batches(held))

    by_day = rows.repartition("day").sortWithinPartitions("day")
    return [WrittenFile(*row) for row in by_day.mapInArrow(write, _WRITTEN_DDL).collect()]


def _runs(values: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """Where the same value begins and ends."""
    begin = 0
    for index, value in enumerate(values):
        if index + 1 == len(values) or values[index + 1] != value:
            yield begin, index + 1, value
            begin = index + 1


def tell_gone(act: Callable[[], T]) -> T:
    """FileNotFoundError if a task has met one: what was listed has been deleted since."""
    try:
        return act()
    except PySparkException as error:
        if _GONE.search(str(error)):
            raise FileNotFoundError("a file was deleted while it was read") from None
        raise


def first_cells(batches: ArrowBatches) -> Iterator[Any]:
    """What stands in the first column, row by row."""
    for batch in batches:
        yield from batch.column(0).to_pylist()


def object_names(spark: SparkSession, names: Sequence[str]) -> DataFrame:
    """The names as rows, for tasks that read some each."""
    rows = spark.createDataFrame([(name,) for name in names], "name string")
    return rows.repartition(min(_TASKS, 1 + len(names) // _OBJECTS_A_TASK))
