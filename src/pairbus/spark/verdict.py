"""The verdict: of everything that was redirected, what arrived, what waits, and what is missing.

1. Three sources are joined by pair, path and message id, copy by copy: the redirect records of clients, the
   receipts of pumps, and a peek of the backlog queues and their dead letters. `ledger.reckoning` has the
   rules, and reckons with the columns here.
2. They are looked at in this order: redirect records, queues, receipts. A message has its receipt before it
   leaves its queue, so one that moves meanwhile is found in one of the two places, or in both and counts
   once; and one that is redirected meanwhile is not asked for. A queue comes before its dead letters.
3. A message that is redriven meanwhile goes against that order, and may be in neither place when they are
   looked at. So a loss is told after a second look only: what is truly lost is lost in both.
4. Rows that a running process has not yet closed are read as well.
5. What was redirected before records were removed (`ledger.retention`) is not judged, be its record gone or
   not: its receipt may be. Queues that records name are looked at whether or not they are below the count.
6. What is not on record cannot be missed. Records that are not there or cannot be read make the verdict
   incomplete, and it is not clean then. Nor is anything called lost while a host that ships its receipts may
   have more of them: then that is what makes the verdict incomplete.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pairbus.backlog.backlog import Backlog
from pairbus.backlog.discovery import Discovery, discover_now
from pairbus.backlog.served_queue import ServedQueue
from pairbus.client.state.directory import spool_dir
from pairbus.client.state.records import UNANSWERED, UNKNOWN
from pairbus.client.state.spool_aside import list_damaged, list_refused
from pairbus.client.state.spool_store import newer_directories
from pairbus.client.state.spool_survey import list_unreadable, list_waiting
from pairbus.errors import ConfigurationError
from pairbus.ledger.chain import moment
from pairbus.ledger.receipts import KIND as RECEIPTS
from pairbus.ledger.reckoning import KeyCounts, Reckoning, place_copy, reckon
from pairbus.ledger.retention import DAY
from pairbus.pump.options import PumpOptions
from pairbus.pump.pair import PumpPair
from pairbus.stores.places import RecordPlace, parse_place

from .leash.epochs import Shard, deal
from .peeking import SEEN_DDL, peek_shards
from .receipts import ReceiptsRead, adopt_all, read_receipts
from .redirects import pair_of, read_redirects

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

_KEY = ["pair", "path", "message_id"]
_SIGNS = ("has_arrived", "lies_dead", "lies_waiting")
# What else is known of a copy, and counted by key.
_SENDS = ("repeated", "doubtful")
# What came again and was buried may have been redriven since, if it does not lie there.
_ECHO = "was_buried"
# So many are named; all are counted.
_NAMED = 1000
_LOOKS = 2
# A message that came so many seconds before a record was written is not the one that it tells of.
_APART = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingMessage:
    """A message that was redirected, and is nowhere; `count` times, if its id was sent several times."""

    message_id: str
    path: str
    queue: str
    at: float
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Messages by what became of them: delivered, waiting, dead-lettered and lost together are redirected,
    recovered and unexpected together.

    `refused` stand beside them: a client had taken them into its spool, and no side will ever take them.
    `recovered` were found although their send had ended without an answer; `unexpected` have no redirect
    record here; `duplicated` were moved more often than redirected, and `at_most_duplicated` counts those
    that may have been. `gaps` are the reasons why the records do not tell everything.
    """

    redirected: int
    delivered: int
    waiting: int
    dead_lettered: int
    refused: int
    lost: int
    recovered: int
    unexpected: int
    duplicated: int
    at_most_duplicated: int
    missing: tuple[MissingMessage, ...]
    gaps: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether all records are there and whole, as far as can be told."""
        return not self.gaps

    @property
    def is_clean(self) -> bool:
        """Whether nothing is lost, and the records tell everything."""
        return self.lost == 0 and self.is_complete

    @property
    def is_spotless(self) -> bool:
        """Whether everything has besides arrived, once, and on record."""
        rest = self.waiting + self.dead_lettered + self.refused + self.unexpected + self.at_most_duplicated
        return self.is_clean and not rest


def verify(
    spark: SparkSession,
    backlogs: Sequence[Backlog],
    *,
    records: Sequence[RecordPlace | str],
    states: Sequence[Path] = (),
    options: PumpOptions | None = None,
    shards: int = 2,
) -> Verdict:
    """Judge what is recorded in `records`, and what clients have in the spools of their state directories."""
    names = [one.name.lower() for one in backlogs]
    if len(set(names)) < len(names):
        raise ConfigurationError(
            "two of the pairs have the same name, and so have their backlog queues: verify one at a time"
        )
    places = [parse_place(one) for one in records]
    found = discover_now(backlogs)
    spools = read_spools(states)
    redirects = read_redirects(spark, places, names)
    queues = _all_queues(found, redirects.rows, names)
    pairs = tuple(one.pair for one in backlogs)
    verdicts: list[Verdict] = []
    while len(verdicts) < _LOOKS and not (verdicts and verdicts[-1].lost == 0):
        seen = _peek(spark, pairs, deal(queues, shards), options or PumpOptions())
        handled = _load_handled(spark, places, names)
        since = max(redirects.since, handled.since)
        judged = redirects.rows.where(F.col("at") >= since)
        summed = _sum_up(_recorded(judged), seen, handled.rows, since=since)
        reckoned = _reckon(summed).cache()
        try:
            gaps = (*redirects.gaps, *handled.gaps, *spools.gaps)
            notes = (*found.notes, *redirects.notes, *handled.notes, *spools.notes)
            if since:
                notes += (f"what was redirected before {moment(since)} was removed, and is not judged",)
            told = _tell(reckoned, refused=spools.refused, gaps=gaps, notes=notes)
            verdicts.append(_without_unshipped(told, handled.behind))
        finally:
            reckoned.unpersist()
    return min(verdicts, key=lambda verdict: verdict.lost)


def _all_queues(found: Discovery, redirects: DataFrame, names: Sequence[str]) -> list[ServedQueue]:
    """Rule 5."""
    known = {queue.name.lower() for queue in found.queues}
    named = redirects.select("pair", F.lower("queue").alias("queue")).distinct().orderBy("queue").collect()
    more = [ServedQueue(names.index(row["pair"]), row["queue"]) for row in named if row["queue"] not in known]
    return [*found.queues, *more]


def _load_handled(spark: SparkSession, records: Sequence[RecordPlace], names: Sequence[str]) -> ReceiptsRead:
    """Signs by receipts. One that is in two directories is one."""
    frames: list[DataFrame] = []
    gaps: list[str] = []
    notes: list[str] = []
    since, behind = 0.0, list[str]()
    adopt_all(records, RECEIPTS)
    for place in records:
        found = read_receipts(spark, place)
        frames.append(found.rows)
        gaps += found.gaps
        notes += found.notes
        behind += found.behind
        if found.since:  # they are kept for a day longer than what they answer for
            since = max(since, found.since + DAY)
    is_moved = F.col("outcome") == "moved"
    handled = reduce(DataFrame.unionByName, frames).withColumns(
        {
            "pair": pair_of(F.col("backlog_queue")),
            "copy": F.lower(F.substring_index("op", ":", -3)),
            "has_arrived": (is_moved | (F.col("repeats") > 0)).cast("int"),
            "doubtful": F.col("unsure"),
            "repeated": F.greatest(F.col("repeats") - (~is_moved).cast("int"), F.lit(0)),
            _ECHO: (F.col("outcome") == "dead-lettered").cast("int"),
        }
    )
    rows = _signs(handled.where(F.col("pair").isin(*names)))
    return ReceiptsRead(rows, tuple(gaps), tuple(notes), since, tuple(dict.fromkeys(behind)))


def _peek(
    spark: SparkSession, pairs: tuple[PumpPair, ...], shards: Sequence[Shard], options: PumpOptions
) -> DataFrame:
    """Signs by what lies in the queues now."""
    count = len(shards)
    rows = spark.range(0, count, 1, count).mapInArrow(peek_shards(pairs, shards, options), SEEN_DDL)
    is_dead = F.col("is_dead").cast("int")
    seen = rows.withColumns(
        {
            "pair": pair_of(F.col("queue")),
            "copy": F.lower(F.col("copy")),
            "lies_dead": is_dead,
            "lies_waiting": 1 - is_dead,
        }
    )
    return _signs(seen).localCheckpoint(eager=True)


def _signs(rows: DataFrame) -> DataFrame:
    """One row a sign of a copy."""
    missing = {name: F.lit(0) for name in (*_SIGNS, *_SENDS, _ECHO) if name not in rows.columns}
    return _normal(rows.withColumns(missing)).select(*_KEY, "copy", *_SIGNS, *_SENDS, _ECHO)


def _normal(rows: DataFrame) -> DataFrame:
    """Paths are case-insensitive."""
    return rows.withColumn("path", F.lower(F.trim(F.col("path"), F.lit("/"))))


def _recorded(redirects: DataFrame) -> DataFrame:
    """By key: how many were redirected, surely or perhaps, and where and when the first of them was."""
    is_unsure, is_unanswered = (
        F.coalesce(F.col("outcome") == outcome, F.lit(False)) for outcome in (UNKNOWN, UNANSWERED)
    )
    return (
        _normal(redirects)
        .groupBy(*_KEY)
        .agg(
            F.count_if(~is_unsure & ~is_unanswered).alias("redirected"),
            F.count_if(is_unsure).alias("unsure"),
            F.count_if(is_unanswered).alias("unanswered"),
            F.max("queue").alias("queue"),
            F.min("at").alias("at"),
        )
    )


def _sum_up(recorded: DataFrame, seen: DataFrame, handled: DataFrame, *, since: float = 0.0) -> DataFrame:
    """One row a key, with all that `KeyCounts` asks for."""
    largest = [F.max(name).alias(name) for name in (*_SIGNS, *_SENDS, _ECHO)]
    copies = seen.unionByName(handled).groupBy(*_KEY, "copy").agg(*largest)
    place = place_copy(**{name: F.col(name) for name in _SIGNS})._asdict()
    place["echoed"] = F.col("has_arrived") * F.col(_ECHO) * (1 - F.col("lies_dead"))
    place["bygone"] = F.lit(0)
    if since:
        copies = copies.join(recorded.select(*_KEY, "at"), _KEY, "left")
        # A copy is called by the time when it came to its queue; its record is written then.
        came = F.substring_index("copy", ":", -1).try_cast("double") / 1000
        is_apart = F.coalesce(F.col("at") - came > _APART, F.lit(True))
        # A name that tells no time has been damaged.
        is_bygone = F.coalesce((came < since) & is_apart, F.lit(False)).cast("int")
        place = {name: column * (1 - is_bygone) for name, column in place.items()}
        place |= {name: F.col(name) * (1 - is_bygone) for name in _SENDS}
        place["bygone"] = is_bygone
    sums = [F.sum(name).alias(name) for name in {**place, **dict.fromkeys(_SENDS)}]
    placed = copies.withColumns(place).groupBy(*_KEY).agg(*sums)
    counts = {name: F.coalesce(name, F.lit(0)) for name in (*KeyCounts._fields, "unanswered")}
    counts["doubtful"] += counts.pop("unanswered")
    columns = [column.alias(name) for name, column in counts.items()]
    return recorded.join(placed, _KEY, "full").select(*_KEY, "queue", "at", *columns)


def _reckon(counted: DataFrame) -> DataFrame:
    def plain(function: Any) -> Any:
        return lambda *values: function(*map(F.lit, values))

    key = KeyCounts(*map(F.col, KeyCounts._fields))
    fates = reckon(key, least=plain(F.least), most=plain(F.greatest))
    return counted.withColumns(fates._asdict())


def _without_unshipped(told: Verdict, behind: tuple[str, ...]) -> Verdict:
    """Rule 6."""
    if not told.lost or not behind:
        return told
    gap = f"{told.lost:,} messages are missing, and receipts are not all here: of {', '.join(behind)}"
    return dataclasses.replace(
        told, lost=0, missing=(), gaps=(*told.gaps, f"{gap}; verify again in a minute")
    )


def _tell(reckoned: DataFrame, *, refused: int, gaps: tuple[str, ...], notes: tuple[str, ...]) -> Verdict:
    def total(name: str) -> Column:
        return F.coalesce(F.sum(name), F.lit(0)).cast("long").alias(name)

    told = ("redirected", "delivered", "waiting", "dead_lettered", *Reckoning._fields)
    row = reckoned.select(*map(total, told)).collect()[0].asDict()
    if unclear := row.pop("unclear"):
        told_unclear = f"{unclear:,} messages are lost unless others with their ids, which were redriven or "
        gaps = (*gaps, f"{told_unclear}came before records were removed, are the same ones")
    missing: list[Any] = []
    if row["lost"]:
        lost = reckoned.where("lost > 0").orderBy("at", "message_id").limit(_NAMED)
        names = [entry.name for entry in dataclasses.fields(MissingMessage)]
        missing = lost.withColumn("count", F.col("lost")).select(*names).collect()
    return Verdict(
        **row,
        refused=refused,
        missing=tuple(MissingMessage(**found.asDict()) for found in missing),
        gaps=gaps,
        notes=notes,
    )


class SpoolsRead(NamedTuple):
    """What spools say of messages that were taken and went nowhere: how many were refused, gaps, notes."""

    refused: int
    gaps: tuple[str, ...]
    notes: tuple[str, ...]


def read_spools(states: Sequence[Path]) -> SpoolsRead:
    """The spools of these state directories."""
    gaps: list[str] = []
    notes: list[str] = []
    refused = 0
    for state in states:
        refused += len(list_refused(state))
        gaps += [f"{one.size:,} bytes of the spool cannot be read: {one.file}" for one in list_damaged(state)]
        spool = spool_dir(state)
        gaps += [
            f"{size:,} bytes of the spool cannot be read: {file}"
            for file, size in list_unreadable(spool, now=time.time())
        ]
        gaps += [f"{path} was written by a newer version of pairbus" for path in newer_directories(spool)]
        if waiting := len(list_waiting(spool)):
            notes.append(f"{waiting:,} messages wait in {spool}, and went nowhere yet")
    return SpoolsRead(refused, tuple(gaps), tuple(notes))
