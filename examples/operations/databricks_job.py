"""A notebook or Python task of Databricks that drains the backlog of a pair on the cluster it runs on.

The connection strings are secrets that the cluster shows its driver and executors as environment variables
(`PRIMARY={{secrets/shop/primary}}` in its settings). Records lie where all of them can write.
"""

from typing import Any


def drain(spark: Any, records: str, state: str) -> int:
    """Drain once on this session; how many were moved. SyphonError says what cannot go on."""
    from pairbus.spark import PumpPair, Syphon

    syphon = Syphon(spark, PumpPair.from_env("PRIMARY", "SECONDARY"), records=records, state=state)
    summary = syphon.run(once=True, on_progress=print)
    if not summary.is_complete:
        raise RuntimeError(f"{summary.waiting} messages wait for entities that are down")
    return summary.moved
