"""The data pipeline on Spark: the only place that imports pyspark, and that with its first use.

A drain in a program:

    from pairbus.spark import PumpPair, Syphon

    Syphon(spark, PumpPair.from_env("CONTOSO", "CONTOSO_DR"), state="state").run(once=True)
"""

from typing import TYPE_CHECKING

from pairbus.lazy import on_first_use

if TYPE_CHECKING:
    from pairbus.backlog.backlog import Backlog
    from pairbus.pump.options import PumpOptions
    from pairbus.pump.pair import PumpPair, Side
    from pairbus.stores.errors import RecordStoreError
    from pairbus.wire.errors import TransportError

    from .engine import SyphonError
    from .receipts import compact_receipts, load_receipts
    from .session import open_session
    from .source.source import register
    from .summary import SyphonSummary
    from .syphon import Syphon, SyphonProgress
    from .verdict import MissingMessage, Verdict, verify
    from .views import create_views

__all__ = [
    "Backlog",
    "MissingMessage",
    "PumpOptions",
    "PumpPair",
    "RecordStoreError",
    "Side",
    "Syphon",
    "SyphonError",
    "SyphonProgress",
    "SyphonSummary",
    "TransportError",
    "Verdict",
    "compact_receipts",
    "create_views",
    "load_receipts",
    "open_session",
    "register",
    "verify",
]

# Where the names are that are imported with their first use.
_HOMES = {
    "pairbus.backlog.backlog": ("Backlog",),
    "pairbus.pump.options": ("PumpOptions",),
    "pairbus.pump.pair": ("PumpPair", "Side"),
    "pairbus.spark.engine": ("SyphonError",),
    "pairbus.spark.receipts": ("compact_receipts", "load_receipts"),
    "pairbus.spark.session": ("open_session",),
    "pairbus.spark.source.source": ("register",),
    "pairbus.spark.summary": ("SyphonSummary",),
    "pairbus.spark.syphon": ("Syphon", "SyphonProgress"),
    "pairbus.spark.verdict": ("MissingMessage", "Verdict", "verify"),
    "pairbus.spark.views": ("create_views",),
    "pairbus.stores.errors": ("RecordStoreError",),
    "pairbus.wire.errors": ("TransportError",),
}

__getattr__, __dir__ = on_first_use(__name__, _HOMES)
