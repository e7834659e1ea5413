"""The backlog and what was written down about it, as views to be asked in SQL.

`backlog` and `dead_letters` are looked at anew with each query, by peek. The others are as they were when the
view was made: they are read from files that others write.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame

from pairbus.backlog.backlog import Backlog
from pairbus.backlog.discovery import discover_now
from pairbus.errors import ConfigurationError
from pairbus.pump.pair import PumpPair
from pairbus.stores.places import RecordPlace

from .operations import read_operations
from .receipts import load_receipts
from .redirects import read_redirects
from .source.source import FORMAT, register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VIEWS = ("backlog", "dead_letters", "receipts", "redirects", "ledger")


def create_views(
    spark: SparkSession,
    pair: Backlog | PumpPair,
    *,
    records: Sequence[RecordPlace] = (),
    names: Collection[str] = VIEWS,
) -> None:
    """Make the temporary views of a pair; `records` are the directories or stores with its records.

    The pair's sides are given by the names of environment variables, or by host names.
    """
    backlog = pair if isinstance(pair, Backlog) else Backlog(pair=pair)
    places = [one for one in records if not isinstance(one, Path) or one.is_dir()]
    makers: dict[str, Callable[[], DataFrame]] = {
        "backlog": lambda: _load_queues(spark, backlog, dead_letters="no"),
        "dead_letters": lambda: _load_queues(spark, backlog, dead_letters="only"),
        "receipts": lambda: _all(load_receipts, spark, places),
        "redirects": lambda: read_redirects(spark, places, [backlog.name]).rows.drop("file"),
        "ledger": lambda: _all(partial(read_operations, now=time.time()), spark, places),
    }
    for name in names:
        makers[name]().createOrReplaceTempView(name)


def _load_queues(spark: SparkSession, backlog: Backlog, *, dead_letters: str) -> DataFrame:
    found = discover_now([backlog])
    if not found.queues:
        raise ConfigurationError(
            f"There are no backlog queues of {backlog.name}: `pairbus provision` creates them"
        )
    register(spark)
    side = backlog.pair.secondary
    options = {
        "connectionStringEnv": side.env,
        "host": side.host,
        "credential": side.credential if side.host else None,
        "caFile": side.ca_file,
        "entity": ",".join(queue.name for queue in found.queues),
        "deadLetters": dead_letters,
        "envelope": "true",
    }
    given = {name: value for name, value in options.items() if value is not None}
    return spark.read.format(FORMAT).options(**given).load()


def _all(
    load: Callable[[SparkSession, RecordPlace], DataFrame], spark: SparkSession, places: Sequence[RecordPlace]
) -> DataFrame:
    if not places:
        raise ConfigurationError("There are no records: --records names the directories that have them")
    return reduce(DataFrame.unionByName, [load(spark, one) for one in places])


def ask(spark: SparkSession, query: str) -> DataFrame:
    """The answer to a query; ConfigurationError, in one line, for one that Spark cannot read."""
    try:
        return spark.sql(query)
    except (AnalysisException, ParseException) as error:
        told = (error.getMessage() or str(error)).strip().splitlines()
        raise ConfigurationError(f"The query is wrong: {told[0]}") from None
