"""`python -m bench.bill_job RECORDS OUT`: `pairbus cost report` on a ledger, twice, and what it took.

The first report takes the segments into the table; the second one finds only the table. Then DuckDB makes
the sums of the bill, by hours, from the same Parquet. In local mode all of Spark, driver and executors, is
one Java process, and the Python workers that it starts: the peaks of all and of this interpreter are what
a report takes, and their processor time is what counts where others use the machine as well.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from bench.processor import ended_seconds, members, processor_seconds
from bench.records import FIRST
from pairbus.cost.page import render_page
from pairbus.cost.sheet import default_sheet
from pairbus.spark import open_session
from pairbus.spark.bill import BillRun, bill_ledger
from pairbus.spark.operations import bill_settings, is_small

__all__ = ["main"]

_NOW = FIRST + 400 * 86400.0
_SAME = """
    SELECT pair, namespace, entity, stage, minute - minute % 3600 AS hour, outage, kind = 'send',
        sum(count), sum(count * size_class), sum(unknown), sum(bytes)
    FROM read_parquet('{records}/operations-*.parquet/*.parquet') WHERE row = 'operation' GROUP BY ALL
"""


def peak_kilobytes(pid: int | str) -> int:
    """The most memory that a process has had in use; 0 of one that has ended, as idle workers of Spark do."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")), 0)


def report(spark: Any, records: Path, out: Path) -> BillRun:
    """What the command does."""
    run = bill_ledger(lambda: spark, records, default_sheet(), now=_NOW, out=out)
    (out / "report.html").write_text(render_page(run.report, now=_NOW), encoding="utf-8")
    return run


class Spent(NamedTuple):
    """Seconds, and those of them on a processor."""

    seconds: float
    processor: float

    @classmethod
    def until_now(cls, java: int | None = None) -> Spent:
        """By this process, and by Java and its workers."""
        # Workers that have nothing to do for a while end.
        of_java = 0.0 if java is None else processor_seconds(java) + ended_seconds(java)
        return cls(time.perf_counter(), time.process_time() + of_java)

    def since(self, before: Spent) -> Spent:
        return Spent(self.seconds - before.seconds, self.processor - before.processor)


def time_of_duckdb(records: Path) -> Spent:
    """The best of three: the first one reads the files into the system's memory."""
    import duckdb

    taken = []
    for _ in range(3):
        begun = Spent.until_now()
        duckdb.execute(_SAME.format(records=records)).fetchall()
        taken.append(Spent.until_now().since(begun))
    return min(taken, key=lambda one: one.processor)


def main(arguments: list[str]) -> None:
    """Bill the ledger, and print what it took as JSON."""
    records, out = Path(arguments[0]), Path(arguments[1])
    begun = time.perf_counter()
    spark = open_session(
        app_name="pairbus-bench", is_short=is_small(records), settings=bill_settings(records)
    )
    try:
        java = spark.sparkContext._gateway.proc.pid
        moments = [Spent.until_now(java)]
        run = report(spark, records, out)
        moments.append(Spent.until_now(java))
        # Before DuckDB comes, which has memory of its own.
        peaks = [peak_kilobytes(pid) for pid in (*members(java), os.getpid())]
        moments.append(Spent.until_now(java))
        report(spark, records, out)
        moments.append(Spent.until_now(java))
    finally:
        spark.stop()
    first, again, ducks = moments[1].since(moments[0]), moments[3].since(moments[2]), time_of_duckdb(records)
    recorded = [share for share in run.report.by_stage if not share.derived]
    took = {
        "start": moments[0].seconds - begun,
        "seconds": first.seconds,
        "processor": first.processor,
        "again": again.seconds,
        "again_processor": again.processor,
        "duckdb": ducks.seconds,
        "duckdb_processor": ducks.processor,
        "kilobytes": sum(peaks),
        "peaks": peaks,
        "units": sum(share.units for share in recorded),
        "outages": len(run.report.outages),
        "gaps": len(run.report.gaps),
        "bad_rows": run.report.bad_rows,
    }
    sys.stdout.write(json.dumps(took) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
