"""Redirect records as a table, and what is wrong with them.

Whether something was lost can only be said of what is on record. So records that are not there, or cannot be
read, are *gaps*: each is told with its place, and no verdict is clean beside one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as F

from pairbus.client.state.records import KIND, RedirectRecord
from pairbus.ledger import adopt_segments, closed_segments, read_open_segments
from pairbus.ledger.chain import LINK_MARK, ChainHead, audit_chains, read_heads
from pairbus.ledger.columns import columns_of
from pairbus.pairing.names import TRANSFER_SEGMENT

from .schema import ddl_of, literal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_COLUMNS = columns_of(RedirectRecord)
_DDL = ddl_of(_COLUMNS.values())
# What a row must have to be one.
_NEEDED = [name for name, column in _COLUMNS.items() if not column.is_optional]
# So many files are named.
_NAMED = 10


class RedirectsRead(NamedTuple):
    """The records of some pairs with `pair` beside them, the gaps, and what else is worth knowing."""

    rows: DataFrame
    gaps: tuple[str, ...]
    notes: tuple[str, ...]


def pair_of(queue: Column) -> Column:
    """The pair that a backlog queue belongs to, by its name."""
    return F.regexp_extract(F.lower(queue), rf"^([^/]+)/{TRANSFER_SEGMENT}/", 1)


def read_redirects(spark: SparkSession, records: Sequence[Path], pairs: Sequence[str]) -> RedirectsRead:
    """The records of these pairs below all directories."""
    gaps: list[str] = []
    notes: list[str] = []
    closed: list[Path] = []
    heads: list[ChainHead] = []
    fresh: list[dict[str, Any]] = []
    for directory in records:
        adopt_segments(directory, KIND)
        told = read_heads(directory, KIND)
        opened = read_open_segments(directory, KIND)
        segments = closed_segments(directory, KIND)
        for path in segments:
            opened.pop(path.name, None)
        closed += segments
        for name, one in opened.items():
            fresh += one.rows
            gaps += _tell_bad({f"{directory / name}, which is being written": one.bad})
        data = {str(path): path.read_bytes() for path in segments}
        audit = audit_chains(told, {**data, **{name: one.data for name, one in opened.items()}})
        gaps += [*_missing(directory), *audit.gaps]
        notes += audit.notes
        heads += told
    if not (closed or fresh or heads):
        gaps.append("there are no redirect records: a client writes them if it has a state_dir")
    cells = [tuple(row.get(name) for name in _COLUMNS) for row in fresh]
    rows = spark.createDataFrame(cells, _DDL).withColumn("file", F.lit("a file that is being written"))
    if closed:
        # As text first: every line has to be a record, and a reader of JSON passes over some that are none.
        lines = spark.read.text([literal(path) for path in closed]).where(
            ~F.col("value").startswith(LINK_MARK)
        )
        found = lines.select(F.from_json("value", _DDL).alias("row"), F.input_file_name().alias("file"))
        rows = rows.unionByName(found.select("row.*", "file"))
    rows = rows.withColumn("pair", pair_of(F.col("queue"))).localCheckpoint(eager=True)
    is_whole = F.col("pair") != ""
    for name in _NEEDED:
        is_whole = is_whole & F.col(name).isNotNull()
    is_whole = F.coalesce(is_whole, F.lit(False))
    bad = rows.where(~is_whole).groupBy("file").count().orderBy("file").collect()
    gaps += _tell_bad({row["file"]: row["count"] for row in bad})
    whole, is_ours = rows.where(is_whole), F.col("pair").isin(*pairs)
    if others := whole.where(~is_ours).count():
        notes.append(f"{others:,} redirect records are of other pairs, and are left out")
    return RedirectsRead(whole.where(is_ours), tuple(gaps), tuple(notes))


def _missing(directory: Path) -> list[str]:
    if not directory.is_dir():
        return [f"there is no directory {directory}"]
    if not any(directory.iterdir()):
        return [f"there is nothing in {directory}"]
    return []


def _tell_bad(bad: dict[str, int]) -> list[str]:
    counts = {place: count for place, count in Counter(bad).most_common() if count}
    told = [f"{count:,} redirect records cannot be read in {place}" for place, count in counts.items()]
    if len(told) > _NAMED:
        told[_NAMED:] = [f"and so it is in {len(told) - _NAMED:,} more files"]
    return told
