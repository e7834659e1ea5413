"""The pump: moves messages from backlog queues to where they belong.

Its names are imported with their first use: whoever only asks where a namespace is needs no pump.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pairbus.lazy import on_first_use

if TYPE_CHECKING:
    from pairbus.wire.errors import TransportError

    from .options import PumpOptions
    from .pair import PumpPair, Side
    from .pump import Pump
    from .summary import PathTally, PumpSummary

__all__ = ["PathTally", "Pump", "PumpOptions", "PumpPair", "PumpSummary", "Side", "TransportError"]

_HOMES = {
    "pairbus.pump.options": ("PumpOptions",),
    "pairbus.pump.pair": ("PumpPair", "Side"),
    "pairbus.pump.pump": ("Pump",),
    "pairbus.pump.summary": ("PathTally", "PumpSummary"),
    "pairbus.wire.errors": ("TransportError",),
}

__getattr__, __dir__ = on_first_use(__name__, _HOMES)
