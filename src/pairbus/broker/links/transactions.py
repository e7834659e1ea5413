"""The transactions of a namespace that are not discharged yet, and what belongs to each.

1. A client declares a transaction on a link to the coordinator (`coordinator`). Transfers and dispositions of
   the same connection then name it (`transactional-state`). They are answered as if they were done, and
   noted; nothing happens yet.
2. A discharge does all that was noted in one turn, which is committed as a whole (`engine.transaction`), or
   nothing of it.
3. A transaction is over when it is discharged, when its coordinator's link goes, or after two minutes. What
   was noted is then forgotten; messages that were to be settled stay locked as they were.
4. A client makes us hold its messages, and what it says of those that it settles, until the discharge. They
   are held as bytes and count as unfinished messages do, and there are a hundred of them at most, as in the
   service.
"""

import uuid
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from pairbus import conditions
from pairbus.amqp.composites import encode_composite, from_described
from pairbus.amqp.decoding import decode
from pairbus.amqp.performatives import DeliveryOutcome
from pairbus.broker.engine.errors import Refused, not_allowed
from pairbus.broker.engine.transaction import NotedSend, NotedStep

# Both are those of the service.
LONGEST = 120.0
MOST_MESSAGES = 100
# Of a link at a time: one for each thread of a client, the first before it shows a token.
MOST_DECLARED, MOST_OF_STRANGER = 100, 4
#: Bytes that a message or a settlement takes beside its own, and a transaction that has none yet.
OVERHEAD = 1000


class KeptOutcome:
    """How a message is to be settled, as bytes."""

    __slots__ = ("_encoded",)

    def __init__(self, outcome: DeliveryOutcome) -> None:
        self._encoded = encode_composite(outcome)

    @property
    def size(self) -> int:
        return len(self._encoded)

    def read(self) -> DeliveryOutcome:
        """The outcome."""
        outcome = from_described(decode(self._encoded)[0])
        assert isinstance(outcome, DeliveryOutcome)
        return outcome


class Transaction:
    """What is to be done together."""

    __slots__ = ("_hold", "_messages", "doom", "id", "peer", "steps", "until")

    def __init__(self, peer: object, until: float, *, hold: Callable[[int], None]) -> None:
        """`hold` is asked for bytes that are to be held, and raises Refused if there are too many."""
        self.id = uuid.uuid4().bytes
        self.peer = peer
        self.until = until
        self.steps: list[NotedStep] = []
        #: Why it cannot be discharged.
        self.doom: Refused | None = None
        self._hold = hold
        self._messages = 0

    def add(self, step: NotedStep) -> None:
        """Note a step, or raise Refused."""
        count = len(step.messages) or 1 if isinstance(step, NotedSend) else 1
        if self._messages + count > MOST_MESSAGES:
            raise not_allowed(
                f"A transaction has at most {MOST_MESSAGES} messages. Discharge it, and begin another."
            )
        self._hold(step.size + count * OVERHEAD)
        self._messages += count
        self.steps.append(step)


class Coordinates(Protocol):
    """What transactions are declared on."""

    def forget(self, transaction: Transaction) -> None:
        """It is over, and holds nothing any more."""

    def weigh(self) -> None:
        """Tell how much is held."""


class Transactions:
    """Those of a namespace, in the order in which they were declared."""

    def __init__(
        self, monotonic: Callable[[], float], later: Callable[[float, Callable[[], None]], None]
    ) -> None:
        self._monotonic = monotonic
        self._later = later
        self._declared: OrderedDict[bytes, tuple[Transaction, Coordinates]] = OrderedDict()
        self._is_awaiting = False

    def __len__(self) -> int:
        return len(self._declared)

    def declare(self, owner: Coordinates, peer: object, *, hold: Callable[[int], None]) -> Transaction:
        """Begin one."""
        transaction = Transaction(peer, self._monotonic() + LONGEST, hold=hold)
        self._declared[transaction.id] = transaction, owner
        self._await_end()
        return transaction

    def find(self, peer: object, txn_id: bytes) -> Transaction:
        """The one of this name that a connection has declared, or Refused."""
        transaction, _ = self._declared.get(txn_id, (None, None))
        if transaction is None or transaction.peer is not peer or transaction.until <= self._monotonic():
            raise Refused(
                conditions.TRANSACTION_UNKNOWN,
                "This connection has no such transaction. It was discharged, its coordinator's link was "
                f"closed, or it took longer than {LONGEST:.0f} seconds.",
            )
        return transaction

    def weigh(self, txn_id: bytes) -> None:
        """Something was noted for this one."""
        _, owner = self._declared.get(txn_id, (None, None))
        if owner is not None:
            owner.weigh()

    def drop(self, transaction: Transaction) -> None:
        """It is over."""
        _, owner = self._declared.pop(transaction.id, (None, None))
        if owner is not None:
            owner.forget(transaction)

    def _await_end(self) -> None:
        if self._declared and not self._is_awaiting:
            self._is_awaiting = True
            first, _ = next(iter(self._declared.values()))
            self._later(max(0.0, first.until - self._monotonic()), self._end_oldest)

    def _end_oldest(self) -> None:
        self._is_awaiting = False
        now = self._monotonic()
        while self._declared:
            first, _ = next(iter(self._declared.values()))
            if first.until > now:
                break
            self.drop(first)
        self._await_end()
