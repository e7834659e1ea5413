"""The link on which a client declares and discharges transactions (part 4 of the standard)."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from pairbus import conditions
from pairbus.amqp.composites import from_described
from pairbus.amqp.errors import DecodeError
from pairbus.amqp.events import LinkAttached, ProtocolEvent, TransferReceived
from pairbus.amqp.message import scan
from pairbus.amqp.performatives import (
    ACCEPTED,
    AmqpError,
    Declare,
    Declared,
    DeliveryState,
    Discharge,
    Rejected,
    Source,
)
from pairbus.broker.engine.errors import Refused

from .endpoint import LinkEndpoint, whole_payload
from .held_bytes import HeldBytes
from .requests import REQUEST_CREDIT
from .transactions import MOST_DECLARED, MOST_OF_STRANGER, OVERHEAD, Transaction, Transactions

T = TypeVar("T")
_REJECTED = "amqp:rejected:list"


class Declarer(Protocol):
    """The connection that declares."""

    name: str

    def close(self, error: AmqpError | None) -> None: ...

    def reset(self) -> None: ...

    def detach(self, endpoint: LinkEndpoint, error: AmqpError) -> None: ...

    def at_length(self, event: ProtocolEvent, act: Callable[[], T], then: Callable[[T], None], /) -> None: ...


class CoordinatorEndpoint(LinkEndpoint):
    """Declares and discharges the transactions of one link."""

    __slots__ = (
        "_account",
        "_declared",
        "_discharge",
        "_held",
        "_is_stranger",
        "_most",
        "_peer",
        "_rejects",
        "_transactions",
        "name",
    )

    def __init__(
        self,
        peer: Declarer,
        event: LinkAttached,
        transactions: Transactions,
        *,
        discharge: Callable[[Transaction, int], None],
        account: HeldBytes,
        most: int,
        is_stranger: Callable[[], bool],
    ) -> None:
        """`discharge` does all that belongs to a transaction, for which so many bytes are held, or raises
        Refused; `account` is told of these bytes, of which there may be `most`. `is_stranger` tells whether
        the client has shown no token yet.
        """
        super().__init__(event.link)
        self._peer = peer
        self._transactions = transactions
        self._discharge = discharge
        self._account = account
        self._most = most
        self._is_stranger = is_stranger
        #: That of the connection, which is answerable for what is held here.
        self.name = peer.name
        self._declared: dict[bytes, Transaction] = {}
        self._held: dict[bytes, int] = {}
        source = event.attach.source
        outcomes = source.outcomes if isinstance(source, Source) else None
        self._rejects = outcomes is None or _REJECTED in outcomes

    def close(self, error: AmqpError | None) -> None:
        """End the connection: it holds too much."""
        self._peer.close(error)

    def reset(self) -> None:
        self._peer.reset()

    def forget(self, transaction: Transaction) -> None:
        """It is over, and holds nothing any more."""
        transaction.steps.clear()
        self._declared.pop(transaction.id, None)
        if self._held.pop(transaction.id, 0):
            self.weigh()

    def on_detached(self) -> None:
        """What is not discharged is rolled back (part 4.2)."""
        self._held.clear()
        self.weigh()
        for transaction in list(self._declared.values()):
            self._transactions.drop(transaction)

    def on_received(self, event: TransferReceived) -> None:
        try:
            asked = from_described(scan(bytes(whole_payload(event))).value())
            if isinstance(asked, Declare):
                self._answer(event, self._declare(event, asked))
            elif not isinstance(asked, Discharge):
                raise Refused(conditions.NOT_IMPLEMENTED, "A coordinator takes declare and discharge.")
            elif asked.fail:
                self._transactions.drop(self._transactions.find(self._peer, asked.txn_id))
                self._answer(event, ACCEPTED)
            else:
                self._end(event, self._transactions.find(self._peer, asked.txn_id))
        except (Refused, DecodeError) as refused:
            self._refuse(event, AmqpError(refused.condition, refused.description, {}))

    def _declare(self, event: TransferReceived, asked: Declare) -> Declared:
        if event.settled:
            raise Refused(conditions.INVALID_FIELD, "A declare is sent unsettled: its outcome has the id.")
        if asked.global_id is not None:
            raise Refused(conditions.NOT_IMPLEMENTED, "There are no distributed transactions here.")
        most = MOST_OF_STRANGER if self._is_stranger() else MOST_DECLARED
        if len(self._declared) >= most:
            text = f"There can be {most} transactions at a time. Discharge some."
            raise Refused(conditions.RESOURCE_LIMIT, text)
        self._check_room(OVERHEAD)
        transaction = self._transactions.declare(
            self, self._peer, hold=lambda size: self._hold(transaction, size)
        )
        self._declared[transaction.id] = transaction
        self._hold(transaction, OVERHEAD)
        self.weigh()
        return Declared(transaction.id)

    def _end(self, event: TransferReceived, transaction: Transaction) -> None:
        def conclude(failed: AmqpError | None) -> None:
            self._transactions.drop(transaction)
            if failed is None:
                self._answer(event, ACCEPTED)
            else:
                self._refuse(event, failed)

        self._peer.at_length(event, lambda: self._perform(transaction), conclude)

    def _perform(self, transaction: Transaction) -> AmqpError | None:
        """Do all that belongs to it, or nothing and tell why."""
        try:
            if transaction.doom is not None:
                raise transaction.doom
            self._discharge(transaction, self._held.get(transaction.id, 0))
        except Refused as refused:
            text = f"Nothing of the transaction was done: {refused.description}"
            return AmqpError(conditions.TRANSACTION_ROLLBACK, text, {})
        return None

    # -- what is held

    def _hold(self, transaction: Transaction, size: int) -> None:
        self._check_room(size)
        self._held[transaction.id] = self._held.get(transaction.id, 0) + size

    def _check_room(self, size: int) -> None:
        if sum(self._held.values()) + size > self._most:
            text = f"The transactions of a link hold at most {self._most} bytes. Discharge some."
            raise Refused(conditions.RESOURCE_LIMIT, text)

    def weigh(self) -> None:
        """Tell how much is held here; if all connections together hold too much, one ends."""
        self._account.note(self, sum(self._held.values()))

    # -- answers

    def _refuse(self, event: TransferReceived, error: AmqpError) -> None:
        """Say that something was not done; a client that knows no such outcome loses the link (part 4.3)."""
        if event.settled or not self._rejects:
            self._peer.detach(self, error)
        else:
            self._answer(event, Rejected(error))

    def _answer(self, event: TransferReceived, state: DeliveryState) -> None:
        if not event.settled:
            self.link.settle(event.delivery_id, state)
        self.renew(REQUEST_CREDIT)
