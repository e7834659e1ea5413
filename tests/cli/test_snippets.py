"""The Python of the how-to pages does what the pages say."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from azure.core.settings import settings
from azure.servicebus import ServiceBusMessage

from pairbus import PairedServiceBusClient
from pairbus.broker import Broker
from tests.guards.documents import code_blocks
from tests.guards.sources import ROOT

PAGE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")


def test_the_example_with_the_sdk() -> None:
    example, _ = code_blocks(PAGE, "python")
    (shown,) = code_blocks(PAGE, "text")
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout, done.stderr) == (0, shown, "")


def test_the_example_with_pytest(tmp_path: Path) -> None:
    _, example = code_blocks(PAGE, "python")
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["pairbus.testing"]\n', encoding="utf-8")
    (tmp_path / "test_order.py").write_text(example, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


@pytest.fixture(scope="module")
def names() -> Iterator[dict[str, Any]]:
    """What the examples of other pages take as given: namespaces, and an application around them."""
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        primary, secondary = broker["contoso"], broker["contoso-dr"]
        primary.create_queue("orders")
        yield {
            "broker": broker,
            "connection_string": primary.connection_string,
            "primary": primary.connection_string,
            "secondary": secondary.connection_string,
        }


def examples_of(page: str) -> list[str]:
    return code_blocks((ROOT / "docs" / page).read_text(encoding="utf-8"), "python")


def test_the_examples_of_the_broker_page(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    alone, *clients, admin, faults = examples_of("broker.md")
    exec(alone, {})
    assert capsys.readouterr().out.startswith("Endpoint=sb://127.0.0.1:")
    port = names["broker"]["contoso"].port
    for example in clients:
        found = dict(names)
        exec(example.replace(":5672", f":{port}"), found)
        with found["client"] as client, client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("x"))
    exec(admin, names)
    assert [queue.name for queue in names["admin"].list_queues()] == ["orders"]
    assert names["broker"]["contoso"].message_count("orders") == len(clients)
    for example in (faults, examples_of("faults.md")[0]):
        exec(example, names)
        assert names["broker"]["contoso"].faults.list() == []


def test_the_examples_of_the_pages_on_settings_and_observers(names: dict[str, Any]) -> None:
    paged: list[str] = []
    slow: list[object] = []
    try:
        for example in [*examples_of("settings.md"), *examples_of("observability.md")]:
            found = {**names, "PairedServiceBusClient": PairedServiceBusClient} | {
                "page_somebody": paged.append,
                "slow": slow,
            }
            exec(example, found)
            if "client" in found:
                with found["client"] as client, client.get_queue_sender("orders") as sender:
                    client.fail_over("orders", reason="to see it")
                    sender.send_messages(ServiceBusMessage("x"))
            else:
                sending = SimpleNamespace(seconds=2.0)
                found["SlowSends"]().sent(sending)
                assert slow == [sending]
    finally:
        settings.tracing_implementation.unset_value()
    assert paged == ["orders: healthy -> failed_over, because to see it"]
