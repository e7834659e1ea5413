"""The broker's end of a client's sender: messages come in, are given to the engine, and are answered.

The answer is only queued here. It leaves with the rest of the turn, after the store has committed it.
"""

from typing import TYPE_CHECKING

from pairbus import conditions
from pairbus.amqp.errors import DecodeError
from pairbus.amqp.events import TransferReceived
from pairbus.amqp.link import Link
from pairbus.amqp.message import scan
from pairbus.amqp.performatives import ACCEPTED, Accepted, AmqpError, Rejected
from pairbus.broker.counters import OperationKind
from pairbus.broker.engine.errors import Refused
from pairbus.broker.engine.message import Incoming
from pairbus.fault_kinds import ClientAction

from .endpoint import LinkEndpoint, whole_payload

if TYPE_CHECKING:
    from .peer import Peer

# Microsoft's message format of a batch: an envelope whose data sections are each a whole encoded message.
BATCH_FORMAT = 0x80013700
# As much as Azure grants; a pipelining sender must not run dry within a turn.
SEND_CREDIT = 5000
# As many as the service takes. A batch comes in whole or not at all, and everybody waits meanwhile.
MOST_IN_BATCH = 4500


class ReceivingEndpoint(LinkEndpoint):
    """Takes the messages of one sender link for one queue or topic."""

    __slots__ = ("_host", "_peer", "_since_flow")

    def __init__(self, peer: "Peer", link: Link, path: str) -> None:
        super().__init__(link, needs=(path, ("Send",)), path=path)
        self._peer = peer
        self._host = peer.host
        self._since_flow = 0

    @property
    def state(self) -> tuple[int, ...]:
        """What is another one after each use of the link."""
        return (self.link.delivery_count,)

    @property
    def is_waiting(self) -> bool:
        """Whether the client waits for something on this link."""
        return False

    def on_received(self, event: TransferReceived) -> None:
        """Take a message or a batch, whole or not at all."""
        host, now = self._host, self._host.now()
        messages: list[Incoming] = []
        try:
            messages = _parse(event)
            self._check_faults(now)
            host.engine.send(self.path, messages, now)
            host.uncommitted += _size(event)
        except Refused as refused:
            self._refuse(event, messages, AmqpError(refused.condition, refused.description, {}))
            return
        except DecodeError as error:
            self._refuse(event, messages, AmqpError(error.condition, error.description, {}))
            return
        count, connection = host.counters.count, self._peer.name
        for message in messages:
            count(
                self.path,
                connection,
                kind=OperationKind.PING if message.is_ping else OperationKind.SEND,
                size=message.size,
            )
        delay = self._peer.delay_of_answer(self.path)
        if delay > 0:
            self._peer.later(delay, lambda: self._answer(event, ACCEPTED))
        else:
            self._answer(event, ACCEPTED)

    def _check_faults(self, now: float) -> None:
        faults = self._host.faults
        if faults.any:
            error = faults.refusal(ClientAction.SEND, self.path, now=now)
            if error is not None:
                raise Refused(error.condition, error.description or "")

    def _refuse(self, event: TransferReceived, messages: list[Incoming], error: AmqpError) -> None:
        for size in [message.size for message in messages] or [_size(event)]:
            self._host.counters.count(self.path, self._peer.name, kind=OperationKind.SEND_REFUSED, size=size)
        if event.settled:
            # Nobody waits for an answer; a closed link is the only way to tell.
            self._peer.detach(self, error)
        else:
            self._answer(event, Rejected(error))

    def _answer(self, event: TransferReceived, state: Accepted | Rejected) -> None:
        if not event.settled:
            self.link.settle(event.delivery_id, state, joins=True)
        self._since_flow += 1
        if self._since_flow >= SEND_CREDIT // 2:
            self._since_flow = 0
            self.link.flow(SEND_CREDIT)


def _size(event: TransferReceived) -> int:
    return event.dropped or len(event.payload if event.view is None else event.view)


def _parse(event: TransferReceived) -> list[Incoming]:
    payload = whole_payload(event)
    if event.message_format != BATCH_FORMAT:
        return [Incoming.parse(payload)]
    if isinstance(payload, memoryview):
        raise Refused(
            conditions.MESSAGE_SIZE_EXCEEDED,
            f"The batch has {len(payload)} bytes. Large messages go one by one.",
        )
    parts = scan(payload).data_sections()
    if len(parts) > MOST_IN_BATCH:
        raise Refused(
            conditions.ARGUMENT_ERROR,
            f"The batch has {len(parts)} messages, more than the {MOST_IN_BATCH} that are allowed. "
            "Send fewer at once.",
        )
    return [Incoming.parse(part) for part in parts]
