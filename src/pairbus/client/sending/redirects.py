"""What is told and put on record of messages on their way to the backlog."""

import logging
from collections.abc import Awaitable, Sequence
from typing import NamedTuple

from pairbus.client.direct.encoding import weigh, weigh_payloads
from pairbus.client.observers.observer import AttemptOutcome, Sending, SendNote
from pairbus.client.state.records import UNANSWERED, UNKNOWN, Records, RedirectRecord

from .message import Message, message_id_of, session_of
from .rounds import Shipment, outcome_of
from .surroundings import Surroundings
from .ticket import Ending, fate_of, in_time
from .wrapping import WrappedMessage

log = logging.getLogger(__name__)
# It is told here and raised nowhere: the messages are in the backlog, and would be sent again.
_UNWRITTEN = "redirect records were not written"
# How long a disk is waited for that did not answer the last time.
_GLANCE = 0.05


class _Named(NamedTuple):
    """What a record says of a message."""

    message_id: str
    session_id: str | None


class Redirects:
    """Tells the observers of each attempt, and keeps a record of each message."""

    def __init__(self, surroundings: Surroundings, records: Records) -> None:
        self._timers = surroundings.timers
        self._observers = surroundings.observers
        self._wall_clock = surroundings.wall_clock
        self._records = records
        self._patience = surroundings.options.send_timeout
        self._hangs = False  # the disk

    def observe(self, wanted: Shipment, queue: str, ending: Ending | None) -> None:
        """A call to a queue has ended; None if it was cancelled."""
        outcome = outcome_of(ending, wanted)
        wanted.counts["backlog"][outcome] += len(wanted.messages)
        if outcome == "unknown":
            wanted.unsure.append(queue)
            wanted.call.unsure += 1
        if self._observers.hear_sends or self._observers.hear_tallies:
            self._tell(wanted, queue, ending, outcome)

    def _tell(self, wanted: Shipment, queue: str, ending: Ending | None, outcome: AttemptOutcome) -> None:
        path, wrapped = wanted.path, wanted.messages
        if self._observers.hear_tallies:
            parcel = wanted.parcel
            payload = None if parcel is None else parcel.payload
            written = wanted.payloads or wanted.value if payload is None else (payload,)
            size, large = weigh_payloads(written) if written else weigh([one.native for one in wrapped])
            fate = fate_of(ending, wanted)
            self._observers.tell_tally(
                SendNote(path, "backlog", queue, fate, len(wrapped), size, large, False)
            )
        if self._observers.hear_sends:
            self._observers.tell_sent(
                Sending(
                    path=path,
                    route="backlog",
                    outcome=outcome,
                    messages=len(wrapped),
                    size=sum(one.size for one in wrapped),
                    seconds=self._timers.now() - (wanted.called_at or 0.0),
                )
            )

    def record(self, wanted: Shipment, queue: str | None) -> Awaitable[None]:
        """Put on record that a queue has the messages, if one has, how often the primary may have taken them
        before, and which queues may have.
        """
        return self._keep(self._rows_of(wanted, queue), wanted.deadline)

    def record_at_once(self, wanted: Shipment, queue: str) -> Awaitable[None] | None:
        """The same here and now, if nothing is to be waited for; else what is."""
        rows = self._rows_of(wanted, queue)
        try:
            return None if self._records.append_at_once(rows) else self._keep(rows, wanted.deadline)
        except Exception:
            log.exception(_UNWRITTEN, extra={"fields": {"records": len(rows)}})
            return None

    def _rows_of(self, wanted: Shipment, queue: str | None) -> list[RedirectRecord]:
        path, messages = wanted.path, wanted.messages
        rows: list[RedirectRecord] = []
        if queue is not None:
            rows = self._rows(path, queue, messages, None)
            if wanted.call.unanswered:
                rows += wanted.call.unanswered * self._rows(path, queue, messages, UNANSWERED)
        for doubtful in wanted.unsure:
            rows += self._rows(path, doubtful, messages, UNKNOWN)
        return rows

    def record_unanswered(
        self, path: str, queue: str, messages: list[Message], *, times: int, deadline: float | None
    ) -> Awaitable[None]:
        """Put on record how often messages may have been taken already; `queue` stands for the pair."""
        named = [_Named(message_id_of(message), session_of(message)) for message in messages]
        return self._keep(times * self._rows(path, queue, named, UNANSWERED), deadline)

    def _rows(
        self, path: str, queue: str, messages: Sequence[WrappedMessage | _Named], outcome: str | None
    ) -> list[RedirectRecord]:
        at = self._wall_clock()
        return [
            RedirectRecord(
                message_id=one.message_id,
                path=path,
                session_id=one.session_id,
                queue=queue,
                at=at,
                outcome=outcome,
            )
            for one in messages
        ]

    async def _keep(self, rows: list[RedirectRecord], deadline: float | None) -> None:
        """A disk that hangs holds a send up as long as an attempt may take, and the next ones for a moment:
        the messages have been taken, and what is to be written waits for the disk by itself.
        """
        if not rows:
            return
        began = self._timers.now()
        ends = began + (_GLANCE if self._hangs else self._patience)
        if deadline is not None:
            ends = max(min(ends, deadline), began + _GLANCE)
        try:
            is_kept = await in_time(self._timers, ends, self._records.append(rows))
        except Exception:
            log.exception(_UNWRITTEN, extra={"fields": {"records": len(rows)}})
            return
        if not is_kept and not self._hangs and ends >= began + self._patience:
            log.error("the disk has not answered for %g s: redirect records wait for it", self._patience)
            self._hangs = True
        self._hangs = self._hangs and not is_kept
