"""Records that many processes write side by side: segment files, closed by a rename."""

from .operation_log import OperationLog, OperationRecorder, OperationSums
from .operations import Ledger, Operation, find_gaps, read_operations
from .segment import (
    SegmentRead,
    SegmentWriter,
    adopt_segments,
    closed_segments,
    read_open_segments,
    read_segment,
)

__all__ = [
    "Ledger",
    "Operation",
    "OperationLog",
    "OperationRecorder",
    "OperationSums",
    "SegmentRead",
    "SegmentWriter",
    "adopt_segments",
    "closed_segments",
    "find_gaps",
    "read_open_segments",
    "read_operations",
    "read_segment",
]
