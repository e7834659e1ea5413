"""The broker's end of a client's sender: messages come in, are given to the engine, and are answered.

The answer is only queued here. It leaves with the rest of the turn, after the store has committed it.
"""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pairbus import conditions
from pairbus.amqp.errors import DecodeError
from pairbus.amqp.events import ProtocolEvent, TransferReceived
from pairbus.amqp.glance import split_batch
from pairbus.amqp.link import Link
from pairbus.amqp.performatives import ACCEPTED, Accepted, AmqpError, Rejected, TransactionalState
from pairbus.broker.counters import Counters, OperationKind
from pairbus.broker.engine.breath import breathe, slices
from pairbus.broker.engine.errors import Refused, bad_argument
from pairbus.broker.engine.message import Incoming
from pairbus.broker.engine.transaction import NotedSend
from pairbus.fault_kinds import ClientAction

from .endpoint import LinkEndpoint, take_run, whole_payload
from .pace import MOST_BYTES_IN_RUN

if TYPE_CHECKING:
    from .peer import Peer

# Microsoft's message format of a batch: an envelope whose data sections are each a whole encoded message.
BATCH_FORMAT = 0x80013700
# As much as Azure grants; a pipelining sender must not run dry within a turn.
SEND_CREDIT = 5000
# As many as the service takes. A batch comes in whole or not at all, and everybody waits meanwhile.
MOST_IN_BATCH = 4500
# Bytes of a batch that is taken apart in a moment, however small its messages are.
_SHORT = 4096
# Messages of a batch that are put into a queue in a moment, about a millisecond; how the body begins, which
# stands twice for a message in a batch, and by chance more often.
_FEW_IN_BATCH = 128
_BODY = b"\x00\x53\x75"
# Messages that are read, or counted, in a moment.
_FEW = 64


class ReceivingEndpoint(LinkEndpoint):
    """Takes the messages of one sender link for one queue or topic."""

    __slots__ = ("_host", "_peer")

    def __init__(self, peer: "Peer", link: Link, path: str) -> None:
        super().__init__(link, needs=(path, ("Send",)), path=path)
        self._peer = peer
        self._host = peer.host

    @property
    def state(self) -> tuple[int, ...]:
        """What is another one after each use of the link."""
        return (self.link.delivery_count,)

    @property
    def is_waiting(self) -> bool:
        """Whether the client waits for something on this link."""
        return False

    def take_messages(self, first: TransferReceived, todo: deque[ProtocolEvent]) -> None:
        run = [first] if self._host.engine.is_wide(self.path) else take_run(first, todo)
        if len(run) > 1:
            self._take_all(run)
        else:
            self.on_received(first)

    def _take_all(self, events: list[TransferReceived]) -> None:
        """Take messages, no batches, that came one behind the other; each is taken or refused for itself. All
        are read before the engine gets the first: what goes wrong in reading has then changed nothing.
        """
        host, path = self._host, self.path
        if host.faults.any:
            for event in events:
                if self.link.is_alive:
                    self.on_received(event)
            return
        now, messages = host.now(), [_read(event) for event in events]
        whole = [message for message in messages if isinstance(message, Incoming)]
        if len(whole) == len(events) and host.engine.send_run(path, whole, now):
            self._accept(events, [])
            return
        send = host.engine.send
        taken: list[TransferReceived] = []
        pings: list[int] = []
        for event, message in zip(events, messages, strict=True):
            try:
                if isinstance(message, DecodeError):
                    raise message
                send(path, (message,), now)
            except (Refused, DecodeError) as refusal:
                self._accept(taken, pings)
                taken, pings = [], []
                self._count_refused(event, [])
                self._refuse(event, AmqpError(refusal.condition, refusal.description, {}))
                if not self.link.is_alive:
                    return
                continue
            taken.append(event)
            if message.is_ping:
                pings.append(len(event.payload))
        self._accept(taken, pings)

    def _accept(self, events: list[TransferReceived], pings: list[int]) -> None:
        """Answer messages that are taken, and count them; some of them may be pings."""
        count, connection = self._host.counters.count_all, self._peer.name
        sizes = [len(event.payload) for event in events]
        self._host.uncommitted += sum(sizes)
        if pings:
            for size in pings:
                sizes.remove(size)
            count(self.path, connection, kind=OperationKind.PING, sizes=pings)
        count(self.path, connection, kind=OperationKind.SEND, sizes=sizes)
        unsettled = [event.delivery_id for event in events if not event.settled]
        self.link.settle_all(unsettled, ACCEPTED, joins=True)
        self.renew(SEND_CREDIT, len(events))

    def on_received(self, event: TransferReceived) -> None:
        """Take a message or a batch, whole or not at all."""
        if isinstance(event.state, TransactionalState):
            txn_id = event.state.txn_id
            self._peer.at_length(
                event,
                lambda: self._note(event, txn_id),
                lambda refused: self._conclude_noted(event, txn_id, refused),
            )
            return
        if self._is_long_batch(event) or self._host.engine.is_wide(self.path):
            self._peer.at_length(
                event, lambda: self._take(event), lambda refused: self._conclude(event, refused)
            )
        else:
            self._conclude(event, self._take(event))

    def _is_long_batch(self, event: TransferReceived) -> bool:
        size = len(event.payload)
        if event.message_format != BATCH_FORMAT or size <= _SHORT:
            return False
        is_large = size > MOST_BYTES_IN_RUN or event.payload.count(_BODY) > 2 * _FEW_IN_BATCH
        return is_large or not self._host.engine.lines_up(self.path)

    def _take(self, event: TransferReceived) -> AmqpError | None:
        """Why it is refused, if it is."""
        host, now = self._host, self._host.now()
        messages: list[Incoming] = []
        try:
            messages = _parse(event)
            self._check_faults(now)
            host.engine.send(self.path, messages, now)
            host.uncommitted += _size(event)
        except (Refused, DecodeError) as refused:
            self._count_refused(event, messages)
            return AmqpError(refused.condition, refused.description, {})
        count_sent(host.counters, self._peer.name, self.path, messages)
        return None

    def _note(self, event: TransferReceived, txn_id: bytes) -> AmqpError | None:
        """Let it belong to a transaction. Why it cannot, if so: what can be told now is not put off."""
        host, transaction, messages = self._host, None, list[Incoming]()
        try:
            transaction = host.transactions.find(self._peer, txn_id)
            messages = _parse(event)
            self._check_faults(host.now())
            host.engine.node(self.path).check_arrival(messages, host.now(), before=0)
            noted = NotedSend(self.path, messages)
            transaction.add(noted)
            noted.pack()
        except (Refused, DecodeError) as refused:
            self._count_refused(event, messages)
            if transaction is not None and event.settled:  # nobody can be told otherwise
                transaction.doom = Refused(refused.condition, refused.description)
            return AmqpError(refused.condition, refused.description, {})
        return None

    def _conclude_noted(self, event: TransferReceived, txn_id: bytes, refused: AmqpError | None) -> None:
        if refused is not None:
            self._refuse(event, refused)
            return
        self._host.transactions.weigh(txn_id)
        if not event.settled:
            self.link.settle(event.delivery_id, TransactionalState(txn_id, ACCEPTED))
        self.renew(SEND_CREDIT)

    def _conclude(self, event: TransferReceived, refused: AmqpError | None) -> None:
        if refused is not None:
            self._refuse(event, refused)
            return
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

    def _count_refused(self, event: TransferReceived, messages: list[Incoming]) -> None:
        for size in [message.size for message in messages] or [_size(event)]:
            self._host.counters.count(self.path, self._peer.name, kind=OperationKind.SEND_REFUSED, size=size)
            breathe()

    def _refuse(self, event: TransferReceived, error: AmqpError) -> None:
        if event.settled or error.condition == conditions.NOT_IMPLEMENTED:
            # Nobody waits for an answer, or there was no message; a closed link is the only way to tell.
            self._peer.detach(self, error)
        else:
            self._answer(event, Rejected(error))

    def _answer(self, event: TransferReceived, state: Accepted | Rejected) -> None:
        if not event.settled:
            self.link.settle(event.delivery_id, state, joins=True)
        self.renew(SEND_CREDIT)


def count_sent(counters: Counters, connection: str, path: str, messages: Sequence[Incoming]) -> None:
    """Count messages that were taken."""
    for few in slices(messages, _FEW):
        sizes = [message.size for message in few if not message.is_ping]
        counters.count_all(path, connection, kind=OperationKind.SEND, sizes=sizes)
        if len(sizes) < len(few):
            pings = [message.size for message in few if message.is_ping]
            counters.count_all(path, connection, kind=OperationKind.PING, sizes=pings)


def _size(event: TransferReceived) -> int:
    return event.dropped or len(event.payload if event.view is None else event.view)


def _read(event: TransferReceived) -> Incoming | DecodeError:
    payload = event.payload
    try:
        # One that has come whole and is no batch is what a run is made of.
        return Incoming.parse(payload) if payload else _parse(event)[0]
    except DecodeError as error:
        return error


def _parse(event: TransferReceived) -> list[Incoming]:
    payload = whole_payload(event)
    if not payload:
        raise DecodeError("A message has sections, a body at least.", conditions.NOT_IMPLEMENTED)
    if event.message_format != BATCH_FORMAT:
        return [Incoming.parse(payload)]
    if isinstance(payload, memoryview):
        raise Refused(
            conditions.MESSAGE_SIZE_EXCEEDED,
            f"The batch has {len(payload)} bytes. Large messages go one by one.",
        )
    parts = split_batch(payload)
    if len(parts) > MOST_IN_BATCH:
        raise bad_argument(
            f"The batch has {len(parts)} messages, more than the {MOST_IN_BATCH} that are allowed. "
            "Send fewer at once."
        )
    messages: list[Incoming] = []
    for few in slices(parts, _FEW):
        messages.extend(map(Incoming.parse, few))
    return messages
