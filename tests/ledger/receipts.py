"""Receipts read back in plain Python."""

from collections.abc import Sequence
from pathlib import Path

from pairbus.ledger.receipts import Receipt
from pairbus.ledger.segment import read_segment


def read_receipts(segments: Sequence[Path]) -> dict[str, Receipt]:
    """The receipts of segments by operation id; of rows for one message the last one counts."""
    found: dict[str, Receipt] = {}
    for path in segments:
        for row in read_segment(path).rows:
            if isinstance(row.get("op"), str):
                found[row["op"]] = row  # type: ignore[assignment]
    return found
