"""The pump: moves messages from backlog queues to where they belong."""

from pairbus.wire.errors import TransportError

from .options import PumpOptions
from .pair import PumpPair, Side
from .pump import Pump
from .summary import PathTally, PumpSummary

__all__ = ["PathTally", "Pump", "PumpOptions", "PumpPair", "PumpSummary", "Side", "TransportError"]
