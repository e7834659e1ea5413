"""How a broker is, for whoever watches it: health, and metrics in the text format of Prometheus.

Whoever reaches the control address is told both: names of namespaces and entities, states, numbers.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from pairbus.plumbing.exposition import write_family, write_sample

from .decisions import Decisions
from .engine.breath import breathe
from .engine.queue import MessageQueue
from .engine.topic import Topic
from .host import NamespaceHost

_Sample = tuple[Mapping[str, str], int]
_STATES = ("active", "dead_letter", "scheduled", "transfer", "transfer_dead_letter", "deferred")


class MetricFamily(NamedTuple):
    """One metric: its name, whether it only grows, and what it tells."""

    name: str
    kind: str
    meaning: str


UP = MetricFamily("pairbus_namespace_up", "gauge", "1 if a namespace answers, 0 if its store is unreadable.")
CONNECTIONS = MetricFamily("pairbus_connections", "gauge", "Connections that are open now.")
MADE = MetricFamily("pairbus_connections_opened_total", "counter", "Connections that were ever made.")
FAULTS = MetricFamily("pairbus_faults", "gauge", "Faults in force.")
MESSAGES = MetricFamily(
    "pairbus_entity_messages", "gauge", "Messages at an entity by state; deferred ones count as active too."
)
BYTES = MetricFamily("pairbus_entity_bytes", "gauge", "Bytes that a queue or topic takes.")
OPERATIONS = MetricFamily("pairbus_operations_total", "counter", "Billable operations, by entity and kind.")
UNITS = MetricFamily(
    "pairbus_operation_units_total", "counter", "The same as they are billed: one for each started 64 KB."
)
OPERATION_BYTES = MetricFamily("pairbus_operation_bytes_total", "counter", "Bytes that operations carried.")
FAMILIES = (UP, CONNECTIONS, MADE, FAULTS, MESSAGES, BYTES, OPERATIONS, UNITS, OPERATION_BYTES)


def describe_health(hosts: Iterable[NamespaceHost]) -> tuple[bool, dict[str, Any]]:
    """Whether all is well, and what is the matter with each namespace."""
    states = {host.name: "ok" if host.trouble is None else str(host.trouble) for host in hosts}
    is_well = all(state == "ok" for state in states.values())
    return is_well, {"status": "ok" if is_well else "failing", "namespaces": states}


class Scrape:
    """Metrics for whoever asks: made a little at a time, and once for all who ask meanwhile."""

    def __init__(self, hosts: Collection[NamespaceHost]) -> None:
        self._hosts = hosts
        self._decisions = Decisions("metrics")
        self._asking: list[asyncio.Future[bytes]] = []

    async def read(self) -> bytes:
        """All metrics as text."""
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._asking.append(answer)
        if len(self._asking) == 1:
            self._decisions.make(lambda: write_metrics(self._hosts).encode(), self._tell)
        return await answer

    def close(self) -> None:
        """Nobody is answered any more."""
        self._decisions.close()

    def _tell(self, written: Callable[[], bytes]) -> None:
        asking, self._asking = self._asking, []
        for answer in asking:
            if answer.done():
                continue
            try:
                answer.set_result(written())
            except Exception as error:  # noqa: BLE001 - it is told to whoever asked
                answer.set_exception(error)


def write_metrics(hosts: Iterable[NamespaceHost]) -> str:
    """All metrics as text."""
    samples: dict[MetricFamily, list[_Sample]] = {family: [] for family in FAMILIES}
    for host in hosts:
        _collect(host, samples)
    return "".join(line for family in FAMILIES for line in _lines(family, samples[family]))


def _collect(host: NamespaceHost, samples: Mapping[MetricFamily, list[_Sample]]) -> None:
    label = {"namespace": host.name}
    samples[UP].append((label, host.trouble is None))
    samples[CONNECTIONS].append((label, host.connections.open_count))
    samples[MADE].append((label, host.connections.made))
    samples[FAULTS].append((label, len(host.faults.active(host.now()))))
    engine = host.engine
    queues, topics = engine.list_queues(), engine.list_topics()
    every: list[MessageQueue | Topic] = [*queues, *topics]
    for topic in topics:
        every += topic.subscriptions
    for entity in every:
        breathe()
        counts = entity.counts()
        for state in _STATES:
            labels = {**label, "entity": entity.path, "state": state}
            samples[MESSAGES].append((labels, getattr(counts, state)))
    for owner in (*queues, *topics):
        samples[BYTES].append(({**label, "entity": owner.path}, owner.size_bytes))
    for (path, kind), numbers in host.counters.sums().items():
        labels = {**label, "entity": path, "kind": kind.value}
        for family, number in zip((OPERATIONS, UNITS, OPERATION_BYTES), numbers, strict=True):
            samples[family].append((labels, number))
        breathe()


def _lines(family: MetricFamily, samples: Iterable[_Sample]) -> Iterator[str]:
    yield write_family(*family)
    for labels, value in samples:
        breathe()
        yield write_sample(family.name, labels.items(), value)
