"""Redirect records as a table, and what is wrong with them.

Whether something was lost can only be said of what is on record. So records that are not there, or cannot be
read, are *gaps*: each is told with its place, and no verdict is clean beside one.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as F

from pairbus.client.state.records import KIND, RedirectRecord
from pairbus.ledger.chain import LINK_MARK, ChainAudit, CommitKey, HeadFile, is_unchained, split_commits
from pairbus.ledger.columns import cells_of, columns_of
from pairbus.ledger.generation import Manifest
from pairbus.ledger.record_files import RecordFiles
from pairbus.ledger.segment import SegmentRead, adopt_segments, parse_lines
from pairbus.ledger.shipped import shipped_to
from pairbus.ledger.silence import tell_silent
from pairbus.ledger.store_files import StoreFiles, begin_anew
from pairbus.pairing.names import TRANSFER_SEGMENT
from pairbus.stores.places import RecordPlace, StoreUri
from pairbus.stores.store import open_store

from .objects import object_lines, tell_gone
from .schema import ddl_of, literal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_COLUMNS = columns_of(RedirectRecord)
_DDL = ddl_of(_COLUMNS.values())
# What a row must have to be one.
_NEEDED = [name for name, column in _COLUMNS.items() if not column.is_optional]
# So many files are named.
_NAMED = 10
_READINGS = 5


class RedirectsRead(NamedTuple):
    """Records of some pairs with `pair` beside them; `since` when there are all, 0 if none was removed."""

    rows: DataFrame
    gaps: tuple[str, ...]
    notes: tuple[str, ...]
    since: float


def pair_of(queue: Column) -> Column:
    """The pair that a backlog queue belongs to, by its name."""
    return F.regexp_extract(F.lower(queue), rf"^([^/]+)/{TRANSFER_SEGMENT}/", 1)


def read_redirects(
    spark: SparkSession, records: Sequence[RecordPlace], pairs: Sequence[str]
) -> RedirectsRead:
    """The records of these pairs in all places. Begins anew when a file was removed in time, or shipped."""
    for _ in range(_READINGS - 1):
        with suppress(FileNotFoundError):
            return _read_redirects(spark, records, pairs)
    return _read_redirects(spark, records, pairs)


def _read_redirects(
    spark: SparkSession, records: Sequence[RecordPlace], pairs: Sequence[str]
) -> RedirectsRead:
    found = _Found()
    for place in records:
        if isinstance(place, StoreUri):
            begin_anew(open_store(place), partial(found.add_store, place, now=time.time()))
        else:
            found.add_directory(place, now=time.time())
    gaps, notes = found.gaps, found.notes
    if found.unchained:
        notes.append(f"{found.unchained:,} redirect records are of version 0.1.0, and not chained")
    if copies := found.choose():
        notes.append(f"{copies:,} files hold redirect records that stand elsewhere too: each counts once")
    if not (found.sources or found.has_heads):
        gaps.append("there are no redirect records: a client writes them if it has a state_dir")
    rows = tell_gone(
        lambda: found.load(spark).withColumn("pair", pair_of(F.col("queue"))).localCheckpoint(eager=True)
    )
    is_whole = F.col("pair") != ""
    for name in _NEEDED:
        is_whole = is_whole & F.col(name).isNotNull()
    is_whole = F.coalesce(is_whole, F.lit(False))
    bad = rows.where(~is_whole).groupBy("file").count().orderBy("file").collect()
    gaps += _tell_bad({row["file"]: row["count"] for row in bad})
    whole, is_ours = rows.where(is_whole), F.col("pair").isin(*pairs)
    if others := whole.where(~is_ours).count():
        notes.append(f"{others:,} redirect records are of other pairs, and are left out")
    return RedirectsRead(whole.where(is_ours), tuple(gaps), tuple(notes), found.since)


class _Source(NamedTuple):
    """A segment: in a directory, being written there if it was `read`; or in a store."""

    file: Path
    size: int
    keys: list[CommitKey]
    is_damaged: bool
    read: SegmentRead | None = None
    store: StoreUri | None = None

    @property
    def rank(self) -> tuple[bool, bool, int]:
        """Which of several counts: what is whole, what is in a store and so closed, the largest."""
        return self.is_damaged, self.store is None, -self.size

    @property
    def data(self) -> bytes:
        if self.read is not None:
            return self.read.data
        return self.file.read_bytes() if self.store is None else open_store(self.store).read(self.file.name)


class _Found:
    """What there is in all places. Copies may be anywhere, older, and renamed: every commit counts once."""

    def __init__(self) -> None:
        self.gaps: list[str] = []
        self.notes: list[str] = []
        self.has_heads = False
        self.since = 0.0
        self.unchained = 0
        self.sources: list[_Source] = []
        # Of those: what counts as it is, and the rows that count of the others.
        self._whole: list[_Source] = []
        self._rows: list[dict[str, Any]] = []

    def add_directory(self, directory: Path, *, now: float) -> None:
        adopt_segments(directory, KIND)
        files = RecordFiles.list(directory, KIND)
        audit = files.audit(must_succeed=True)
        self.gaps += _missing(directory)
        if place := shipped_to(directory):
            self.gaps.append(f"records of {directory} are shipped to {place}: give that as --records")
        self._add_audit(audit, files.heads, files.table.manifest)
        self.gaps += tell_silent(files.later, now=now)
        for name, one in files.opened.items():
            self.gaps += _tell_bad({f"{directory / name}, which is being written": one.bad})
            self._add(directory / name, str(directory / name), audit, size=len(one.data), read=one)
        for path in files.closed:
            self._add(path, str(path), audit, size=path.stat().st_size)

    def add_store(self, place: StoreUri, *, now: float) -> None:
        files = StoreFiles.list(open_store(place), KIND)
        audit = files.audit(must_succeed=True)
        # Nothing was kept of a reading that was begun anew.
        self._add_audit(audit, files.heads, files.table.manifest)
        self.gaps += tell_silent(files.later, now=now)
        for name in files.fresh:
            self._add(Path(name), f"{files.store.place}/{name}", audit, store=place)

    def _add_audit(self, audit: ChainAudit, heads: Sequence[HeadFile], manifest: Manifest) -> None:
        self.gaps += audit.gaps
        self.notes += audit.notes
        self.unchained += audit.unchained
        # Where all was removed in time, and all have ended, the manifest says so.
        self.has_heads |= bool(heads or manifest.generation)
        self.since = max(self.since, manifest.since)

    def _add(
        self,
        file: Path,
        place: str,
        audit: ChainAudit,
        *,
        size: int = 0,
        read: SegmentRead | None = None,
        store: StoreUri | None = None,
    ) -> None:
        keys, is_damaged = audit.contents[place], place in audit.damaged
        self.sources.append(_Source(file, size, keys, is_damaged, read, store))

    def choose(self) -> int:
        """Have every commit once; how many files repeat what stands elsewhere."""
        seen: set[CommitKey] = set()
        copies = 0
        for source in sorted(self.sources, key=lambda source: source.rank):
            keys = source.keys
            if any(is_unchained(key) for key in keys):
                # Those of version 0.1.0 have a name each: a smaller one of that name is older.
                named = ("", 0, source.file.name)
                keys = [] if named in seen else keys
                seen.add(named)
            fresh = set(keys) - seen
            seen |= fresh
            is_copy = len(fresh) < len(source.keys)
            copies += is_copy
            if is_copy:
                self._rows += _rows_of(source, fresh)
            elif source.read is not None:
                self._rows += source.read.rows
            else:
                self._whole.append(source)
        return copies

    def load(self, spark: SparkSession) -> DataFrame:
        """All rows that were chosen, each with the file that it is in."""
        cells = [cells_of(RedirectRecord, row) for row in self._rows]
        rows = spark.createDataFrame(cells, _DDL).withColumn("file", F.lit("a file that is being written"))
        # As text first: every line has to be a record, and a reader of JSON passes over some that are none.
        lines: list[DataFrame] = []
        if paths := [source.file for source in self._whole if source.store is None]:
            text = spark.read.text([literal(path) for path in paths])
            lines.append(text.select("value", F.input_file_name().alias("file")))
        stores = dict.fromkeys(source.store for source in self._whole)
        for place in stores:
            if place is not None:
                names = [source.file.name for source in self._whole if source.store == place]
                lines.append(object_lines(spark, place, names))
        for some in lines:
            told = some.where(~F.col("value").startswith(LINK_MARK))
            parsed = told.select(F.from_json("value", _DDL).alias("row"), "file")
            rows = rows.unionByName(parsed.select("row.*", "file"))
        return rows


def _rows_of(source: _Source, wanted: set[CommitKey]) -> list[dict[str, Any]]:
    """The rows of some commits, each once."""
    found: list[dict[str, Any]] = []
    for commit, part in split_commits(str(source.file), source.data) if wanted else ():
        if commit.key in wanted:
            wanted = wanted - {commit.key}
            found += parse_lines(bytes(part)).rows
    return found


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
