"""What it costs: a dated price sheet and a pure model. Money is decimal."""

from .bill import Bill, BillTerms, make_bill
from .estimate import Estimate, estimate
from .report import Report
from .sheet import PriceSheet, default_sheet, parse_sheet
from .system import System, parse_system

__all__ = [
    "Bill",
    "BillTerms",
    "Estimate",
    "PriceSheet",
    "Report",
    "System",
    "default_sheet",
    "estimate",
    "make_bill",
    "parse_sheet",
    "parse_system",
]
