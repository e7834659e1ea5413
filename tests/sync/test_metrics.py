"""What Prometheus is told, unit by unit and through an outage, and that all of it is documented."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest

from pairbus import EntityState, StateChange
from pairbus.client.observers.metrics import FAMILIES, PrometheusObserver
from pairbus.client.observers.observer import AttemptOutcome, RouteName, Sending
from pairbus.spark.metrics import COUNTERS, GAUGES, LABELLED
from tests.waiting import wait_until

from .conftest import FAST, QUEUES, Namespaces

PAGE = Path(__file__).parents[2] / "docs" / "observability.md"


class Scrape:
    """What a registry shows, by name and labels."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def value(self, name: str, **labels: str) -> float | None:
        return self._registry.get_sample_value(name, {"pair": "contoso", **labels})

    def states(self, path: str = "orders") -> list[str]:
        return [
            state.value
            for state in EntityState
            if self.value("pairbus_entity_state", path=path, state=state.value) == 1.0
        ]


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def scrape(registry: CollectorRegistry) -> Scrape:
    return Scrape(registry)


@pytest.fixture
def observer(registry: CollectorRegistry) -> PrometheusObserver:
    observer = PrometheusObserver(registry)
    observer.paired("contoso", 10)
    return observer


def sending(
    *, route: RouteName = "primary", outcome: AttemptOutcome = "ok", messages: int = 1, seconds: float = 0.01
) -> Sending:
    return Sending(path="orders", route=route, outcome=outcome, messages=messages, size=100, seconds=seconds)


def test_sends_are_counted_by_path_route_and_outcome(observer: PrometheusObserver, scrape: Scrape) -> None:
    observer.sent(sending(messages=3))
    observer.sent(sending())
    observer.sent(sending(route="backlog", outcome="unknown", messages=2))
    primary = {"path": "orders", "route": "primary", "outcome": "ok"}
    backlog = {"path": "orders", "route": "backlog", "outcome": "unknown"}
    assert scrape.value("pairbus_sends_total", **primary) == 2
    assert scrape.value("pairbus_messages_total", **primary) == 4
    assert scrape.value("pairbus_sends_total", **backlog) == 1
    assert scrape.value("pairbus_messages_total", **backlog) == 2


def test_latencies_fall_into_buckets(observer: PrometheusObserver, scrape: Scrape) -> None:
    for seconds in (0.004, 0.004, 20.0):
        observer.sent(sending(seconds=seconds))
    labels = {"path": "orders", "route": "primary"}
    assert scrape.value("pairbus_send_seconds_count", **labels) == 3
    assert scrape.value("pairbus_send_seconds_sum", **labels) == pytest.approx(20.008)
    assert scrape.value("pairbus_send_seconds_bucket", **labels, le="0.005") == 2
    assert scrape.value("pairbus_send_seconds_bucket", **labels, le="30.0") == 3


def test_an_entity_is_in_one_state_from_its_first_send_on(
    observer: PrometheusObserver, scrape: Scrape
) -> None:
    assert scrape.states() == []
    observer.sent(sending())
    assert scrape.states() == ["healthy"]
    for old, new in (("HEALTHY", "SUSPECT"), ("SUSPECT", "FAILED_OVER")):
        observer.state_changed(StateChange("orders", EntityState[old], EntityState[new], 1.0, "a reason"))
        assert scrape.states() == [EntityState[new].value]
    observer.sent(sending(route="backlog"))
    assert scrape.states() == ["failed_over"]
    assert scrape.value("pairbus_state_changes_total", path="orders", state="suspect") == 1


def test_pings_rotation_and_headroom(observer: PrometheusObserver, scrape: Scrape) -> None:
    assert scrape.value("pairbus_rotation_usable") == 10
    for succeeded in (False, False, True):
        observer.pinged("orders", succeeded=succeeded, seconds=0.1)
    observer.rotation_changed(9, 10)
    observer.oversized("orders", 2)
    assert scrape.value("pairbus_pings_total", path="orders", outcome="failed") == 2
    assert scrape.value("pairbus_pings_total", path="orders", outcome="ok") == 1
    assert (scrape.value("pairbus_rotation_usable"), scrape.value("pairbus_rotation_queues")) == (9, 10)
    assert scrape.value("pairbus_headroom_lacked_total", path="orders") == 2


def test_several_clients_share_a_registry(registry: CollectorRegistry) -> None:
    one, other = PrometheusObserver(registry), PrometheusObserver(registry, pair="mine")
    one.paired("contoso", 10)
    other.paired("contoso", 4)
    assert registry.get_sample_value("pairbus_rotation_queues", {"pair": "contoso"}) == 10
    assert registry.get_sample_value("pairbus_rotation_queues", {"pair": "mine"}) == 4


def test_the_default_registry_is_used_only_when_none_is_given() -> None:
    def names() -> bytes:
        return generate_latest(REGISTRY)

    PrometheusObserver(CollectorRegistry()).paired("apart", 1)
    assert b"apart" not in names()
    PrometheusObserver().paired("of the default", 1)
    assert b'pairbus_rotation_queues{pair="of the default"} 1.0' in names()


def test_an_outage_shows_in_the_metrics(
    namespaces: Namespaces, registry: CollectorRegistry, scrape: Scrape
) -> None:
    with namespaces.client(options=FAST, observers=[PrometheusObserver(registry)]) as client:
        sender = client.get_queue_sender("orders")
        sender.send_messages([ServiceBusMessage("1"), ServiceBusMessage("2")])
        assert scrape.value("pairbus_rotation_usable") == QUEUES
        namespaces.primary.faults.set("refuse")
        sender.send_messages(ServiceBusMessage("3"))
        assert scrape.states() == ["failed_over"]
        namespaces.primary.faults.clear()
        wait_until(lambda: scrape.states() == ["healthy"])
    labels = {"path": "orders"}
    assert scrape.value("pairbus_messages_total", **labels, route="primary", outcome="ok") == 2
    assert scrape.value("pairbus_messages_total", **labels, route="backlog", outcome="ok") == 1
    assert (scrape.value("pairbus_sends_total", **labels, route="primary", outcome="failed") or 0) >= 1
    assert scrape.value("pairbus_pings_total", **labels, outcome="ok") == 1
    assert scrape.value("pairbus_state_changes_total", **labels, state="failed_over") == 1


def documented(heading: str) -> dict[str, tuple[str, set[str]]]:
    """The rows of the table below a heading: each metric with its kind and its labels."""
    (section,) = re.findall(
        rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    rows = re.findall(r"^\| `(pairbus_\w+)` \| (\w+) \|([^|]*)\|", section, re.MULTILINE)
    return {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}


def test_every_metric_is_documented_with_its_labels_and_every_documented_one_exists() -> None:
    assert documented("Prometheus") == {
        family.name: (family.kind.__name__.lower(), {"pair", *family.labels}) for family in FAMILIES
    }


def test_so_is_every_metric_of_a_syphon() -> None:
    counters = {f"{name}_total": ("counter", set[str]()) for name, _, _ in COUNTERS}
    gauges = {name: ("gauge", set[str]()) for name, _, _ in GAUGES}
    labelled = {name: ("gauge", set(labels)) for name, labels, _ in LABELLED}
    assert documented("A running syphon") == counters | gauges | labelled


def test_names_follow_the_habits_of_prometheus() -> None:
    for family in FAMILIES:
        assert family.name.endswith("_total") is (family.kind.__name__ == "Counter")
        assert family.name.endswith("_seconds") or family.kind.__name__ != "Histogram"


def test_without_the_extras_the_import_says_what_to_install() -> None:
    code = """
import importlib, sys
sys.modules.update({"prometheus_client": None, "opentelemetry": None})
for name in ("metrics", "tracing"):
    try:
        importlib.import_module(f"pairbus.client.observers.{name}")
    except ImportError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert re.findall(r"pip install '(.*)'", done.stdout) == ["pairbus[metrics]", "pairbus[tracing]"]
