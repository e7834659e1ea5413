"""`python -m bench.bill_job RECORDS OUT`: `pairbus cost report` on a ledger, twice, and what it took.

The first report takes the segments into the table; the second one finds only the table. Then DuckDB makes
the sums of the bill, by hours, from the same Parquet. It runs in a process of its own, so that the peak of
its memory is its own. In local mode all of Spark, driver and executors, is one Java process, and the Python
workers that it starts: the peaks of all of them and of this interpreter are what a report takes.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from bench.processor import members, processor_seconds
from bench.records import FIRST
from pairbus.cost.page import render_page
from pairbus.cost.sheet import default_sheet
from pairbus.spark import open_session
from pairbus.spark.bill import BillRun, bill_ledger
from pairbus.spark.operations import is_small

__all__ = ["main"]

_NOW = FIRST + 400 * 86400.0
_SAME = """
    SELECT pair, namespace, entity, stage, minute - minute % 3600 AS hour, outage, kind = 'send',
        sum(count), sum(count * size_class), sum(unknown), sum(bytes)
    FROM read_parquet('{records}/operations-*.parquet/*.parquet') WHERE row = 'operation' GROUP BY ALL
"""


def peak_kilobytes(pid: int | str) -> int:
    """The most memory that a process has had in use."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))


def report(spark: object, records: Path, out: Path) -> BillRun:
    """What the command does."""
    run = bill_ledger(spark, records, default_sheet(), now=_NOW, out=out)  # type: ignore[arg-type]
    (out / "report.html").write_text(render_page(run.report, now=_NOW), encoding="utf-8")
    return run


def time_of_duckdb(records: Path) -> float:
    """Seconds, the best of three: the first one reads the files into the system's memory."""
    import duckdb

    taken = []
    for _ in range(3):
        begun = time.perf_counter()
        duckdb.execute(_SAME.format(records=records)).fetchall()
        taken.append(time.perf_counter() - begun)
    return min(taken)


def main(arguments: list[str]) -> None:
    """Bill the ledger, and print what it took as JSON."""
    records, out = Path(arguments[0]), Path(arguments[1])
    moments = [time.perf_counter()]
    spark = open_session(app_name="pairbus-bench", is_short=is_small(records))
    try:
        java = spark.sparkContext._gateway.proc.pid
        moments.append(time.perf_counter())
        run = report(spark, records, out)
        moments.append(time.perf_counter())
        processor, peak = processor_seconds(java), sum(map(peak_kilobytes, members(java)))
        moments.append(time.perf_counter())
        report(spark, records, out)
        moments.append(time.perf_counter())
    finally:
        spark.stop()
    recorded = [share for share in run.report.by_stage if not share.derived]
    took = {
        "start": moments[1] - moments[0],
        "seconds": moments[2] - moments[1],
        "again": moments[4] - moments[3],
        "duckdb": time_of_duckdb(records),
        "spark_kilobytes": peak,
        "spark_processor": processor,
        "python_kilobytes": peak_kilobytes("self"),
        "units": sum(share.units for share in recorded),
        "outages": len(run.report.outages),
        "gaps": len(run.report.gaps),
        "bad_rows": run.report.bad_rows,
    }
    sys.stdout.write(json.dumps(took) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
