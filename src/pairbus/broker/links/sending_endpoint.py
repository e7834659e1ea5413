"""The broker's end of a client's receiver: messages leave as credit allows, and come back settled.

Rules
1. Deliveries are made at the end of a turn, by the host, so that consumers of one queue get their turns in
   rotation.
2. The delivery tag is the lock token; without a lock it is empty. A settlement names a delivery; the token
   behind it is given to the engine.
3. A settlement that is not yet settled waits for its echo: the same outcome, settled, and nothing that it
   carried: to the SDKs an error in an echo of `rejected` means that the settlement failed. Who settled a
   range is answered in ranges, and nobody else: the Python SDK waits longer for an echo that is shared.
4. A credit grant that ends (drained, renewed, detached) without a delivery is one empty receive, and is
   billed.
5. A link that goes leaves its messages locked until their locks end, as Azure does; a session that goes gives
   its messages back.
"""

import uuid
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pairbus import conditions, words
from pairbus.amqp.events import LinkFlowed, ProtocolEvent, Settled
from pairbus.amqp.link import Link
from pairbus.amqp.performatives import (
    ACCEPTED,
    RELEASED,
    Accepted,
    AmqpError,
    DeliveryOutcome,
    DeliveryState,
    Modified,
    Rejected,
    TransactionalState,
)
from pairbus.broker.contents import MOST_NEEDED, OVERHEAD, check_at_hand
from pairbus.broker.counters import OperationKind
from pairbus.broker.engine.breath import breathe
from pairbus.broker.engine.errors import Refused
from pairbus.broker.engine.message import size_of
from pairbus.broker.engine.queue import MessageQueue
from pairbus.broker.engine.results import Handout
from pairbus.broker.engine.sessions import SessionLock
from pairbus.broker.engine.transaction import NotedSettlement

from .endpoint import LinkEndpoint
from .pace import MOST_IN_RUN, MOST_OUTPUT
from .transactions import KeptOutcome
from .wire import delivery_tags, render_delivery

if TYPE_CHECKING:
    from .peer import Peer

_REJECTED_ECHO = Rejected(None)
# Messages that are taken from a queue at once, after which one looks how many bytes that was, and takes more
# or fewer the next time. Where there may be large ones these are always few: all of them are in memory then.
_MANY_AT_ONCE, _FEW_AT_ONCE = 64, 2
_LARGE = 1 << 20
# Messages that are settled, or given back, in a moment, and bytes of those whose properties may change,
# which are then read and written anew.
_FEW_SETTLED, _FEW_BYTES = 64, 1 << 16
# Deliveries that no client has under way, and the lock of one that is forgotten, which nobody has.
_MANY_UNSETTLED = 4096
_NO_LOCK = uuid.UUID(int=0)


class SendingEndpoint(LinkEndpoint):
    """Gives the messages of one queue, or of one of its sessions, to one receiver link."""

    __slots__ = (
        "_delivered_in_grant",
        "_fault_desk",
        "_granted",
        "_has_forgotten",
        "_host",
        "_is_waiting",
        "_largest_slice",
        "_slice",
        "_unsettled",
        "deletes",
        "draining",
        "peer",
        "queue",
        "session",
    )

    def __init__(
        self, peer: "Peer", link: Link, *, queue: MessageQueue, deletes: bool, session: SessionLock | None
    ) -> None:
        super().__init__(link, needs=(queue.path, ("Listen",)), path=queue.path)
        self.queue = queue
        self.session = session
        self.draining = False
        self.deletes = deletes
        self.peer = peer
        self._host = peer.host
        self._fault_desk = peer.host.fault_desk
        small = peer.host.limits.largest_message_size <= _LARGE
        self._largest_slice = _MANY_AT_ONCE if small else _FEW_AT_ONCE
        self._slice = _FEW_AT_ONCE
        # Not a plain dictionary: the oldest are looked at (`_forget_lost`).
        self._unsettled: OrderedDict[int, Handout] = OrderedDict()
        self._has_forgotten = False
        self._granted = False
        self._delivered_in_grant = False
        # For what has to be read from the disk.
        self._is_waiting = False
        queue.attend()

    @property
    def state(self) -> tuple[int, ...]:
        """What is another one after each use of the link."""
        return self.link.delivery_count, self.link.credit, len(self._unsettled)

    @property
    def is_waiting(self) -> bool:
        """Whether the client waits for something on this link."""
        return self.link.credit > 0

    @property
    def is_hungry(self) -> bool:
        """Whether a message may leave now; if only room is missing, it is asked again later."""
        if self.link.credit <= 0 or self._fault_desk.withholds(self.path):
            return False
        if self.peer.is_full:
            self.peer.starved[self] = None
            return False
        return self.link.sendable > 0

    def deliver(self, most: int, now: float) -> int:
        """Send up to `most` messages as far as there is credit; how many left."""
        left, consumers = 0, self._host.consumers
        while (wanted := min(most - left, self.link.sendable, self._slice)) > 0:
            try:
                deliveries = self.queue.receive(
                    wanted, now, delete=self.deletes, session=self.session, at_hand=True
                )
            except Refused as refused:  # the session's lock has just ended, or the entity was just disabled
                self.peer.detach(self, AmqpError(refused.condition, refused.description, {}))
                return 0
            size = self._send_all(deliveries)
            left += len(deliveries)
            if size:
                self.peer.spend(size)
                self._slice = max(1, min(self._largest_slice, MOST_OUTPUT * len(deliveries) // (2 * size)))
            if len(deliveries) < wanted:
                self._is_waiting = self._host.contents.bring_next(self.queue, self.session, self._go_on)
                break
            consumers.has_served = True
            if not self.is_hungry:
                break
            if consumers.is_over():
                consumers.want(self)
                break
        return left

    def lose_session(self) -> None:
        """The lock of its session is over: the receiver has to go, unless it has gone."""
        if self.peer.endpoints.get(self.link) is self:
            text = "The session lock has expired. Accept the session again."
            self.peer.detach(self, AmqpError(conditions.SESSION_LOCK_LOST, text, {}))

    def _go_on(self) -> None:
        """What is next in line is at hand."""
        self._is_waiting = False
        self._host.consumers.want(self)
        self._host.touch(self.peer)

    @property
    def may_finish_drain(self) -> bool:
        """Whether all that there is credit for has left, or there is no more."""
        if not self.draining or self._is_waiting or self in self.peer.starved:
            return False
        return self.link.credit <= 0 or self.link.sendable > 0  # or it waits for the client's window

    def finish_drain(self) -> None:
        """Tell a draining receiver that there is no more."""
        self.draining = False
        self._end_grant()
        self.link.drained()

    # -- what the link tells

    def on_flow(self, event: LinkFlowed) -> None:
        if event.is_grant:
            self._note_grant(event)
        self._host.consumers.want(self)

    def _note_grant(self, event: LinkFlowed) -> None:
        """A grant ends with the next one; a drain is its end, not the next one, if there is one to end."""
        self.draining = event.drain
        if event.drain and self._granted:
            return
        self._end_grant()
        self._granted = event.credit > 0
        self._delivered_in_grant = False

    def take_settlements(self, event: Settled, todo: deque[ProtocolEvent]) -> None:
        if type(event.state) is not Accepted:
            if rest := self._cut(event):
                todo.appendleft(replace(event, delivery_ids=rest))
            self.on_settled(event)
            return
        ids = event.delivery_ids
        for at in reversed(range(MOST_IN_RUN, len(ids), MOST_IN_RUN)):
            todo.appendleft(replace(event, delivery_ids=ids[at : at + MOST_IN_RUN]))
        self._complete_all(ids[:MOST_IN_RUN], event)

    def _cut(self, event: Settled) -> list[int]:
        """Leave a settlement with as many deliveries as may be in memory together; the others."""
        size, ids = 0, event.delivery_ids
        for at, delivery_id in enumerate(ids):
            delivery = self._unsettled.get(delivery_id)
            size += 0 if delivery is None else delivery.message.size + OVERHEAD
            if at and size > MOST_NEEDED:
                event.delivery_ids = ids[:at]
                return ids[at:]
        return []

    def _complete_all(self, delivery_ids: list[int], event: Settled) -> None:
        """The other side has completed some of the deliveries of an event."""
        asked, tokens = list[int](), list[uuid.UUID]()
        for delivery_id in delivery_ids:  # each as often as it was named
            if (token := self._take_token(delivery_id)) is not None:
                asked.append(delivery_id)
                tokens.append(token)
        outcomes = self.queue.complete_all(tokens, self._host.now())
        sizes = [0] * len(asked)
        self._host.counters.count_all(self.path, self.peer.name, kind=OperationKind.COMPLETE, sizes=sizes)
        if event.settled:
            return
        if outcomes.count(None) == len(outcomes):
            self.link.settle_all(asked, ACCEPTED, joins=event.is_range)
            return
        for delivery_id, refused in zip(asked, outcomes, strict=True):
            echo = ACCEPTED if refused is None else _refusal(refused)
            self.link.settle(delivery_id, echo, joins=event.is_range)

    def _take_token(self, delivery_id: int) -> uuid.UUID | None:
        """The lock of a delivery that is settled; None if it is settled already."""
        delivery = self._unsettled.pop(delivery_id, None)
        if delivery is None:
            return _NO_LOCK if self._has_forgotten else None
        return delivery.lock_token

    def on_settled(self, event: Settled) -> None:
        if isinstance(event.state, TransactionalState):
            state = event.state
            weigh = self._host.transactions.weigh
            self.peer.at_length(event, lambda: self._note_all(event, state), lambda _: weigh(state.txn_id))
            return
        forwards = self.queue.settings.forward_dead_lettered_messages_to is not None
        changes = len(_written(event.state) or ())
        if (
            forwards
            or len(event.delivery_ids) * (1 + changes) > _FEW_SETTLED
            or self._size(event) > _FEW_BYTES
        ):
            self.peer.at_length(event, lambda: self._settle_all(event), lambda _: None)
        else:
            self._settle_all(event)

    def _size(self, event: Settled) -> int:
        """Bytes of the messages that a settlement may have to read."""
        found = map(self._unsettled.get, event.delivery_ids)
        return sum(delivery.message.size for delivery in found if delivery is not None)

    def _settle_all(self, event: Settled) -> None:
        now, growth = self._host.now(), size_of(_written(event.state))
        self._have_at_hand(event.delivery_ids)
        for delivery_id in event.delivery_ids:
            breathe()
            if (token := self._take_token(delivery_id)) is None:
                continue
            try:
                echo = self._apply(token, event.state, now, growth=growth)
            except Refused as refused:
                echo = _refusal(refused)
            if not event.settled:
                self.link.settle(delivery_id, echo, joins=event.is_range)

    def _note_all(self, event: Settled, state: TransactionalState) -> None:
        """Let settlements belong to a transaction."""
        for delivery_id in event.delivery_ids:
            breathe()
            if (token := self._take_token(delivery_id)) is None:
                continue
            echo = self._note(token, state, is_settled=event.settled)
            if not event.settled:
                self.link.settle(delivery_id, echo)

    def _note(self, token: uuid.UUID, state: TransactionalState, *, is_settled: bool) -> DeliveryState:
        transaction, outcome = None, state.outcome
        try:
            transaction = self._host.transactions.find(self.peer, state.txn_id)
            if not isinstance(outcome, DeliveryOutcome):
                text = "A message is settled with an outcome in a transaction as it is without one."
                raise Refused(conditions.INVALID_FIELD, text)
            transaction.add(self._settling(token, outcome))
        except Refused as refused:
            if transaction is not None and is_settled:
                transaction.doom = refused  # nobody can be told otherwise
            return Rejected(AmqpError(refused.condition, refused.description, {}))
        return TransactionalState(state.txn_id, _echo(outcome))

    def _settling(self, token: uuid.UUID, outcome: DeliveryOutcome) -> NotedSettlement:
        kept = KeptOutcome(outcome)
        return NotedSettlement(
            queue=self.queue,
            token=token,
            settle=lambda now: self._apply(token, kept.read(), now),
            properties=lambda: _properties(kept.read()),
            size=kept.size,
            buries=isinstance(outcome, Rejected),
            needs_content=not isinstance(outcome, Accepted),
        )

    def _have_at_hand(self, delivery_ids: list[int]) -> None:
        """What is not completed needs its content; NotAtHand if that has to be read first."""
        found = map(self._unsettled.get, delivery_ids)
        tokens = (delivery.lock_token for delivery in found if delivery is not None)
        locked = self.queue.locked(token for token in tokens if token is not None)
        check_at_hand((self.queue, message) for message in locked)

    def on_room(self) -> None:
        self._host.consumers.want(self)

    def on_detached(self) -> None:
        self.draining = False
        self._end_grant()
        self.queue.leave(self._host.now())
        self._host.consumers.leave(self)
        if self.session is not None:
            self._release(self.session)
            self.session = None

    def _release(self, session: SessionLock) -> None:
        """Give back the messages of a session, of which there may be many."""

        def conclude(released: Callable[[], None]) -> None:
            try:
                released()
            except Exception as error:  # noqa: BLE001 - whatever it is, it is told and undone
                self._host.refuse_turn(error)

        now = self._host.now()
        if len(self._unsettled) > _FEW_SETTLED:
            self._host.decisions.make(lambda: self.queue.release_session(session, now), conclude)
        else:
            self._host.decisions.when_free(lambda: self.queue.release_session(session, now))

    # -- inside

    def _send_all(self, deliveries: list[Handout]) -> int:
        """Write deliveries; how many bytes."""
        unsettled, payloads = self._unsettled, [render_delivery(delivery) for delivery in deliveries]
        sizes = [len(payload) for payload in payloads]
        if tokens := [one.lock_token for one in deliveries if one.lock_token is not None]:
            ids = self.link.send_all(payloads, delivery_tags(tokens))
            unsettled.update(zip(ids, deliveries, strict=True))
        else:
            for payload in payloads:
                self.link.send(payload, tag=b"", settled=True)
        if len(unsettled) > _MANY_UNSETTLED:
            self._forget_lost(2 * len(sizes))
        self._delivered_in_grant |= bool(sizes)
        self._host.counters.count_all(self.path, self.peer.name, kind=OperationKind.DELIVERY, sizes=sizes)
        return sum(sizes)

    def _forget_lost(self, most: int) -> None:
        """Forget some of the oldest deliveries whose locks are over: who settles nothing gets ever more."""
        unsettled, locked = self._unsettled, self.queue.locked
        for _ in range(most):
            delivery_id, delivery = unsettled.popitem(last=False)
            if delivery.lock_token is not None and locked((delivery.lock_token,)):
                unsettled[delivery_id] = delivery
            else:
                self._has_forgotten = True

    def _end_grant(self) -> None:
        if self._granted and not self._delivered_in_grant:
            self._count(OperationKind.EMPTY_RECEIVE)
        self._granted = False

    def _apply(self, token: uuid.UUID, state: Any, now: float, *, growth: int = 0) -> DeliveryOutcome:
        """Settle a delivery; it is counted as asked for, also if it is refused. What to echo."""
        self._count(_kind(state))
        self.queue.check_growth(growth)
        match state:
            case Accepted():
                self.queue.complete(token, now)
            case Rejected():
                reason, description, changes = _dead_letter_info(state.error)
                self.queue.dead_letter(token, now, reason=reason, description=description, properties=changes)
            case Modified() if state.undeliverable_here:
                self.queue.defer(token, now, properties=_changes(state.message_annotations))
            case Modified():
                self.queue.abandon(token, now, properties=_changes(state.message_annotations))
            case _:
                self.queue.release(token, now)
        return _echo(state)

    def _count(self, kind: OperationKind) -> None:
        self._host.counters.count(self.path, self.peer.name, kind=kind)


def _kind(state: Any) -> OperationKind:
    match state:
        case Accepted():
            return OperationKind.COMPLETE
        case Rejected():
            return OperationKind.DEAD_LETTER
        case Modified():
            return OperationKind.DEFER if state.undeliverable_here else OperationKind.ABANDON
    return OperationKind.RELEASE


def _echo(state: Any) -> DeliveryOutcome:
    """An outcome as it is echoed: without what it carries, which may be more than a frame of the client's."""
    if isinstance(state, Rejected):
        return _REJECTED_ECHO
    if isinstance(state, Modified):
        return Modified(state.delivery_failed, state.undeliverable_here)
    return ACCEPTED if isinstance(state, Accepted) else RELEASED


def _refusal(refused: Refused) -> Rejected:
    return Rejected(AmqpError(refused.condition, refused.description, {}))


def _properties(outcome: DeliveryOutcome) -> dict[str, Any] | None:
    """How a settlement changes the properties of its message, a reason apart."""
    return _dead_letter_info(outcome.error)[2] if isinstance(outcome, Rejected) else _written(outcome)


def _written(outcome: DeliveryState | None) -> dict[str, Any] | None:
    """All that a settlement writes into each of its messages."""
    if isinstance(outcome, Rejected):
        return _changes(outcome.error.info) if outcome.error is not None else None
    return _changes(outcome.message_annotations) if isinstance(outcome, Modified) else None


def _changes(given: Any) -> dict[str, Any] | None:
    return {str(key): value for key, value in given.items()} if given else None


def _dead_letter_info(error: AmqpError | None) -> tuple[str | None, str | None, dict[str, Any] | None]:
    info = _changes(error.info) if error is not None else None
    if not info:
        return None, None, None
    reason, description = info.pop(words.REASON, None), info.pop(words.DESCRIPTION, None)
    return (
        None if reason is None else str(reason),
        None if description is None else str(description),
        info or None,
    )
