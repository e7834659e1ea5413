"""Prometheus metrics of paired clients: `observers=[PrometheusObserver()]`.

Every name and label stands once, in `FAMILIES`; the documentation is checked against it. Several clients may
write to one registry: they share the metrics, and the label `pair` tells them apart.
"""

import weakref
from dataclasses import dataclass
from typing import Any, get_args

from pairbus.options import EntityState, PingRole, StateChange

from .observer import Observer, Sending

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
except ImportError as error:
    raise ImportError(
        "Prometheus metrics need prometheus-client: pip install 'pairbus[metrics]'", name="prometheus_client"
    ) from error

# A send to a near namespace takes a few milliseconds, one that is held until the failover a minute and more.
_BUCKETS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: its kind, what it tells, and its labels besides `pair`."""

    kind: type[Counter] | type[Gauge] | type[Histogram]
    name: str
    meaning: str
    labels: tuple[str, ...] = ()


_SENT = ("path", "route", "outcome")
FAMILIES = (
    Family(Counter, "pairbus_sends_total", "Attempts to send that have ended.", _SENT),
    Family(Counter, "pairbus_messages_total", "Messages in the attempts to send that have ended.", _SENT),
    Family(Histogram, "pairbus_send_seconds", "How long attempts to send took.", ("path", "route")),
    Family(Gauge, "pairbus_entity_state", "1 for the state that an entity is in, else 0.", ("path", "state")),
    Family(Counter, "pairbus_state_changes_total", "Changes of state, by the new one.", ("path", "state")),
    Family(Counter, "pairbus_pings_total", "Pings, by how they ended: ok or failed.", ("path", "outcome")),
    Family(
        Gauge,
        "pairbus_ping_role",
        "1 for who pings an entity that is down: prober, listener or alone.",
        ("path", "role"),
    ),
    Family(
        Counter,
        "pairbus_late_answers_total",
        "Sends that were answered after a failover had given them up: ok or failed.",
        ("path", "outcome"),
    ),
    Family(Gauge, "pairbus_rotation_usable", "Backlog queues in the rotation."),
    Family(Gauge, "pairbus_rotation_queues", "Backlog queues that the pair has."),
    Family(Gauge, "pairbus_records_lag_seconds", "Records that are older have been shipped."),
    Family(Gauge, "pairbus_records_waiting", "Segments of records that wait to be shipped."),
    Family(
        Counter,
        "pairbus_headroom_lacked_total",
        "Messages that a backlog queue would not take as they were.",
        ("path",),
    ),
)

# The metrics of each registry, since a name can be registered with it but once.
_registered: weakref.WeakKeyDictionary[CollectorRegistry, dict[str, Any]] = weakref.WeakKeyDictionary()


def _metrics_of(registry: CollectorRegistry) -> dict[str, Any]:
    found = _registered.get(registry)
    if found is None:
        found = _registered[registry] = {family.name: _register(family, registry) for family in FAMILIES}
    return found


def _register(family: Family, registry: CollectorRegistry) -> Any:
    labels = ("pair", *family.labels)
    if family.kind is Histogram:
        return Histogram(family.name, family.meaning, labels, registry=registry, buckets=_BUCKETS)
    return family.kind(family.name, family.meaning, labels, registry=registry)


class PrometheusObserver(Observer):
    """Counts what one client does. Give it to the client among its `observers`."""

    def __init__(self, registry: CollectorRegistry | None = None, *, pair: str | None = None) -> None:
        """`registry`: where the metrics are registered, the default one if none is given; `pair`: the value
        of the label that tells this client from others, the name of its primary if none is given.
        """
        self._metrics = _metrics_of(REGISTRY if registry is None else registry)
        self._given_name = pair
        self._pair = pair or ""
        self._states: dict[str, EntityState] = {}
        self._children: dict[tuple[str, str, str], tuple[Counter, Counter, Histogram]] = {}

    def paired(self, primary_name: str, backlog_queues: int) -> None:
        self._pair = self._given_name or primary_name
        self.rotation_changed(backlog_queues, backlog_queues)

    def sent(self, sending: Sending) -> None:
        sends, messages, seconds = self._children_of(sending)
        sends.inc()
        messages.inc(sending.messages)
        seconds.observe(sending.seconds)

    def _children_of(self, sending: Sending) -> tuple[Counter, Counter, Histogram]:
        # To find a child by its labels costs more than to count.
        key = (sending.path, sending.route, sending.outcome)
        found = self._children.get(key)
        if found is None:
            # An entity is shown with its first send, not only once it has failed.
            self._show(sending.path, self._states.get(sending.path, EntityState.HEALTHY))
            found = self._children[key] = (
                self._child("pairbus_sends_total", *key),
                self._child("pairbus_messages_total", *key),
                self._child("pairbus_send_seconds", sending.path, sending.route),
            )
        return found

    def _child(self, name: str, *labels: str) -> Any:
        return self._metrics[name].labels(self._pair, *labels)

    def state_changed(self, change: StateChange) -> None:
        self._show(change.path, change.new)
        self._child("pairbus_state_changes_total", change.path, change.new.value).inc()

    def _show(self, path: str, state: EntityState) -> None:
        self._states[path] = state
        for each in EntityState:
            self._child("pairbus_entity_state", path, each.value).set(each is state)

    def pinged(self, path: str, *, succeeded: bool, seconds: float) -> None:
        self._child("pairbus_pings_total", path, "ok" if succeeded else "failed").inc()

    def ping_role_changed(self, path: str, role: PingRole | None) -> None:
        for each in get_args(PingRole):
            self._child("pairbus_ping_role", path, each).set(each == role)

    def answered_late(self, path: str, *, succeeded: bool) -> None:
        self._child("pairbus_late_answers_total", path, "ok" if succeeded else "failed").inc()

    def rotation_changed(self, usable: int, total: int) -> None:
        self._child("pairbus_rotation_usable").set(usable)
        self._child("pairbus_rotation_queues").set(total)

    def shipped(self, lag: float, waiting: int) -> None:
        self._child("pairbus_records_lag_seconds").set(lag)
        self._child("pairbus_records_waiting").set(waiting)

    def oversized(self, path: str, messages: int) -> None:
        self._child("pairbus_headroom_lacked_total", path).inc(messages)
