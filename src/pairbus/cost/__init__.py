"""What it costs: a dated price sheet and a pure model. Money is decimal."""

from .estimate import Estimate, estimate
from .sheet import PriceSheet, default_sheet, parse_sheet
from .system import System, parse_system

__all__ = [
    "Estimate",
    "PriceSheet",
    "System",
    "default_sheet",
    "estimate",
    "parse_sheet",
    "parse_system",
]
