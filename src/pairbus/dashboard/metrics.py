"""Metrics over everything that `pairbus status` knows, for Prometheus: `GET /metrics`.

Every name and label stands once, in `FAMILIES`; the documentation, the rules and the Grafana dashboard are
checked against it. Numbers are taken from the picture that the page shows, so both tell the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pairbus.plumbing.exposition import write_family, write_sample

from .picture import Facts

_STATES = ("healthy", "suspect", "failed_over", "faulted")
Readings = Mapping[tuple[str, str], tuple[float | None, str | None]]
MetricSample = tuple[tuple[str, ...], float]


@dataclass(frozen=True, slots=True)
class PageFamily:
    """One metric: what it tells, and its labels."""

    name: str
    meaning: str
    labels: tuple[str, ...] = ("pair",)
    kind: Literal["gauge", "counter"] = "gauge"


_CLIENT = ("pair", "client")
_PATH = ("pair", "path")
FAMILIES = (
    PageFamily(
        "pairbus_client_up", "1 for a client that runs, 0 for one that left its status behind.", _CLIENT
    ),
    PageFamily("pairbus_client_fault", "1 if the client has faulted, else 0.", _CLIENT),
    PageFamily(
        "pairbus_client_provisioned", "1 if the backlog queues were created or found, else 0.", _CLIENT
    ),
    PageFamily("pairbus_client_rotation_usable", "Backlog queues in the rotation.", _CLIENT),
    PageFamily("pairbus_client_rotation_queues", "Backlog queues that the pair has.", _CLIENT),
    PageFamily("pairbus_client_warnings", "Warnings in the status.", _CLIENT),
    PageFamily("pairbus_client_sessions_staying", "Sessions that stay on the backlog.", _CLIENT),
    PageFamily("pairbus_client_records_lost", "Redirect records that could not be written.", _CLIENT),
    PageFamily("pairbus_client_records_unshipped", "Segments of records that wait to be shipped.", _CLIENT),
    PageFamily(
        "pairbus_client_records_lag_seconds",
        "Lag of shipping: older records are at the shared place.",
        _CLIENT,
    ),
    PageFamily("pairbus_client_spool_messages", "Messages in the local spool.", _CLIENT),
    PageFamily("pairbus_client_spool_bytes", "Bytes in the local spool.", _CLIENT),
    PageFamily("pairbus_client_spool_limit_bytes", "What the local spool may hold.", _CLIENT),
    PageFamily("pairbus_client_syphon_running", "1 if the client hosts a syphon that runs.", _CLIENT),
    PageFamily(
        "pairbus_entity_worst_state",
        "1 for the worst state that a running client sees, else 0.",
        ("pair", "path", "state"),
    ),
    PageFamily("pairbus_entity_since_seconds", "When the entity entered its state, in Unix time.", _PATH),
    PageFamily(
        "pairbus_entity_messages",
        "Messages sent by running clients, by route and outcome.",
        ("pair", "path", "route", "outcome"),
    ),
    PageFamily("pairbus_entity_pings", "Pings of running clients.", _PATH),
    PageFamily("pairbus_entity_late", "Sends that arrived after a failover had given them up.", _PATH),
    PageFamily(
        "pairbus_entity_without_headroom",
        "Messages too large for a backlog queue with their envelope.",
        _PATH,
    ),
    PageFamily("pairbus_backlog_messages", "Messages in a backlog queue.", ("pair", "queue")),
    PageFamily("pairbus_backlog_dead_letters", "Dead letters of a backlog queue.", ("pair", "queue")),
    PageFamily("pairbus_backlog_bytes", "Bytes in a backlog queue.", ("pair", "queue")),
    PageFamily("pairbus_backlog_missing_queues", "Backlog queues that are not there."),
    PageFamily("pairbus_backlog_path_messages", "Messages in the backlog, by destination.", _PATH),
    PageFamily("pairbus_backlog_path_oldest_seconds", "Age of the oldest of them.", _PATH),
    PageFamily("pairbus_dead_letters", "Dead letters of the backlog queues, by reason.", ("pair", "reason")),
    PageFamily("pairbus_drain_running", "1 while a drain runs, else 0."),
    PageFamily("pairbus_drain_paused", "1 while a drain is paused, else 0."),
    PageFamily("pairbus_drain_moved_total", "Messages that the drain has moved.", kind="counter"),
    PageFamily("pairbus_drain_waiting", "Messages that the drain put aside because their path is down."),
    PageFamily("pairbus_spool_left_bytes", "Bytes that clients which are gone have left in the spool."),
    PageFamily("pairbus_spool_refused", "Messages that the spool keeps because no side takes them."),
    PageFamily("pairbus_spool_damaged", "Parts of the spool that cannot be read."),
    PageFamily("pairbus_cost", "Cost of this month so far, by stage.", ("pair", "stage", "currency")),
    PageFamily(
        "pairbus_cost_total", "Cost of this month so far, with the base charge.", ("pair", "currency")
    ),
    PageFamily("pairbus_cost_per_hour", "Cost of the last hour, with the base charge.", ("pair", "currency")),
    PageFamily(
        "pairbus_cost_in_a_day",
        "Cost of this month by this time tomorrow, at that rate.",
        ("pair", "currency"),
    ),
    PageFamily("pairbus_budget", "The budget of a month, if there is one.", ()),
    PageFamily("pairbus_verdict_clean", "1 if the last verdict was clean, else 0."),
    PageFamily("pairbus_verdict_lost", "Messages that the last verdict found lost."),
    PageFamily("pairbus_verdict_time_seconds", "When the last verdict was given, in Unix time."),
    PageFamily("pairbus_namespace_faults", "Faults that are set on an embedded namespace.", ("namespace",)),
    PageFamily(
        "pairbus_namespace_operations_total",
        "Operations of an embedded namespace.",
        ("namespace", "kind"),
        kind="counter",
    ),
    PageFamily("pairbus_source_up", "1 if this source answers, else 0.", ("pair", "source")),
    PageFamily(
        "pairbus_source_time_seconds", "When this source last answered, in Unix time.", ("pair", "source")
    ),
)


def write_metrics(picture: Facts, readings: Readings) -> bytes:
    """The text that Prometheus scrapes."""
    written: dict[str, list[str]] = {family.name: [] for family in FAMILIES}
    labels = {family.name: family.labels for family in FAMILIES}
    for name, (values, number) in _samples(picture, readings):
        written[name].append(write_sample(name, zip(labels[name], values, strict=True), float(number)))
    text = []
    for family in FAMILIES:
        text.append(write_family(family.name, family.kind, family.meaning))
        text += written[family.name]
    return "".join(text).encode()


def _samples(picture: Facts, readings: Readings) -> Iterator[tuple[str, MetricSample]]:
    now = picture.get("at", 0.0)
    for pair in picture.get("pairs", ()):
        for name, labels, value in _of_pair(pair, now):
            yield f"pairbus_{name}", ((pair["name"], *labels), float(value))
    if picture.get("budget") is not None:
        yield "pairbus_budget", ((), float(picture["budget"]))
    broker = picture.get("broker")
    for namespace in broker["namespaces"] if broker else ():
        yield "pairbus_namespace_faults", ((namespace["name"],), len(namespace["faults"]))
        for kind, count in namespace["operations"].items():
            yield "pairbus_namespace_operations_total", ((namespace["name"], kind), count)
    for (pair_name, source), (at, error) in readings.items():
        yield "pairbus_source_up", ((pair_name, source), float(error is None))
        if at is not None:
            yield "pairbus_source_time_seconds", ((pair_name, source), at)


MetricRow = tuple[str, tuple[str, ...], float]


def _of_pair(pair: Facts, now: float) -> Iterator[MetricRow]:
    for client in pair["clients"]:
        yield from _of_client(client)
    for entity in pair["entities"]:
        yield from _of_entity(entity)
    yield from _of_backlog(pair, now)
    drain, spool, money, verdict = (pair[name] for name in ("drain", "spool", "money", "verdict"))
    yield "drain_running", (), drain["state"] == "running"
    yield "drain_paused", (), drain["state"] == "paused"
    yield "drain_moved_total", (), drain["moved"]
    yield "drain_waiting", (), drain["waiting"]
    yield "spool_left_bytes", (), spool["bytes_left"]
    yield "spool_refused", (), spool["refused"]
    yield "spool_damaged", (), spool["damaged"]
    if money is not None:
        for stage in money["stages"]:
            yield "cost", (stage["stage"], money["currency"]), float(stage["cost"])
        for name in ("total", "per_hour", "in_a_day"):
            yield f"cost_{name}", (money["currency"],), float(money[name])
    if verdict is not None:
        yield "verdict_clean", (), verdict["is_clean"]
        yield "verdict_lost", (), verdict["lost"]
        yield "verdict_time_seconds", (), verdict["at"]


def _of_client(client: Facts) -> Iterator[MetricRow]:
    labels = (client["id"],)
    yield "client_up", labels, not client["is_gone"]
    if client["is_gone"]:
        return
    spool, syphon, sessions = client["spool"] or {}, client["syphon"] or {}, client["sessions"] or {}
    yield "client_fault", labels, client["fault"] is not None
    yield "client_provisioned", labels, client["provisioning"] == "ready"
    yield "client_rotation_usable", labels, client["usable"]
    yield "client_rotation_queues", labels, client["queues"]
    yield "client_warnings", labels, len(client["warnings"])
    yield "client_sessions_staying", labels, sessions.get("staying", 0)
    yield "client_records_lost", labels, client["records_lost"]
    if client["shipping"] is not None:
        yield "client_records_unshipped", labels, client["shipping"]["waiting"]
        yield "client_records_lag_seconds", labels, client["shipping"]["lag"]
    yield "client_spool_messages", labels, spool.get("messages", 0)
    yield "client_spool_bytes", labels, spool.get("bytes", 0)
    yield "client_spool_limit_bytes", labels, spool.get("limit", 0)
    yield "client_syphon_running", labels, syphon.get("state") == "running"


def _of_entity(entity: Facts) -> Iterator[MetricRow]:
    labels = (entity["path"],)
    for state in _STATES:
        yield "entity_worst_state", (*labels, state), entity["state"] == state
    if entity["since"] is not None:
        yield "entity_since_seconds", labels, entity["since"]
    for route, outcomes in entity["sent"].items():
        for outcome, count in outcomes.items():
            yield "entity_messages", (*labels, route, outcome), count
    for name in ("pings", "late", "without_headroom"):
        yield f"entity_{name}", labels, entity[name]


def _of_backlog(pair: Facts, now: float) -> Iterator[MetricRow]:
    backlog: dict[str, Any] | None = pair["backlog"]
    if backlog is not None:
        yield "backlog_missing_queues", (), len(backlog["missing"])
        for queue in backlog["queues"]:
            yield "backlog_messages", (queue["name"],), queue["active"]
            yield "backlog_dead_letters", (queue["name"],), queue["dead_letters"]
            yield "backlog_bytes", (queue["name"],), queue["size"]
    for one in pair["waiting"]["paths"]:
        yield "backlog_path_messages", (one["path"],), one["messages"]
        yield "backlog_path_oldest_seconds", (one["path"],), max(now - one["oldest"], 0.0)
    for one in pair["waiting"]["dead"]:
        yield "dead_letters", (one["reason"],), one["messages"]
