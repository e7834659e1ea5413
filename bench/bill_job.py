"""`python -m bench.bill_job RECORDS OUT`: one run of `pairbus cost report` on a ledger, and what it took.

It runs in a process of its own, so that the peak of its memory is its own. In local mode all of Spark, driver
and executors, is one Java process: its peak and that of this interpreter are what the driver takes.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from bench.records import FIRST
from pairbus.cost import default_sheet
from pairbus.cost.page import render_page
from pairbus.spark import open_session
from pairbus.spark.bill import bill_ledger
from pairbus.spark.operations import is_small

__all__ = ["main"]


def peak_kilobytes(pid: int | str) -> int:
    """The most memory that a process has had in use."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))


def processor_seconds(pid: int) -> float:
    """The processor time that a process has had so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main(arguments: list[str]) -> None:
    """Bill the ledger, and print what it took as JSON."""
    records, out = Path(arguments[0]), Path(arguments[1])
    begun = time.perf_counter()
    spark = open_session(app_name="pairbus-bench", is_short=is_small(records))
    opened = time.perf_counter()
    try:
        now = FIRST + 400 * 86400.0
        run = bill_ledger(spark, records, default_sheet(), now=now, out=out)
        (out / "report.html").write_text(render_page(run.report, now=now), encoding="utf-8")
        done = time.perf_counter()
        java = spark.sparkContext._gateway.proc.pid
        peak, processor = peak_kilobytes(java), processor_seconds(java)
    finally:
        spark.stop()
    recorded = [share for share in run.report.by_stage if not share.derived]
    took = {
        "start": opened - begun,
        "seconds": done - opened,
        "java_kilobytes": peak,
        "java_processor": processor,
        "python_kilobytes": peak_kilobytes("self"),
        "units": sum(share.units for share in recorded),
        "outages": len(run.report.outages),
        "gaps": len(run.report.gaps),
        "bad_rows": run.report.bad_rows,
    }
    sys.stdout.write(json.dumps(took) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
