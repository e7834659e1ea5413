"""`pairbus fault` and `pairbus counters` against a running broker."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusQuotaExceededError
from azure.servicebus.management import ServiceBusAdministrationClient

from .process import call, running_broker


@pytest.fixture(scope="module")
def ready_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("broker") / "ready.json"
    with running_broker(path, "--namespace", "contoso=0", "--namespace", "contoso-dr=0"):
        yield path


@pytest.fixture
def contoso(ready_file: Path) -> Iterator[dict[str, Any]]:
    yield json.loads(ready_file.read_text(encoding="utf-8"))["contoso"]
    assert call("fault", "clear", "contoso", "--ready-file", str(ready_file)).returncode == 0


def test_set_list_clear(ready_file: Path, contoso: dict[str, Any]) -> None:
    variables = {"PAIRBUS_READY_FILE": str(ready_file)}
    assert call("fault", "list", variables=variables).stdout == "no faults\n"
    done = call("fault", "set", "contoso", "delay", "--seconds", "2", "--for", "60", variables=variables)
    assert (done.returncode, done.stdout) == (0, "contoso: delay for 60 s\n")
    call("fault", "set", "contoso", "full", "--entity", "orders", variables=variables)
    listed = json.loads(call("fault", "list", "--json", variables=variables).stdout)
    assert [(fault["kind"], fault["entity"]) for fault in listed["contoso"]] == [
        ("full", "orders"),
        ("delay", None),
    ]
    assert listed["contoso-dr"] == []
    table = call("fault", "list", variables=variables).stdout.splitlines()
    assert table[0].split() == ["NAMESPACE", "ENTITY", "KIND", "SINCE", "UNTIL", "ARGUMENTS"]
    assert [line.split()[:3] for line in table[1:]] == [
        ["contoso", "orders", "full"],
        ["contoso", "*", "delay"],
    ]
    assert call("fault", "clear", "contoso", "--entity", "orders", variables=variables).returncode == 0
    listed = json.loads(call("fault", "list", "--json", variables=variables).stdout)
    assert [fault["kind"] for fault in listed["contoso"]] == ["delay"]


def test_the_sdk_feels_a_fault_and_its_end_and_the_broker_counts(
    ready_file: Path, contoso: dict[str, Any]
) -> None:
    variables = {"PAIRBUS_READY_FILE": str(ready_file)}
    text = contoso["connection_string"]
    with ServiceBusAdministrationClient.from_connection_string(
        text, connection_verify=contoso["cert"]
    ) as admin:
        admin.create_queue("orders")
    with ServiceBusClient.from_connection_string(text, retry_total=0) as client:
        sender = client.get_queue_sender("orders")
        sender.send_messages(ServiceBusMessage("before"))
        call("fault", "set", "contoso", "full", "--entity", "orders", variables=variables)
        with pytest.raises(ServiceBusQuotaExceededError):
            sender.send_messages(ServiceBusMessage("during"))
        call("fault", "clear", "contoso", variables=variables)
        sender.send_messages(ServiceBusMessage("after"))
    rows = json.loads(call("counters", "contoso", "--json", variables=variables).stdout)["contoso"]
    counted = {row["kind"]: row["count"] for row in rows if row["entity"] == "orders"}
    assert (counted["send"], counted["send_refused"]) == (2, 1)
    table = [line.split() for line in call("counters", variables=variables).stdout.splitlines()]
    assert table[0] == ["NAMESPACE", "ENTITY", "KIND", "COUNT", "UNITS", "BYTES"]
    assert ["contoso", "orders", "send", "2", "2"] in [row[:5] for row in table]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["set", "fabrikam", "refuse"], "fabrikam"),
        (["set", "contoso", "sulk"], "sulk"),
        (["set", "contoso", "refuse", "--every", "3"], "every"),
        (["set", "contoso", "delay", "--seconds", "-1"], "--seconds"),
        (["clear", "fabrikam"], "fabrikam"),
    ],
)
def test_a_mistake_is_2(ready_file: Path, arguments: list[str], said: str) -> None:
    done = call("fault", *arguments, "--ready-file", str(ready_file))
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_broker_that_is_gone_is_3(tmp_path: Path) -> None:
    path = tmp_path / "ready.json"
    with running_broker(path, "--namespace", "contoso=0"):
        remembered = path.read_text(encoding="utf-8")
    path.write_text(remembered, encoding="utf-8")
    done = call("fault", "list", "--ready-file", str(path))
    assert done.returncode == 3
    assert len(done.stderr.splitlines()) == 1


def test_a_token_of_another_run_is_3(tmp_path: Path, ready_file: Path) -> None:
    described = json.loads(ready_file.read_text(encoding="utf-8"))
    described["control"]["token"] = "of another run"
    stale = tmp_path / "stale.json"
    stale.write_text(json.dumps(described), encoding="utf-8")
    done = call("counters", "--ready-file", str(stale))
    assert done.returncode == 3
    assert "of another run" not in done.stderr


@pytest.mark.parametrize("content", [None, "not JSON", "[]", "{}"])
def test_a_file_that_is_no_ready_file_is_2(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "ready.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    done = call("fault", "list", "--ready-file", str(path))
    assert done.returncode == 2
    assert str(path) in done.stderr
    assert "Traceback" not in done.stderr
