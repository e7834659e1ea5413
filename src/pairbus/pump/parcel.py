"""A message on its way through our hands, and its receipt."""

from __future__ import annotations

from dataclasses import dataclass

from ..ledger.receipts import Receipt, operation_id
from .lanes import Held
from .transport import Delivery
from .unwrapping import Opened, Postmark

__all__ = ["Parcel", "ReceiptBook"]


@dataclass(slots=True, eq=False, kw_only=True)
class Parcel(Held):
    """A message in our hands, with all that is needed to send it, settle it and give a receipt for it."""

    delivery: Delivery
    mark: Postmark
    opened: Opened


@dataclass(frozen=True, slots=True)
class ReceiptBook:
    """Writes the receipts of one backlog queue."""

    pair: str
    queue: str
    writer: str

    def row(
        self,
        mark: Postmark,
        opened: Opened | None,
        *,
        size: int,
        attempts: int,
        now: float,
        outcome: str,
        reason: str | None,
    ) -> Receipt:
        """A receipt; what could not be opened has no path."""
        return {
            "op": operation_id(self.pair, self.queue, mark.sequence_number, mark.enqueued_ms),
            "pair": self.pair,
            "writer": self.writer,
            "path": opened.path if opened else "",
            "session": opened.session_id if opened else None,
            "message_id": opened.message_id if opened else "",
            "backlog_queue": self.queue,
            "sequence_number": mark.sequence_number,
            "enqueued": mark.enqueued_ms / 1000,
            "moved": now,
            "bytes": size,
            "attempts": attempts,
            "outcome": outcome,
            "reason": reason,
        }
