"""A message on its way through our hands, and its receipt."""

from collections.abc import Iterable
from dataclasses import dataclass

from pairbus.ledger.receipts import Receipt, operation_id

from .steps import HeldMessage
from .transport import Delivery
from .unwrapping import OpenedEnvelope, Postmark


@dataclass(slots=True, eq=False, kw_only=True)
class Parcel(HeldMessage):
    """A message in our hands, with all that is needed to send it, settle it and give a receipt for it."""

    delivery: Delivery
    mark: Postmark
    opened: OpenedEnvelope


def deliveries_of(parcels: Iterable[Parcel]) -> list[Delivery]:
    """What the queue is told of them by."""
    return [parcel.delivery for parcel in parcels]


@dataclass(frozen=True, slots=True)
class ReceiptBook:
    """Writes the receipts of one backlog queue."""

    pair: str
    queue: str
    writer: str

    def moved(self, parcel: Parcel, now: float) -> Receipt:
        """The receipt of a message that the primary has taken."""
        return self._of(parcel, now, "moved", None)

    def buried(self, parcel: Parcel, now: float, reason: str) -> Receipt:
        """The receipt of a message that goes to the dead letters."""
        return self._of(parcel, now, "dead-lettered", reason)

    def unanswered(self, parcel: Parcel, now: float) -> Receipt:
        """That a message was sent, and may have arrived."""
        return {**self._of(parcel, now, "unknown", None), "unsure": 1}

    def _of(self, parcel: Parcel, now: float, outcome: str, reason: str | None) -> Receipt:
        return self.row(
            parcel.mark,
            parcel.opened,
            size=parcel.size,
            attempts=parcel.attempts,
            now=now,
            outcome=outcome,
            reason=reason,
        )

    def row(
        self,
        mark: Postmark,
        opened: OpenedEnvelope | None,
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
            "unsure": 0,
            "repeats": 0,
        }
