"""Redirect records as a table, and what is wrong with them.

Whether something was lost can only be said of what is on record. So records that are not there, or cannot be
read, are *gaps*: each is told with its place, and no verdict is clean beside one.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as F

from pairbus.client.state.records import KIND, RedirectRecord
from pairbus.ledger import SegmentRead, adopt_segments
from pairbus.ledger.chain import LINK_MARK, ChainAudit, HeadFile, host_of, is_silent, moment
from pairbus.ledger.columns import columns_of
from pairbus.ledger.record_files import RecordFiles
from pairbus.ledger.store_files import StoreFiles, begin_anew
from pairbus.pairing.names import TRANSFER_SEGMENT
from pairbus.stores.places import RecordPlace, StoreUri
from pairbus.stores.store import open_store

from .objects import object_lines
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


def read_redirects(
    spark: SparkSession, records: Sequence[RecordPlace], pairs: Sequence[str]
) -> RedirectsRead:
    """The records of these pairs in all directories and stores."""
    found = _Found()
    for place in records:
        if isinstance(place, StoreUri):
            begin_anew(open_store(place), partial(found.add_store, place, now=time.time()))
        else:
            found.add_directory(place)
    gaps, notes = found.gaps, found.notes
    if found.unchained:
        notes.append(f"{found.unchained:,} redirect records are of version 0.1.0, and not chained")
    if not (found.closed or found.stored or found.opened or found.has_heads):
        gaps.append("there are no redirect records: a client writes them if it has a state_dir")
    rows = found.load(spark)
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


class _Found:
    """What there is in all places. A segment that is in two of them counts once."""

    def __init__(self) -> None:
        self.gaps: list[str] = []
        self.notes: list[str] = []
        self.closed: dict[str, Path] = {}
        self.stored: dict[str, StoreUri] = {}
        self.opened: dict[str, SegmentRead] = {}
        self.has_heads = False
        self.unchained = 0
        self._sizes: dict[str, int] = {}

    def add_directory(self, directory: Path) -> None:
        adopt_segments(directory, KIND)
        files = RecordFiles.list(directory, KIND)
        self.gaps += _missing(directory)
        self._add_audit(files.audit(must_succeed=True), files.heads)
        # One that was copied is in two directories; the larger one is the newer.
        for name, one in files.opened.items():
            self.gaps += _tell_bad({f"{directory / name}, which is being written": one.bad})
            if len(one.data) > self._sizes.get(name, -1) and name not in self.stored:
                self._sizes[name], self.opened[name] = len(one.data), one
                self.closed.pop(name, None)
        for path in files.closed:
            if (size := path.stat().st_size) > self._sizes.get(
                path.name, -1
            ) and path.name not in self.stored:
                self._sizes[path.name], self.closed[path.name] = size, path
                self.opened.pop(path.name, None)

    def add_store(self, place: StoreUri, *, now: float) -> None:
        files = StoreFiles.list(open_store(place), KIND)
        audit = files.audit(must_succeed=True)
        # Nothing was kept of a reading that was begun anew.
        self._add_audit(audit, files.heads)
        self.gaps += [
            f"host {host_of(head.writer)}: records up to {moment(head.at)}"
            for _, head in files.later
            if head is not None and is_silent(head, now=now)
        ]
        # What is in a store is closed, and so as large as it will ever be.
        for name in files.fresh:
            self.stored[name] = place
            self.closed.pop(name, None)
            self.opened.pop(name, None)

    def _add_audit(self, audit: ChainAudit, heads: Sequence[HeadFile]) -> None:
        self.gaps += audit.gaps
        self.notes += audit.notes
        self.unchained += audit.unchained
        self.has_heads |= bool(heads)

    def load(self, spark: SparkSession) -> DataFrame:
        """All rows, each with the file that it is in."""
        fresh: list[dict[str, Any]] = [row for one in self.opened.values() for row in one.rows]
        cells = [tuple(row.get(name) for name in _COLUMNS) for row in fresh]
        rows = spark.createDataFrame(cells, _DDL).withColumn("file", F.lit("a file that is being written"))
        # As text first: every line has to be a record, and a reader of JSON passes over some that are none.
        lines: list[DataFrame] = []
        if self.closed:
            text = spark.read.text([literal(path) for path in self.closed.values()])
            lines.append(text.select("value", F.input_file_name().alias("file")))
        for place in dict.fromkeys(self.stored.values()):
            names = [name for name, of in self.stored.items() if of == place]
            lines.append(object_lines(spark, place, names))
        for some in lines:
            told = some.where(~F.col("value").startswith(LINK_MARK))
            parsed = told.select(F.from_json("value", _DDL).alias("row"), "file")
            rows = rows.unionByName(parsed.select("row.*", "file"))
        return rows


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
