"""A pair of embedded namespaces with a backlog, filled and looked at from within the broker."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from pairbus.amqp.message import (
    Header,
    Properties,
    encode_application_properties,
    encode_data,
    encode_header,
    encode_properties,
    scan,
)
from pairbus.amqp.types import Timestamp
from pairbus.broker import Broker
from pairbus.broker.connections import ConnectionInfo
from pairbus.broker.engine.message import Incoming, MessageState, StoredMessage
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.queue import MessageQueue
from pairbus.broker.engine.settings import QueueSettings, SubscriptionSettings
from pairbus.broker.handle import NamespaceHandle
from pairbus.broker.links.wire import render_peeked
from pairbus.pairing.envelope import Long, Natives, TimestampMs, wrap
from pairbus.pairing.names import backlog_queue_names, lease_queue_name
from tests.waiting import wait_until

__all__ = ["OTHER_ENV", "PRIMARY_ENV", "SECONDARY_ENV", "Bus", "Letter", "until"]

T = TypeVar("T")
# As many of these messages as fit a batch; large ones are few.
_AT_ONCE = 500
PRIMARY_ENV = "CONTOSO"
SECONDARY_ENV = "CONTOSO_DR"
OTHER_ENV = "FABRIKAM"
# What a killed pump held comes back after it. A busy machine must not let locks end that are minded.
LOCK = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A message for an entity of the primary."""

    path: str
    id: str
    session: str | None = None
    ttl_ms: int | None = None
    scheduled_ms: int | None = None
    body: bytes = b"x" * 64

    def wrapped(self) -> bytes:
        natives = Natives(session_id=self.session, ttl_ms=self.ttl_ms, scheduled_ms=self.scheduled_ms)
        aliases: dict[str, Any] = {
            name: Timestamp(value) if isinstance(value, TimestampMs) else _plain(value)
            for name, value in wrap(self.path, natives).aliases.items()
        }
        return b"".join(
            (
                encode_header(Header(durable=True)),
                encode_properties(Properties(message_id=self.id)),
                encode_application_properties(aliases),
                encode_data(self.body),
            )
        )


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, Long) else value


class Bus:
    """Primary `contoso`, secondary `contoso-dr`; or another primary with the same secondary."""

    def __init__(self, broker: Broker, *, primary: str = "contoso", queues: int = 10, begin: int = 0) -> None:
        """Create the backlog queues from `begin` on; those before it are there."""
        self.broker = broker
        self.primary = broker[primary]
        self.secondary = broker["contoso-dr"]
        self.backlog = backlog_queue_names(primary, queues)
        for name in self.backlog[begin:]:
            self.secondary.create_queue(name, _settings(LOCK))

    def create_entities(
        self, *, queues: Sequence[str], sessions: Sequence[str], topics: Sequence[str]
    ) -> None:
        for name in queues:
            self.primary.create_queue(name)
        for name in sessions:
            self.primary.create_queue(name, QueueSettings(requires_session=True))
        for name in topics:
            self.primary.create_topic(name)
            self.primary.create_subscription(name, "all", settings=SubscriptionSettings())

    def make_lease(self, *, lock: float = LOCK) -> None:
        """Create the queue of the syphon's lease, as provisioning does."""
        settings = QueueSettings(requires_session=True, lock_duration=lock)
        self.secondary.create_queue(lease_queue_name(self.primary.name), settings)

    def shorten_locks(self, seconds: float) -> None:
        """Where something is killed, the locks that it held are what is waited for."""
        for name in self.backlog:
            self.secondary.update_queue(name, _settings(seconds))

    def put(self, letters: Sequence[Letter], *, spread: Callable[[int, Letter], int] | None = None) -> None:
        """Put letters into the backlog, dealt over its queues; those of a session stay together."""
        by_queue: dict[str, list[bytes]] = {}
        for index, letter in enumerate(letters):
            place = spread(index, letter) if spread is not None else _place(index, letter)
            by_queue.setdefault(self.backlog[place % len(self.backlog)], []).append(letter.wrapped())
        for queue, payloads in by_queue.items():
            self.put_raw(queue, payloads)

    def put_raw(self, queue: str, payloads: Sequence[bytes]) -> None:
        for begin in range(0, len(payloads), _AT_ONCE):
            messages = [Incoming.parse(payload) for payload in payloads[begin : begin + _AT_ONCE]]
            _run(self.secondary, partial(_send, queue, messages))

    def found(self, path: str, *, on_secondary: bool = False) -> list[StoredMessage]:
        """All messages at a path."""
        side = self.secondary if on_secondary else self.primary
        return _run(side, lambda engine, now: _queue(engine, path).peek(0, 1_000_000, now))

    def ids(self, path: str) -> list[str]:
        return [str(message.message_id) for message in self.found(path)]

    def left(self) -> int:
        """How many messages are in the backlog queues, dead letters aside."""

        def count(engine: Namespace, now: float) -> int:
            return sum(_queue(engine, name).counts().active for name in self.backlog)

        return _run(self.secondary, count)

    def waiting(self) -> list[str]:
        """The ids of the messages that are put aside in the backlog queues."""
        found = [message for name in self.backlog for message in self.found(name, on_secondary=True)]
        return [message.message_id for message in found if message.state is MessageState.DEFERRED]

    def dead_letters(self) -> dict[str, str]:
        """The reasons of the dead letters of the backlog queues, by message id."""
        reasons = {}
        for name in self.backlog:
            for message in self.found(f"{name}/$DeadLetterQueue", on_secondary=True):
                properties = scan(bytes(render_peeked(message))).application_properties
                reasons[message.message_id] = str(properties["DeadLetterReason"])
        return reasons

    def take(self, queue: str) -> StoredMessage:
        """Delete a message from a backlog queue, as somebody might by hand."""

        def receive(engine: Namespace, now: float) -> StoredMessage:
            (delivery,) = _queue(engine, queue).receive(1, now, delete=True)
            return delivery.message

        return _run(self.secondary, receive)

    def hold(self, queue: str, count: int) -> int:
        """Lock messages of a backlog queue, as somebody else does; how many these are."""

        def receive(engine: Namespace, now: float) -> int:
            return len(_queue(engine, queue).receive(count, now))

        return _run(self.secondary, receive)

    def bury(self, queue: str) -> None:
        """Move the messages of a backlog queue to its dead letters."""

        def act(engine: Namespace, now: float) -> None:
            node = _queue(engine, queue)
            for delivery in node.receive(_AT_ONCE, now):
                assert delivery.lock_token is not None
                node.dead_letter(delivery.lock_token, now, reason="EntityNotFound")

        _run(self.secondary, act)

    def pumps(self) -> list[ConnectionInfo]:
        """The connections of pumps to the secondary, in the order in which they were opened."""
        found = [one for one in self.secondary.connections() if one.container_id == "pairbus-pump"]
        return sorted(found, key=lambda one: one.opened_at)

    def is_pumped(self) -> bool:
        """Whether any pump is connected. One that pauses is not."""
        return any(one.closed_at is None for one in self.pumps())

    def locked(self) -> int:
        """How many messages of the backlog somebody holds."""

        def count(engine: Namespace, now: float) -> int:
            total = 0
            for name in self.backlog:
                queue = _queue(engine, name)
                held = queue.receive(1_000_000, now)
                total += queue.counts().active - queue.counts().deferred - len(held)
                for delivery in held:
                    assert delivery.lock_token is not None
                    queue.release(delivery.lock_token, now)
            return total

        return _run(self.secondary, count)


def _settings(lock: float) -> QueueSettings:
    return QueueSettings(lock_duration=lock, max_delivery_count=2_147_483_647)


def _place(index: int, letter: Letter) -> int:
    return index if letter.session is None else sum(letter.session.encode())


def _send(queue: str, messages: list[Incoming], engine: Namespace, now: float) -> None:
    engine.send(queue, messages, now)


def _queue(engine: Namespace, path: str) -> MessageQueue:
    node = engine.node(path)
    assert isinstance(node, MessageQueue)
    return node


def _run(side: NamespaceHandle, act: Callable[[Namespace, float], T]) -> T:
    return side._run(act)


def until(condition: Callable[[], bool], *, within: float = 240.0) -> None:
    """With the patience that Spark needs."""
    wait_until(condition, within=within)
