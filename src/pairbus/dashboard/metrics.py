"""Metrics over everything that `pairbus status` knows, for Prometheus: `GET /metrics`.

Every name and label stands once, in `_MEANINGS`; the documentation, the rules and the Grafana dashboard are
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
#: A name without its prefix, the values of its labels, and the number.
MetricRow = tuple[str, tuple[str, ...], float]


@dataclass(frozen=True, slots=True)
class PageFamily:
    """One metric: what it tells, and its labels."""

    name: str
    meaning: str
    labels: tuple[str, ...]
    kind: Literal["gauge", "counter"]

    @classmethod
    def of(cls, key: str, meaning: str) -> PageFamily:
        """From a row of the table below."""
        name, _, labels = key.rstrip("}").partition("{")
        is_counter = name in _COUNTERS
        words = tuple(filter(None, labels.split(",")))
        return cls(f"pairbus_{name}", meaning, words, "counter" if is_counter else "gauge")


# A name without its prefix, its labels as Prometheus writes them, and what it tells.
_MEANINGS = {
    "client_up{pair,client}": "1 for a client that runs, 0 for one that left its status behind.",
    "client_fault{pair,client}": "1 if the client has faulted, else 0.",
    "client_provisioned{pair,client}": "1 if the backlog queues were created or found, else 0.",
    "client_rotation_usable{pair,client}": "Backlog queues in the rotation.",
    "client_rotation_queues{pair,client}": "Backlog queues that the pair has.",
    "client_warnings{pair,client}": "Warnings in the status.",
    "client_sessions_staying{pair,client}": "Sessions that stay on the backlog.",
    "client_records_lost{pair,client}": "Redirect records that could not be written.",
    "client_records_unshipped{pair,client}": "Segments of records that wait to be shipped.",
    "client_records_lag_seconds{pair,client}": "Lag of shipping: older records are at the shared place.",
    "client_spool_messages{pair,client}": "Messages in the local spool.",
    "client_spool_bytes{pair,client}": "Bytes in the local spool.",
    "client_spool_limit_bytes{pair,client}": "What the local spool may hold, by its limit and its disk.",
    "client_syphon_running{pair,client}": "1 if the client hosts a syphon that runs.",
    "entity_worst_state{pair,path,state}": "1 for the worst state that a running client sees, else 0.",
    "entity_refusing{pair,path}": "1 for a healthy entity that takes none of what is sent, else 0.",
    "entity_since_seconds{pair,path}": "When the entity entered its state, in Unix time.",
    "entity_messages{pair,path,route,outcome}": "Messages sent by running clients, by route and outcome.",
    "entity_pings{pair,path}": "Pings of running clients.",
    "entity_late{pair,path}": "Sends that arrived after a failover had given them up.",
    "entity_without_headroom{pair,path}": "Messages too large for a backlog queue with their envelope.",
    "backlog_messages{pair,queue}": "Messages in a backlog queue.",
    "backlog_dead_letters{pair,queue}": "Dead letters of a backlog queue.",
    "backlog_bytes{pair,queue}": "Bytes in a backlog queue.",
    "backlog_missing_queues{pair}": "Backlog queues that are not there.",
    "backlog_path_messages{pair,path}": "Messages in the backlog, by destination.",
    "backlog_path_oldest_seconds{pair,path}": "Age of the oldest of them.",
    "dead_letters{pair,reason}": "Dead letters of the backlog queues, by reason.",
    "drain_running{pair}": "1 while a drain runs, else 0.",
    "drain_paused{pair}": "1 while a drain is paused, else 0.",
    "drain_moved_total{pair}": "Messages that the drain has moved.",
    "drain_waiting{pair}": "Messages that the drain put aside because their path is down.",
    "spool_left_bytes{pair}": "Bytes that clients which are gone have left in the spool.",
    "spool_refused{pair}": "Messages that the spool keeps because no side takes them.",
    "spool_damaged{pair}": "Parts of the spool that cannot be read.",
    "cost{pair,stage,currency}": "Cost of this month so far, by stage.",
    "cost_total{pair,currency}": "Cost of this month so far, with the base charge.",
    "cost_per_hour{pair,currency}": "Cost of the last hour, with the base charge.",
    "cost_in_a_day{pair,currency}": "Cost of this month by this time tomorrow, at that rate.",
    "budget": "The budget of a month, if there is one.",
    "verdict_clean{pair}": "1 if the last verdict was clean, else 0.",
    "verdict_lost{pair}": "Messages that the last verdict found lost.",
    "verdict_time_seconds{pair}": "When the last verdict was given, in Unix time.",
    "namespace_faults{namespace}": "Faults that are set on an embedded namespace.",
    "namespace_operations_total{namespace,kind}": "Operations of an embedded namespace.",
    "source_up{pair,source}": "1 if this source answers, else 0.",
    "source_time_seconds{pair,source}": "When this source last answered, in Unix time.",
}
_COUNTERS = {"drain_moved_total", "namespace_operations_total"}
FAMILIES = tuple(map(PageFamily.of, _MEANINGS, _MEANINGS.values()))


def write_metrics(picture: Facts, readings: Readings) -> bytes:
    written: dict[str, list[str]] = {family.name: [] for family in FAMILIES}
    labels = {family.name: family.labels for family in FAMILIES}
    for row, values, number in _samples(picture, readings):
        name = f"pairbus_{row}"
        written[name].append(write_sample(name, zip(labels[name], values, strict=True), float(number)))
    text = []
    for family in FAMILIES:
        text.append(write_family(family.name, family.kind, family.meaning))
        text += written[family.name]
    return "".join(text).encode()


def _samples(picture: Facts, readings: Readings) -> Iterator[MetricRow]:
    now = picture.get("at", 0.0)
    for pair in picture.get("pairs", ()):
        for name, labels, value in _of_pair(pair, now):
            yield name, (pair["name"], *labels), value
    if picture.get("budget") is not None:
        yield "budget", (), float(picture["budget"])
    broker = picture.get("broker")
    for namespace in broker["namespaces"] if broker else ():
        yield "namespace_faults", (namespace["name"],), len(namespace["faults"])
        for kind, count in namespace["operations"].items():
            yield "namespace_operations_total", (namespace["name"], kind), count
    for (pair_name, source), (at, error) in readings.items():
        yield "source_up", (pair_name, source), error is None
        if at is not None:
            yield "source_time_seconds", (pair_name, source), at


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
    yield "entity_refusing", labels, entity["refuses_since"] is not None
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
