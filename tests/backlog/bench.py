"""What the tests of this area share: a provisioner for an embedded secondary, a clock for its pauses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from azure.servicebus.management import QueueProperties, ServiceBusAdministrationClient

from pairbus.backlog.provisioner import Provisioner
from pairbus.broker import Broker
from pairbus.sdk.administration import open_administration

__all__ = ["SteppedTimers", "provisioner", "queue_names", "queue_properties"]


def provisioner(
    broker: Broker,
    *,
    policy: str = "root",
    count: int = 3,
    create: bool = True,
    request_limit: float = 10.0,
    timers: SteppedTimers | None = None,
    random: Callable[[], float] = lambda: 0.0,
) -> Provisioner:
    secondary = broker["contoso-dr"].policies[policy]
    return Provisioner(
        lambda: open_administration(secondary),
        "contoso",
        count=count,
        create=create,
        request_limit=request_limit,
        timers=timers,
        random=random,
    )


def _admin(broker: Broker) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(
        broker["contoso-dr"].connection_string, connection_verify=str(broker.certificate)
    )


def queue_properties(broker: Broker, name: str) -> QueueProperties:
    with _admin(broker) as admin:
        return admin.get_queue(name)


def queue_names(broker: Broker) -> list[str]:
    with _admin(broker) as admin:
        return [queue.name for queue in admin.list_queues()]


class _Fired:
    """A timer that has fired already."""

    def cancel(self) -> None:
        """Too late."""


@dataclass
class SteppedTimers:
    """Timers that fire as soon as they are set; the time jumps there, and the wait is noted."""

    moment: float = 0.0
    waits: list[float] = field(default_factory=list)

    def now(self) -> float:
        return self.moment

    def call_at(self, when: float, act: Callable[[], None]) -> _Fired:
        self.waits.append(when - self.moment)
        self.moment = when
        act()
        return _Fired()
