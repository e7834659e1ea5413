"""The lease of a pair, by which one syphon works on it at a time, wherever it runs."""

from .lease import LeaseState, PairLease
from .view import Holder, LeaseView, read_lease

__all__ = ["Holder", "LeaseState", "LeaseView", "PairLease", "read_lease"]
