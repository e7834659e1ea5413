"""The verdict: of everything that was redirected, what arrived, what waits, and what is missing.

1. Three sources are joined by message id and path: the redirect records of clients, the receipts of pumps,
   and a peek of the backlog queues and their dead letters.
2. They are looked at in this order: redirect records, queues, receipts. A message has its receipt before it
   leaves its queue, so one that moves meanwhile is found in one of the two places, and one that is redirected
   meanwhile is not asked for.
3. Rows that a running process has not yet closed are read as well.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from pairbus.backlog.discovery import Backlog, discover
from pairbus.client.state.records import KIND as REDIRECTS
from pairbus.client.state.records import RedirectRecord
from pairbus.ledger import adopt_segments, closed_segments, read_segment
from pairbus.ledger.columns import RowColumn, columns_of
from pairbus.ledger.receipts import KIND as RECEIPTS
from pairbus.ledger.receipts import Receipt
from pairbus.portal import Portal
from pairbus.pump import PumpOptions, PumpPair

from .leash.epochs import Shard, deal
from .peeking import SEEN_DDL, peek_shards
from .receipts import load_receipts
from .schema import ddl_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_REDIRECTED = columns_of(RedirectRecord).values()
# What a verdict asks of a receipt.
_HANDLED = [columns_of(Receipt)[name] for name in ("op", "message_id", "path", "outcome")]
_KEY = ["message_id", "path"]
# So many are named; all are counted.
_NAMED = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingMessage:
    """A message that was redirected, and is nowhere."""

    message_id: str
    path: str
    queue: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Messages by what became of them. `duplicated` were moved more than once, and are counted among those
    delivered; `unrecorded` have no redirect record here, and are counted among the others too.
    """

    redirected: int
    delivered: int
    waiting: int
    dead_lettered: int
    lost: int
    duplicated: int
    unrecorded: int
    missing: tuple[MissingMessage, ...]
    notes: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Whether nothing is missing."""
        return self.lost == 0


def verify(
    spark: SparkSession,
    backlogs: Sequence[Backlog],
    *,
    records: Sequence[Path],
    options: PumpOptions | None = None,
    shards: int = 2,
) -> Verdict:
    """Judge what is recorded below these directories."""
    portal = Portal("pairbus-discovery")
    try:
        found = portal.run(discover, backlogs)
    finally:
        portal.close(timeout=10.0)
    redirects = _load_redirects(spark, records)
    pairs = tuple(one.pair for one in backlogs)
    seen = _peek(spark, pairs, deal(found.queues, shards), options or PumpOptions())
    keyed = _judge(redirects, seen, _load_handled(spark, records)).cache()
    try:
        return _count(keyed, notes=found.notes)
    finally:
        keyed.unpersist()


def _load_redirects(spark: SparkSession, records: Sequence[Path]) -> DataFrame:
    closed: list[Path] = []
    fresh: list[dict[str, Any]] = []
    for directory in records:
        adopt_segments(directory, REDIRECTS)
        fresh += _read_open(directory, REDIRECTS)
        closed += closed_segments(directory, REDIRECTS)
    rows = _table(spark, fresh, _REDIRECTED)
    if closed:
        rows = rows.unionByName(spark.read.schema(rows.schema).json([str(path) for path in closed]))
    return _normal(rows.where("message_id IS NOT NULL"))


def _load_handled(spark: SparkSession, records: Sequence[Path]) -> DataFrame:
    fresh = [row for directory in records for row in _read_open(directory, RECEIPTS)]
    rows = _table(spark, fresh, _HANDLED)
    for directory in records:
        adopt_segments(directory, RECEIPTS)
        rows = rows.unionByName(load_receipts(spark, directory).select(*rows.columns))
    return _normal(rows.dropDuplicates(["op"]))


def _table(spark: SparkSession, rows: Sequence[Mapping[str, Any]], columns: Iterable[RowColumn]) -> DataFrame:
    cells = [tuple(row.get(column.name) for column in columns) for row in rows]
    return spark.createDataFrame(cells, ddl_of(columns))


def _read_open(directory: Path, kind: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for path in sorted(directory.glob(f".{kind}-*.open")):
        try:
            rows += read_segment(path).rows
        except FileNotFoundError:  # it was closed meanwhile, and is read as such
            continue
    return rows


def _normal(rows: DataFrame) -> DataFrame:
    """Paths are case-insensitive."""
    return rows.withColumn("path", F.lower(F.col("path")))


def _peek(
    spark: SparkSession, pairs: tuple[PumpPair, ...], shards: Sequence[Shard], options: PumpOptions
) -> DataFrame:
    """What lies in the queues now."""
    count = len(shards)
    rows = spark.range(0, count, 1, count).mapInArrow(peek_shards(pairs, shards, options), SEEN_DDL)
    return _normal(rows).localCheckpoint(eager=True)


def _judge(redirects: DataFrame, seen: DataFrame, handled: DataFrame) -> DataFrame:
    """One row a message, with what became of it."""
    none = {
        "redirected": F.lit(0),
        "waits": F.lit(0),
        "dead": F.lit(0),
        "moves": F.lit(0),
        "burials": F.lit(0),
    }
    unplaced = {"queue": F.lit(None).cast("string"), "at": F.lit(None).cast("double")}
    is_moved = F.when(F.col("outcome") == "moved", 1).otherwise(0)
    is_dead = F.col("is_dead").cast("int")
    columns = [*_KEY, *none, *unplaced]
    rows = (
        redirects.withColumns({**none, "redirected": F.lit(1)})
        .select(*columns)
        .union(seen.withColumns({**none, **unplaced, "waits": 1 - is_dead, "dead": is_dead}).select(*columns))
        .union(
            handled.withColumns({**none, **unplaced, "moves": is_moved, "burials": 1 - is_moved}).select(
                *columns
            )
        )
    )
    sums = [F.sum(name).alias(name) for name in none]
    verdict = (
        F.when(F.col("waits") > 0, "waiting")
        .when(F.col("moves") > 0, "delivered")
        .when(F.col("dead") + F.col("burials") > 0, "dead-lettered")
        .otherwise("lost")
    )
    places = [F.max("queue").alias("queue"), F.min("at").alias("at")]
    return rows.groupBy(*_KEY).agg(*sums, *places).withColumn("verdict", verdict)


def _count(keyed: DataFrame, *, notes: tuple[str, ...]) -> Verdict:
    def are(verdict: str) -> Any:
        return F.count_if(F.col("verdict") == verdict)

    row = keyed.select(
        F.count_if(F.col("redirected") > 0).alias("redirected"),
        are("delivered").alias("delivered"),
        are("waiting").alias("waiting"),
        are("dead-lettered").alias("dead_lettered"),
        are("lost").alias("lost"),
        F.count_if(F.col("moves") > 1).alias("duplicated"),
        F.count_if(F.col("redirected") == 0).alias("unrecorded"),
    ).collect()[0]
    lost = keyed.where("verdict = 'lost'").orderBy("at").limit(_NAMED) if row["lost"] else None
    names = [entry.name for entry in dataclasses.fields(MissingMessage)]
    missing = [] if lost is None else lost.select(*names).collect()
    return Verdict(
        **row.asDict(), missing=tuple(MissingMessage(**found.asDict()) for found in missing), notes=notes
    )
