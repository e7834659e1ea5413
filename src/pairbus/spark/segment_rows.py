"""Segments of the ledger as columns: parsed by Arrow, a file at a time, and judged column by column.

1. What Arrow reads without a complaint is judged as `parse_row` judges a row, all rows at once. A file that
   Arrow does not take whole, because of one line that is no JSON or has a text for a number, is read line by
   line by `parse_row` itself. So the two can only differ in speed.
2. A line that cannot be billed, or was edited, becomes a bad row, with its text, the time of its segment,
   which is part of the file's name, and an id of its own making.
3. Every row has the day, in UTC, that it is of.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import asdict
from math import nextafter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pairbus.ledger.columns import RowColumn, columns_of
from pairbus.ledger.operations import BOUNDS, KIND, ROWS, parse_row
from pairbus.ledger.seal import open_rows
from pairbus.ledger.store_files import day_at
from pairbus.plumbing.json_text import LAST_MOMENT, parse_json
from pairbus.stores.parquet_files import read_json_lines

_KINDS = {kind: columns_of(made) for kind, made in ROWS.items()}
#: A row has the columns of all kinds, and those of its own kind filled in.
COLUMNS = {
    "row": RowColumn(name="row", plain=str),
    **{name: column for columns in _KINDS.values() for name, column in columns.items()},
}
_ARROW = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
_FIELDS = [(name, _ARROW[column.plain]) for name, column in COLUMNS.items()]
#: Rows as they stand in the table, before the day becomes a directory.
SCHEMA = pa.schema([*_FIELDS, ("raw", pa.string()), ("day", pa.string())])
_PARSED = pa.schema(_FIELDS)
_BEGUN = re.compile(rf"{KIND}-(\d{{1,15}})-")
_DAY = 86_400
# The largest number that a table holds.
_LARGEST = {int: 2**63 - 1, float: nextafter(2.0**63, 0.0)}


def parse_segment(data: bytes, file: str) -> pa.Table:
    """The rows of a segment, in the columns of `SCHEMA`."""
    whole, edited = open_rows(data)
    table = _parse(whole, file)
    bad = [_bad_row(line, file) for line in _lines(edited)]
    return pa.concat_tables([table, _rows(bad)]) if bad else table


def _parse(data: bytes, file: str) -> pa.Table:
    read = read_json_lines(data, _PARSED, use_threads=False)
    if read is None:
        return _rows([_parse_line(line) or _bad_row(line, file) for line in _lines(data)])
    found = read.select(list(COLUMNS)).combine_chunks()
    sound = _judge(found)
    is_whole = pc.all(sound).as_py() is not False
    good = _without_foreign(found if is_whole else found.filter(sound))
    table = _with_day(good.append_column("raw", pa.nulls(good.num_rows, pa.string())))
    if is_whole:
        return table
    lines = _lines(data)
    bad = [lines[place] for place, is_good in enumerate(sound.to_pylist()) if not is_good]
    return pa.concat_tables([table, _rows([_bad_row(line, file) for line in bad])])


def _lines(data: bytes) -> list[bytes]:
    return [line for line in data.splitlines() if line.strip()]


def _judge(rows: pa.Table) -> pa.ChunkedArray:
    """Which rows `parse_row` would take."""
    sound: Any = pa.chunked_array([pa.repeat(False, rows.num_rows)])
    for kind, columns in _KINDS.items():
        whole: Any = pc.equal(rows["row"], kind)
        for name, column in columns.items():
            whole = pc.and_(whole, _fits(rows[name], column))
        sound = pc.or_(sound, pc.fill_null(whole, False))
    return sound


def _without_foreign(rows: pa.Table) -> pa.Table:
    """Rows without what no row of their kind has."""
    for place, name in enumerate(COLUMNS):
        owners = [kind for kind, columns in _KINDS.items() if name in columns]
        values = rows[name]
        if name == "row" or len(owners) == len(_KINDS) or values.null_count == len(values):
            continue
        is_own = pc.is_in(rows["row"], pa.array(owners))
        if not pc.all(pc.or_(is_own, pc.is_null(values))).as_py():
            rows = rows.set_column(place, name, pc.if_else(is_own, values, pa.scalar(None, values.type)))
    return rows


def _fits(values: pa.ChunkedArray, column: RowColumn) -> Any:
    """Whether a row may have this value there."""
    if column.choices:
        fits = pc.is_in(values, pa.array(map(str, column.choices)))
    elif column.plain in (int, float):
        least, most = (
            pa.scalar(column.plain(bound), values.type)
            for bound in BOUNDS.get(column.name, (-_LARGEST[column.plain], _LARGEST[column.plain]))
        )
        fits = pc.and_(pc.greater_equal(values, least), pc.less_equal(values, most))
    else:
        fits = pc.is_valid(values)
    return (
        pc.or_(pc.is_null(values), pc.fill_null(fits, True))
        if column.is_optional
        else pc.fill_null(fits, False)
    )


def _parse_line(line: bytes) -> dict[str, Any] | None:
    try:
        found = parse_json(line)
    except ValueError:
        return None
    row = parse_row(found) if isinstance(found, dict) else None
    return None if row is None else {"row": found["row"], **asdict(row)}


def _bad_row(line: bytes, file: str) -> dict[str, Any]:
    """Rule 2."""
    raw, begun = line.decode("utf-8", "replace"), _BEGUN.match(file)
    identity = hashlib.sha256(f"{file}{raw}".encode()).hexdigest()
    at = int(begun[1]) / 1000 if begun is not None else None
    is_time = at is not None and at <= LAST_MOMENT
    return {"row": "bad", "id": f"bad:{identity}", "at": at if is_time else None, "raw": raw}


def _rows(rows: list[dict[str, Any]]) -> pa.Table:
    return _with_day(pa.Table.from_pylist(rows, schema=SCHEMA.remove(SCHEMA.get_field_index("day"))))


def _with_day(rows: pa.Table) -> pa.Table:
    moment = pc.coalesce(pc.cast(rows["minute"], pa.float64()), rows["at"], pa.scalar(0.0))
    numbers = pc.dictionary_encode(pc.cast(pc.floor(pc.divide(moment, float(_DAY))), pa.int64()))
    days = pa.chunked_array(
        [
            pa.array([day_at(number * _DAY) for number in chunk.dictionary.to_pylist()], pa.string()).take(
                chunk.indices
            )
            for chunk in numbers.chunks
        ],
        pa.string(),
    )
    return rows.append_column("day", days)


def split_days(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each day, without the day."""
    days = pc.unique(rows["day"]).to_pylist()
    for day in days:
        of_day = rows if len(days) == 1 else rows.filter(pc.equal(rows["day"], day))
        yield day, of_day.drop_columns(["day"])
