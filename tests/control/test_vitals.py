"""Health and metrics: for whoever asks, in the format that scrapers read, and without secrets."""

import asyncio
import http.client
import json
import re
import socket
import threading
from collections.abc import Collection
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from prometheus_client.parser import text_string_to_metric_families

from pairbus.broker import Broker, NamespaceHandle, strand, vitals
from pairbus.broker.control import MOST_UNREAD
from pairbus.broker.counters import OperationKind
from pairbus.broker.errors import StoreError
from pairbus.broker.host import NamespaceHost
from pairbus.broker.strand import Strand
from pairbus.broker.vitals import FAMILIES
from tests.guards.sources import ROOT
from tests.waiting import wait_until


def get(broker: Broker, target: str, method: str = "GET") -> tuple[int, str, str]:
    address = broker.describe()["control"]["url"].removeprefix("http://")
    connection = http.client.HTTPConnection(address, timeout=40)
    try:
        connection.request(method, target)
        response = connection.getresponse()
        return response.status, response.headers["Content-Type"], response.read().decode()
    finally:
        connection.close()


def samples(broker: Broker) -> dict[tuple[str, ...], float]:
    """By name and the values of the labels."""
    status, kind, text = get(broker, "/metrics")
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    found = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    values = {(sample.name, *sample.labels.values()): sample.value for sample in found}
    assert len(values) == len(found)
    return values


@pytest.fixture
def plain() -> Any:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        yield broker


def test_metrics_tell_what_is_there_and_what_was_done(plain: Broker) -> None:
    contoso = plain["contoso"]
    contoso.create_queue("orders")
    contoso.create_topic("events")
    contoso.create_subscription("events", "audit")
    with ServiceBusClient.from_connection_string(contoso.connection_string) as client:
        client.get_queue_sender("orders").send_messages(
            [ServiceBusMessage("a"), ServiceBusMessage("b" * 70_000)]
        )
        client.get_topic_sender("events").send_messages(ServiceBusMessage("c"))
        receiver = client.get_queue_receiver("orders")
        (first,) = receiver.receive_messages(max_message_count=1, max_wait_time=30)
        receiver.dead_letter_message(first)
        contoso.faults.set("delay", seconds=1, entity="other")
        found = samples(plain)
    assert found["pairbus_namespace_up", "contoso"] == 1
    assert found["pairbus_connections", "contoso-dr"] == 0
    assert found["pairbus_connections", "contoso"] >= 1
    assert found["pairbus_connections_opened_total", "contoso"] >= 3
    assert found["pairbus_faults", "contoso"] == 1
    assert found["pairbus_entity_messages", "contoso", "orders", "active"] == 1
    assert found["pairbus_entity_messages", "contoso", "orders", "dead_letter"] == 1
    assert found["pairbus_entity_messages", "contoso", "events/Subscriptions/audit", "active"] == 1
    assert found["pairbus_entity_bytes", "contoso", "orders"] > 70_000
    assert found["pairbus_operations_total", "contoso", "orders", "send"] == 2
    assert found["pairbus_operation_units_total", "contoso", "orders", "send"] == 3
    assert found["pairbus_operation_bytes_total", "contoso", "orders", "send"] > 70_000
    assert found["pairbus_operations_total", "contoso", "orders", "dead_letter"] == 1


def test_nothing_secret_is_told(plain: Broker) -> None:
    described = json.dumps(plain.describe())
    secrets = {*re.findall('SharedAccessKey=([^;"]+)', described), plain.describe()["control"]["token"]}
    assert len(secrets) > 3
    told = get(plain, "/metrics")[2] + get(plain, "/health")[2]
    assert not any(secret in told for secret in secrets)


def test_health_is_that_of_every_namespace(plain: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    status, kind, text = get(plain, "/health")
    assert (status, kind) == (200, "application/json")
    assert json.loads(text) == {"status": "ok", "namespaces": {"contoso": "ok", "contoso-dr": "ok"}}
    monkeypatch.setattr(plain._hosts["contoso-dr"], "_unread", StoreError("the disk is gone"))
    status, _, text = get(plain, "/health")
    assert status == 503
    assert json.loads(text)["namespaces"] == {"contoso": "ok", "contoso-dr": "the disk is gone"}
    assert samples(plain)["pairbus_namespace_up", "contoso-dr"] == 0


@pytest.mark.parametrize("target", ["/health", "/metrics"])
def test_only_reading_is_possible(plain: Broker, target: str) -> None:
    assert get(plain, target, "HEAD")[0] == 200
    assert get(plain, target, "POST")[0] == 405


def test_labels_with_any_character_can_be_read(broker: Broker, contoso: NamespaceHandle) -> None:
    contoso.create_queue("a-b_c.d/e")
    assert samples(broker)["pairbus_entity_messages", "contoso", "a-b_c.d/e", "active"] == 0


def test_every_metric_is_documented() -> None:
    page = Path(ROOT / "docs" / "broker.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(pairbus_\w+)` \|", page, flags=re.MULTILINE)
    assert rows == [family.name for family in FAMILIES]


def test_metrics_of_many_entities_stop_nobody_and_are_made_once_for_all_who_ask(
    monkeypatch: pytest.MonkeyPatch, certificate: tuple[Path, Path]
) -> None:
    monkeypatch.setattr(strand, "SLICE", -1.0)
    made, stops, real, go_on = [], [], vitals.write_metrics, Strand.go_on

    def write(hosts: Collection[NamespaceHost]) -> str:
        made.append(threading.current_thread())
        return real(hosts)

    def count(thread: Strand, slice_: float | None = None) -> None:
        stops.append(thread)
        go_on(thread, slice_)

    monkeypatch.setattr(vitals, "write_metrics", write)
    monkeypatch.setattr(Strand, "go_on", count)
    with Broker({"contoso": 0}, certificate=certificate) as broker:
        for number in range(20):
            broker["contoso"].create_queue(f"q{number}")
            broker._hosts["contoso"].counters.count("q0", f"{number}", kind=OperationKind.SEND)
        scrape = vitals.Scrape(broker._hosts.values())

        async def ask() -> list[bytes]:
            return await asyncio.gather(*(scrape.read() for _ in range(3)))

        told = broker._wait_for(ask())
        broker.call(scrape.close)
    assert len(made) == 1
    assert len(stops) > 60  # for the entities, their lines, and the connections
    assert told[0].count(b"pairbus_entity_bytes{") == 20
    assert told[0].count(b"pairbus_operations_total{") == 1
    assert told[0] is told[1] is told[2]


def count_bytes(line: socket.socket) -> int:
    """How many come until the line ends."""
    count = 0
    with suppress(ConnectionError):
        while data := line.recv(1 << 20):
            count += len(data)
    return count


def test_unread_metrics_are_held_within_a_bound_and_the_oldest_go(
    monkeypatch: pytest.MonkeyPatch, certificate: tuple[Path, Path]
) -> None:
    """Whoever asks without reading makes the broker hold a text; anybody may ask, and others still can."""
    text = b"x" * (8 << 20)

    async def read(scrape: vitals.Scrape) -> bytes:
        return text

    monkeypatch.setattr(vitals.Scrape, "read", read)
    with Broker({"contoso": 0}, certificate=certificate) as broker, ExitStack() as stack:
        address = urlsplit(broker.describe()["control"]["url"])
        assert broker._control_api is not None
        account = broker._control_api._unread
        lines = []
        for _ in range(12):
            line = stack.enter_context(socket.create_connection((address.hostname, address.port), timeout=40))
            # Little, but not so little that what the kernel holds takes a minute to read.
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 18)
            line.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert line.recv(8) == b"HTTP/1.1"
            lines.append(line)
            assert broker.call(lambda: account._total) <= MOST_UNREAD
        assert get(broker, "/metrics")[2] == text.decode()
        assert count_bytes(lines[0]) < len(text)  # it was cut
        for line in lines:
            line.close()
        wait_until(lambda: broker.call(lambda: account._total) == 0)
