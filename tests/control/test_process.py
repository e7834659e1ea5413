"""`pairbus broker` as a process: broken and healed by `pairbus fault`, scripted by a plan, what it logs."""

import json
import logging
import re
import signal
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from pairbus.amqp.sasl import SaslClient
from pairbus.broker import Broker, FaultPlan, Policy
from pairbus.cli.logs import TextFormatter
from tests.broker.raw import RawClient
from tests.cli.process import PATIENCE, call, run, running_broker

KEY = "bm90IGZvciBvdGhlciBwZW9wbGUncyBleWVz"
PLAN = """
seed = 11

[[fault]]
at = 0
namespace = "contoso"
kind = "refuse"
for = [1000, 2000]

[[fault]]
at = 0
namespace = "contoso"
kind = "delay"
seconds = 3
entity = "orders"
for = [1000, 2000]
"""


def is_refused(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) != 0


def key_of(connection_string: str) -> str:
    return dict(part.split("=", 1) for part in connection_string.split(";") if part)["SharedAccessKey"]


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("broker") / "ready.json"
    with running_broker(path, "--namespace", "contoso=0", "--namespace", "contoso-dr=0"):
        yield path


@pytest.fixture
def ready_file(shared_broker: Path) -> Iterator[Path]:
    """Of a broker without faults: what a test that fails has set would fail the others."""
    yield shared_broker
    assert call("fault", "clear", "contoso", "--ready-file", str(shared_broker)).returncode == 0


def test_broken_and_healed_from_outside(ready_file: Path) -> None:
    described = json.loads(ready_file.read_text(encoding="utf-8"))
    port, text = described["contoso"]["port"], described["contoso"]["connection_string"]
    where = {"PAIRBUS_READY_FILE": str(ready_file)}
    done = run("fault", "set", "contoso", "refuse", "--for", "3600", variables=where)
    assert (done.returncode, done.stdout, done.stderr) == (0, "contoso: refuse for 3600 s\n", "")
    assert is_refused(port)
    assert not is_refused(described["contoso-dr"]["port"])
    listed = json.loads(run("fault", "list", "--json", variables=where).stdout)
    (fault,) = listed["contoso"]
    assert (fault["kind"], fault["until"]) == ("refuse", fault["since"] + 3600)
    assert run("fault", "clear", "contoso", variables=where).returncode == 0
    assert not is_refused(port)
    with RawClient.connected(port, SaslClient.plain("RootManageSharedAccessKey", key_of(text))):
        pass


@pytest.mark.parametrize(
    "arguments",
    [
        ("refuse",),
        ("reset",),
        ("silence",),
        ("blackhole",),
        ("delay",),
        ("delay", "--seconds", "0.5"),
        ("error",),
        ("error", "--condition", "amqp:not-allowed"),
        ("busy",),
        ("token",),
        ("disabled",),
        ("full",),
        ("drop",),
        ("drop", "--every", "3"),
        ("flap",),
        ("flap", "--up", "1.5", "--down", "0.5"),
    ],
    ids=" ".join,
)
def test_every_kind_can_be_set_on_everything(arguments: tuple[str, ...], ready_file: Path) -> None:
    where = {"PAIRBUS_READY_FILE": str(ready_file)}
    for entity in ((), ("--entity", "orders"), ("--entity", "orders", "--for", "60")):
        assert call("fault", "set", "contoso", *arguments, *entity, variables=where).returncode == 0
    listed = json.loads(call("fault", "list", "--json", variables=where).stdout)["contoso"]
    assert [fault["kind"] for fault in listed] == [arguments[0]] * 3
    assert [fault["entity"] for fault in listed] == ["orders", "orders", None]
    given = dict(zip(arguments[1::2], arguments[2::2], strict=True))
    for name, value in given.items():
        assert str(listed[0][name.removeprefix("--")]) == value
    assert call("fault", "clear", "contoso", variables=where).returncode == 0


def test_a_plan_begins_with_the_broker_and_is_logged(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN, encoding="utf-8")
    arguments = ("--namespace", "contoso=0", "--fault-plan", str(plan), "--log-format", "json")
    with running_broker(tmp_path / "ready.json", *arguments) as (process, described):
        variables = {"PAIRBUS_READY_FILE": str(tmp_path / "ready.json")}
        listed = json.loads(call("fault", "list", "--json", variables=variables).stdout)["contoso"]
        assert is_refused(described["contoso"]["port"])
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE)
    lengths = [step.duration for step in FaultPlan.parse(PLAN).steps]
    assert [fault["until"] - fault["since"] for fault in reversed(listed)] == pytest.approx(lengths)
    logged = [entry for entry in map(json.loads, err.splitlines()) if entry["event"] == "fault plan"]
    assert [entry["kind"] for entry in logged] == ["refuse", "delay"]
    assert [entry["for"] for entry in logged] == lengths
    assert (logged[1]["entity"], logged[1]["seconds"]) == ("orders", 3)


# -- logs


def live_a_little(ready_file: Path, described: dict[str, Any]) -> set[str]:
    """Give the broker something to log, with every secret that there is; the secrets."""
    contoso = described["contoso"]
    text = contoso["connection_string"]
    token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJub2JvZHkifQ.c2lnbmF0dXJl"
    variables = {"PAIRBUS_READY_FILE": str(ready_file)}
    call("fault", "set", "contoso", "delay", "--entity", "orders", "--seconds", "2", variables=variables)
    with ServiceBusClient.from_connection_string(text, retry_total=0) as client, pytest.raises(Exception):  # noqa: B017, PT011
        client.get_queue_sender("no such").send_messages(ServiceBusMessage("1"))
    with RawClient.connected(contoso["port"], SaslClient.anonymous()) as raw:
        requests, answers = raw.attach("$cbs", sends=True), raw.attach("$cbs", sends=False)
        assert raw.put_token(requests, answers, "sb://127.0.0.1/orders", token) == 401
        forged = f"SharedAccessSignature sr=sb%3A%2F%2F127.0.0.1&sig={KEY}&se=9999999999&skn=root"
        assert raw.put_token(requests, answers, "sb://127.0.0.1/orders", forged) == 401
    with pytest.raises(AssertionError), RawClient.connected(contoso["port"], SaslClient.plain("root", KEY)):
        pass
    call("fault", "set", "contoso", "refuse", variables=variables)
    call("fault", "clear", "contoso", variables=variables)
    keys = {key_of(policy) for policy in contoso["policies"].values()}
    return {*keys, token, token.split(".")[2], KEY, described["control"]["token"]}


def logs_of(tmp_path: Path, log_format: str) -> tuple[list[str], set[str]]:
    """The lines that a broker logs while it lives a little, and the secrets of that life."""
    ready_file = tmp_path / "ready.json"
    arguments = ("--namespace", "contoso=0", "--log-format", log_format, "--log-level", "debug")
    with running_broker(ready_file, *arguments) as (process, described):
        assert stat.S_IMODE(ready_file.stat().st_mode) == 0o600
        secrets = live_a_little(ready_file, described)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE)
    assert not [secret for secret in secrets if secret in err]
    return err.splitlines(), secrets


def test_json_logs_are_one_object_a_line_with_the_facts_as_fields(tmp_path: Path) -> None:
    lines, _ = logs_of(tmp_path, "json")
    entries = [json.loads(line) for line in lines]
    assert all(entry.keys() >= {"time", "level", "logger", "event"} for entry in entries)
    by_event = {entry["event"]: entry for entry in reversed(entries)}
    assert by_event["namespace listens"]["port"] > 0
    opened = by_event["connection opened"]
    assert opened["container"].startswith("SBSender")
    assert opened["address"].startswith("127.0.0.1:")
    assert by_event["connection closed"]["connection"] == opened["connection"]
    fault = by_event["fault set"]
    assert (fault["namespace"], fault["kind"], fault["entity"]) == ("contoso", "delay", "orders")
    assert (fault["level"], fault["seconds"], fault["until"]) == ("warning", 2, None)
    assert (by_event["line changed"]["line"], by_event["line changed"]["was"]) == ("refuse", "up")
    assert by_event["faults cleared"]["count"] == 2
    assert by_event["sasl refused"]["reason"]
    refused = [entry for entry in entries if entry["event"] == "token refused"]
    assert [entry["status"] for entry in refused] == [404, 401, 401]
    assert all(entry["reason"] for entry in refused)


def test_text_logs_are_one_line_each_with_the_facts_as_words(tmp_path: Path) -> None:
    lines, _ = logs_of(tmp_path, "text")
    word = r'\S+=(?:"(?:[^"\\]|\\.)*"|\S+)'
    shape = re.compile(rf"\S+Z (?:debug|info|warning|error) [\w.]+: [a-z, ]+?(?: {word})*")
    assert [line for line in lines if not shape.fullmatch(line)] == []
    assert any(" fault set namespace=contoso kind=delay entity=orders " in line for line in lines)


def test_nothing_that_is_shown_of_a_broker_is_a_secret(tmp_path: Path) -> None:
    policy = Policy.parse(f"app={KEY}:send")
    with Broker({"contoso": 0}, policies=[policy], data_dir=tmp_path) as broker:
        handle = broker["contoso"]
        shown = [repr(thing) for thing in (broker, handle, handle.faults, policy, handle.connections())]
        secrets = {key_of(text) for text in handle.policies.values()}
        secrets.add(broker.describe()["control"]["token"])
    assert KEY in secrets
    assert not [text for text in shown for secret in secrets if secret in text]
    assert "contoso" in repr(broker)


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("plain", "plain"),
        (None, "None"),
        ("", '""'),
        ("two words", '"two words"'),
        ("a=b", '"a=b"'),
        ("x\n2026-11-15T00:00:00Z error pairbus: forged", '"x\\n2026-11-15T00:00:00Z error pairbus: forged"'),
        ("\x1b[2J", '"\\u001b[2J"'),
    ],
)
def test_a_clients_word_stays_one_word(value: str | None, word: str) -> None:
    record = logging.makeLogRecord({"msg": "connection opened", "fields": {"container": value}})
    line = TextFormatter().format(record)
    assert line.endswith(f": connection opened container={word}")
    assert "\n" not in line
