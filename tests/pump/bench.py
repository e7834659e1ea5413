"""What the tests of the pump share: two embedded namespaces, wrapped messages, and what became of them."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from pairbus.amqp.message import (
    Header,
    MessageSections,
    Properties,
    encode_application_properties,
    encode_data,
    encode_header,
    encode_properties,
    scan,
)
from pairbus.amqp.types import Timestamp
from pairbus.broker import Broker
from pairbus.broker.counters import OperationKind
from pairbus.broker.engine.message import Incoming
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.queue import MessageQueue
from pairbus.broker.engine.settings import QueueSettings
from pairbus.broker.engine.tiers import RELAXED
from pairbus.broker.handle import NamespaceHandle
from pairbus.broker.links.wire import render_peeked
from pairbus.clock import Clock, SystemClock
from pairbus.ledger.receipts import MemoryReceipts
from pairbus.pairing.envelope import Aliases, Long, Natives, TimestampMs, wrap
from pairbus.pump.options import PumpOptions
from pairbus.pump.pair import PumpPair
from pairbus.pump.pump import Pump
from pairbus.pump.summary import PumpSummary

__all__ = ["Bench", "SettableClock", "backlog", "envelope", "opened"]

# As provisioning makes them, save for the lock, which tests give their own.
_BACKLOG = QueueSettings(max_delivery_count=2_147_483_647, max_size_in_megabytes=5120)


def backlog(index: int = 0, primary: str = "contoso") -> str:
    return f"{primary}/x-servicebus-transfer/{index}"


def envelope(
    path: str | None,
    message_id: str = "",
    *,
    session: str | None = None,
    ttl_ms: int | None = None,
    scheduled_ms: int | None = None,
    body: bytes = b"body",
    properties: dict[str, Any] | None = None,
) -> bytes:
    """A wrapped message, as a client sends it to a backlog queue: ten minutes ago, if it has a life."""
    aliases: Aliases = {}
    born = None if ttl_ms is None else int((time.time() - 600) * 1000)
    if path is not None:
        natives = Natives(session_id=session, ttl_ms=ttl_ms, scheduled_ms=scheduled_ms)
        aliases = wrap(path, natives).aliases
    return b"".join(
        (
            encode_header(Header(durable=True)),
            encode_properties(Properties(message_id=message_id or None, creation_time=born)),
            encode_application_properties(
                {**(properties or {}), **{k: _amqp(v) for k, v in aliases.items()}}
            ),
            encode_data(body),
        )
    )


def _amqp(value: str | Long | TimestampMs) -> Any:
    if isinstance(value, TimestampMs):
        return Timestamp(value)
    return int(value) if isinstance(value, Long) else value


def _queue(engine: Namespace, path: str) -> MessageQueue:
    node = engine.node(path)
    assert isinstance(node, MessageQueue)
    return node


def _send(queue: str, messages: list[Incoming], engine: Namespace, now: float) -> None:
    engine.send(queue, messages, now)


class SettableClock(SystemClock):
    """A clock that can be set."""

    ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


class Bench:
    """A broker with a primary and a secondary."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.primary = broker["contoso"]
        self.secondary = broker["contoso-dr"]
        self.receipts = MemoryReceipts()

    def pair(self, *, policy: str = "root") -> PumpPair:
        return PumpPair.from_connection_strings(
            self.primary.policies[policy], self.secondary.connection_string
        )

    def create(self, *queues: str, lock: float = 60.0, count: int = 1) -> list[str]:
        """Queues of the primary, and backlog queues; the names of the latter."""
        for queue in queues:
            self.primary.create_queue(queue)
        names = [backlog(index) for index in range(count)]
        for name in names:
            self.secondary.create_queue(name, replace(_BACKLOG, lock_duration=lock))
        return names

    @contextmanager
    def short_locks(self, queue: str) -> Iterator[None]:
        """What is locked meanwhile, as by a process that then dies, is soon free; what pumps lock is not."""
        self.secondary.update_queue(queue, replace(_BACKLOG, lock_duration=0.5))
        yield
        self.secondary.update_queue(queue, _BACKLOG)

    def load(self, queue: str, payloads: Iterable[bytes]) -> None:
        """Put wrapped messages into a backlog queue."""
        messages = [Incoming.parse(payload) for payload in payloads]
        for begin in range(0, len(messages), 100):
            some = messages[begin : begin + 100]
            self.secondary._run(partial(_send, queue, some))

    def pump(self, queues: Sequence[str], *, clock: Clock | None = None, **options: Any) -> Pump:
        given = {
            "drain": True,
            "drain_wait": 0.05,
            "progress_interval": 0.05,
            "first_back_off": 0.2,
            **options,
        }
        return Pump(self.pair(), queues, options=PumpOptions(**given), receipts=self.receipts, clock=clock)

    async def drain(self, queues: Sequence[str], **options: Any) -> PumpSummary:
        return await self.pump(queues, **options).run()

    # -- looking

    def stored(self, path: str, *, on: NamespaceHandle | None = None) -> list[MessageSections]:
        """The messages at a path, in the order of their numbers."""

        def look(engine: Namespace, now: float) -> list[bytes]:
            return [bytes(render_peeked(message)) for message in _queue(engine, path).peek(0, 1 << 30, now)]

        return [scan(payload) for payload in (on or self.primary)._run(look)]

    def ids(self, path: str, *, on: NamespaceHandle | None = None) -> list[str]:
        return [str(message.properties.message_id) for message in self.stored(path, on=on)]

    def dead_letters(self, queue: str) -> dict[str, str]:
        """Message id to reason."""
        return {
            str(one.properties.message_id): str(one.application_properties.get("DeadLetterReason"))
            for one in self.stored(f"{queue}/$DeadLetterQueue", on=self.secondary)
        }

    def locked(self, queue: str) -> int:
        return self.secondary._run(lambda engine, now: len(_queue(engine, queue)._locks))

    def hold(self, queue: str, count: int) -> None:
        """Lock messages of a backlog queue, as a process that then dies."""
        self.secondary._run(lambda engine, now: _queue(engine, queue).receive(count, now))

    def fetch_deferred(self, queue: str, count: int) -> None:
        """Lock the first messages that were put aside, as a process that then dies."""

        def act(engine: Namespace, now: float) -> None:
            node = _queue(engine, queue)
            node.receive_deferred([one.sequence_number for one in node.peek(0, count, now)], now)

        self.secondary._run(act)

    def set_aside(self, queue: str, count: int) -> None:
        """Defer messages of a backlog queue, as a process that then dies."""

        def act(engine: Namespace, now: float) -> None:
            for delivery in _queue(engine, queue).receive(count, now):
                assert delivery.lock_token is not None
                _queue(engine, queue).defer(delivery.lock_token, now)

        self.secondary._run(act)

    def counted(
        self, kind: OperationKind, *, on: NamespaceHandle | None = None, entity: str | None = None
    ) -> int:
        return (on or self.secondary).count(kind, entity=entity)

    @property
    def receipt_ids(self) -> list[str]:
        return [row["message_id"] for row in self.receipts.rows if row["outcome"] == "moved"]


@contextmanager
def opened(*, clock: Clock | None = None) -> Iterator[Bench]:
    with Broker({"contoso": 0, "contoso-dr": 0}, limits=RELAXED, clock=clock) as broker:
        yield Bench(broker)
