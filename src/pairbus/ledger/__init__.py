"""Records that many processes write side by side: segment files, closed by a rename."""

from .segment import SegmentRead, SegmentWriter, adopt_segments, closed_segments, read_segment

__all__ = ["SegmentRead", "SegmentWriter", "adopt_segments", "closed_segments", "read_segment"]
