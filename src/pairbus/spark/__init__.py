"""The data pipeline on Spark: the only place that imports pyspark, and that with its first use.

from pairbus.spark import PumpPair, Syphon

Syphon(spark, PumpPair.from_env("CONTOSO", "CONTOSO_DR"), state="state").run(once=True)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pairbus.backlog.discovery import Backlog
    from pairbus.pump import PumpOptions, PumpPair, Side

    from .receipts import compact_receipts, load_receipts
    from .session import open_session
    from .summary import SyphonSummary
    from .syphon import Syphon, SyphonError, SyphonProgress
    from .verdict import MissingMessage, Verdict, verify

__all__ = [
    "Backlog",
    "MissingMessage",
    "PumpOptions",
    "PumpPair",
    "Side",
    "Syphon",
    "SyphonError",
    "SyphonProgress",
    "SyphonSummary",
    "Verdict",
    "compact_receipts",
    "load_receipts",
    "open_session",
    "verify",
]

_HOMES = {
    "Backlog": "pairbus.backlog.discovery",
    "MissingMessage": "pairbus.spark.verdict",
    "PumpOptions": "pairbus.pump",
    "PumpPair": "pairbus.pump",
    "Side": "pairbus.pump",
    "Syphon": "pairbus.spark.syphon",
    "SyphonError": "pairbus.spark.syphon",
    "SyphonProgress": "pairbus.spark.syphon",
    "SyphonSummary": "pairbus.spark.summary",
    "Verdict": "pairbus.spark.verdict",
    "compact_receipts": "pairbus.spark.receipts",
    "load_receipts": "pairbus.spark.receipts",
    "open_session": "pairbus.spark.session",
    "verify": "pairbus.spark.verdict",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value
