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
from pairbus.ledger import SegmentRead, adopt_segments
from pairbus.ledger.chain import LINK_MARK
from pairbus.ledger.columns import columns_of
from pairbus.ledger.record_files import RecordFiles
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
    closed: dict[str, Path] = {}
    opened: dict[str, SegmentRead] = {}
    sizes: dict[str, int] = {}
    has_heads = False
    unchained = 0
    for directory in records:
        adopt_segments(directory, KIND)
        files = RecordFiles.list(directory, KIND)
        audit = files.audit(must_succeed=True)
        gaps += [*_missing(directory), *audit.gaps]
        notes += audit.notes
        unchained += audit.unchained
        has_heads |= bool(files.heads)
        # A segment that was copied is in two directories, and counts once; the larger one is the newer.
        for name, one in files.opened.items():
            gaps += _tell_bad({f"{directory / name}, which is being written": one.bad})
            if len(one.data) > sizes.get(name, -1):
                sizes[name], opened[name] = len(one.data), one
                closed.pop(name, None)
        for path in files.closed:
            if (size := path.stat().st_size) > sizes.get(path.name, -1):
                sizes[path.name], closed[path.name] = size, path
                opened.pop(path.name, None)
    if unchained:
        notes.append(f"{unchained:,} redirect records are of version 0.1.0, and not chained")
    fresh: list[dict[str, Any]] = [row for one in opened.values() for row in one.rows]
    if not (closed or fresh or has_heads):
        gaps.append("there are no redirect records: a client writes them if it has a state_dir")
    cells = [tuple(row.get(name) for name in _COLUMNS) for row in fresh]
    rows = spark.createDataFrame(cells, _DDL).withColumn("file", F.lit("a file that is being written"))
    if closed:
        # As text first: every line has to be a record, and a reader of JSON passes over some that are none.
        lines = spark.read.text([literal(path) for path in closed.values()]).where(
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
