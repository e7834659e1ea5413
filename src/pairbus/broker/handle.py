"""What a program holds of one namespace of a broker: its connection strings, faults, counters and entities.

Every method may be called from any thread, and returns when the broker's event loop has done its work.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

from pairbus.fault_kinds import FaultKind

from .access.policies import connection_string
from .connections import ConnectionInfo
from .counters import Counters, OperationKind, OperationTally
from .engine.namespace import Namespace
from .engine.rules import Rule
from .engine.settings import QueueSettings, SubscriptionSettings, TopicSettings
from .faults.fault import Fault
from .host import NamespaceHost

T = TypeVar("T")


class BrokerLoop(Protocol):
    """What a handle needs of the broker."""

    @property
    def address(self) -> str:
        """The address that it listens at."""

    def call(self, function: Callable[[], T]) -> T:
        """Call a function on its event loop."""

    def _run(self, host: NamespaceHost, act: Callable[[Namespace, float], T]) -> T:
        """Do something to a namespace, and return when it is committed."""


class Faults:
    """The faults of one namespace."""

    def __init__(self, broker: BrokerLoop, host: NamespaceHost) -> None:
        self._broker = broker
        self._host = host

    def set(
        self,
        kind: FaultKind | str,
        *,
        entity: str | None = None,
        duration: float | None = None,
        seconds: float | None = None,
        condition: str | None = None,
        every: int | None = None,
        up: float | None = None,
        down: float | None = None,
    ) -> Fault:
        """Let something go wrong for `duration` seconds, or until cleared; open connections feel it too."""
        given = {"seconds": seconds, "condition": condition, "every": every, "up": up, "down": down}
        desk = self._host.fault_desk
        return self._broker.call(lambda: desk.set(kind, entity=entity, duration=duration, arguments=given))

    def clear(self, entity: str | None = None) -> int:
        """End all faults of the namespace, or those of one entity; how many there were."""
        return self._broker.call(lambda: self._host.fault_desk.clear(entity))

    def list(self) -> "list[Fault]":
        """The faults in force, the latest first."""
        return self._broker.call(lambda: self._host.faults.active(self._host.now()))


class NamespaceHandle:
    """One namespace of a running broker."""

    def __init__(self, broker: BrokerLoop, host: NamespaceHost) -> None:
        self._broker = broker
        self._host = host
        self.name = host.name
        self.faults = Faults(broker, host)

    def __repr__(self) -> str:
        return f"<NamespaceHandle {self.name}>"

    @property
    def port(self) -> int:
        """The port that serves AMQP, TLS and HTTP."""
        return self._host.port

    @property
    def connection_string(self) -> str:
        """A connection string with all rights."""
        return self.policies["root"]

    @property
    def policies(self) -> dict[str, str]:
        """Connection strings by the name of their policy; the one with all rights is called `root` here."""
        root = self._host.policies.root
        return {
            "root" if policy is root else policy.name: connection_string(
                self._broker.address, self.port, namespace=self.name, policy=policy
            )
            for policy in self._host.policies.values()
        }

    # -- entities

    def create_queue(self, name: str, settings: QueueSettings | None = None) -> None:
        """Create a queue, with Azure's defaults unless told otherwise."""
        self._run(lambda engine, now: engine.create_queue(name, settings, now))

    def create_topic(self, name: str, settings: TopicSettings | None = None) -> None:
        """Create a topic."""
        self._run(lambda engine, now: engine.create_topic(name, settings, now))

    def create_subscription(
        self, topic: str, name: str, *, settings: SubscriptionSettings | None = None, rule: Rule | None = None
    ) -> None:
        """Create a subscription; it takes everything unless it is given a rule."""
        self._run(lambda engine, now: engine.create_subscription(topic, name, settings, now, rule=rule))

    def update_queue(self, name: str, settings: QueueSettings) -> None:
        """Change the settings of a queue; links that they do not allow are detached."""
        self._run(lambda engine, now: engine.update_queue(name, settings, now))

    def update_topic(self, name: str, settings: TopicSettings) -> None:
        """Change the settings of a topic; links that they do not allow are detached."""
        self._run(lambda engine, now: engine.update_topic(name, settings, now))

    def update_subscription(self, topic: str, name: str, *, settings: SubscriptionSettings) -> None:
        """Change the settings of a subscription; links that they do not allow are detached."""
        self._run(lambda engine, now: engine.update_subscription(topic, name, settings, now))

    def delete_queue(self, name: str) -> None:
        """Delete a queue with all its messages; its links are detached."""
        self._run(lambda engine, now: engine.delete_queue(name, now))

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its subscriptions; their links are detached."""
        self._run(lambda engine, now: engine.delete_topic(name, now))

    def delete_subscription(self, topic: str, name: str) -> None:
        """Delete a subscription with its messages; its links are detached."""
        self._run(lambda engine, now: engine.delete_subscription(topic, name, now))

    def message_count(self, path: str) -> int:
        """How many messages, in whatever state, are at a queue, a subscription or one of their sub-queues."""
        return self._run(lambda engine, now: engine.node(path).counts().total)

    # -- counters

    def counters(self) -> list[OperationTally]:
        """The counts of billable operations so far."""
        return self._broker.call(lambda: list(self._host.counters))

    def count(self, kind: OperationKind, *, entity: str | None = None, connection: str | None = None) -> int:
        """How many operations of one kind there were."""
        counters: Counters = self._host.counters
        return self._broker.call(lambda: counters.total(kind, entity=entity, connection=connection))

    def connections(self) -> list[ConnectionInfo]:
        """Who is connected, and who was: which client is behind the `connection` of a counter."""
        return self._broker.call(lambda: list(self._host.connections))

    def _run(self, act: Callable[[Namespace, float], T]) -> T:
        return self._broker._run(self._host, act)
