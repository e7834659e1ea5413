"""`pairbus broker` as a process: what it says, what it leaves, how it stops."""

import json
import re
import signal
import socket
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient

from pairbus.broker import Broker
from pairbus.cli.ready_file import announced
from tests.engine.samples import message

from .process import PATIENCE, call, run, running_broker

NAMESPACES = ("--namespace", "contoso=0", "--namespace", "contoso-dr=0")


def test_the_official_sdk_works_with_what_the_ready_file_says(tmp_path: Path) -> None:
    with running_broker(tmp_path / "ready.json", *NAMESPACES) as (_, described):
        contoso = described["contoso"]
        admin = ServiceBusAdministrationClient.from_connection_string(
            contoso["connection_string"], connection_verify=contoso["cert"]
        )
        with admin:
            admin.create_queue("orders")
        policies = contoso["policies"]
        with ServiceBusClient.from_connection_string(policies["send"]) as client:
            client.get_queue_sender("orders").send_messages(ServiceBusMessage("hello"))
        with ServiceBusClient.from_connection_string(policies["listen"]) as client:
            receiver = client.get_queue_receiver("orders")
            assert [str(message) for message in receiver.receive_messages(max_wait_time=5)] == ["hello"]


def test_the_ready_file_is_complete_and_private_and_goes_with_the_broker(tmp_path: Path) -> None:
    ready_file = tmp_path / "ready.json"
    with running_broker(ready_file, *NAMESPACES) as (process, described):
        assert described.keys() == {"contoso", "contoso-dr", "control"}
        assert described["contoso"].keys() == {"port", "connection_string", "cert", "policies"}
        assert {"root", "send", "listen"} <= described["contoso"]["policies"].keys()
        assert Path(described["contoso"]["cert"]).is_absolute()
        assert described["control"].keys() == {"url", "token"}
        assert "Namespace=contoso" in described["contoso"]["connection_string"].split(";")
        assert stat.S_IMODE(ready_file.stat().st_mode) == 0o600
        assert [path.name for path in tmp_path.iterdir()] == ["ready.json"]
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=PATIENCE)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_stops_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with running_broker(tmp_path / "ready.json", *NAMESPACES, "--log-level", "error") as (process, described):
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (0, "")
    for name in ("contoso", "contoso-dr"):
        for connection_string in described[name]["policies"].values():
            assert connection_string in out


def test_json_is_what_the_ready_file_says(tmp_path: Path) -> None:
    with running_broker(tmp_path / "ready.json", *NAMESPACES, "--json") as (process, described):
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=PATIENCE)
    assert json.loads(out) == described


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_keys_are_not_printed_on_request(tmp_path: Path, form: list[str]) -> None:
    with running_broker(tmp_path / "ready.json", *NAMESPACES, "--hide-keys", *form) as (process, described):
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=PATIENCE)
    secrets = [*re.findall("SharedAccessKey=([^;]+)", json.dumps(described)), described["control"]["token"]]
    assert len(secrets) == 9
    assert not [secret for secret in secrets if secret in out]
    assert str(described["contoso"]["port"]) in out
    assert "listen" in out


def test_keys_and_certificate_outlive_a_restart(tmp_path: Path) -> None:
    arguments = ("--namespace", "contoso=0", "--data", str(tmp_path / "data"))
    with running_broker(tmp_path / "ready.json", *arguments) as (process, described):
        process.kill()
        process.wait(timeout=PATIENCE)
    (tmp_path / "ready.json").unlink()
    again = ("--namespace", f"contoso={described['contoso']['port']}", "--data", str(tmp_path / "data"))
    with running_broker(tmp_path / "ready.json", *again) as (_, restarted):
        assert restarted["contoso"] == described["contoso"]


def test_policies_of_a_file_and_of_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "policies"
    text = "app=c2VjcmV0PT0=:send,listen\n\n  # of the shop\nops=b3Bz:manage\n"
    file.write_text(text, encoding="utf-8-sig")  # as editors of Windows write it
    monkeypatch.setenv("SHOP_POLICIES", "web=d2Vi:send;job=am9i:listen\nops=bmV3:send")
    options = ["--policy-file", str(file), "--policy-env", "SHOP_POLICIES", "--policy", "job=bGFzdA:send"]
    with running_broker(tmp_path / "ready.json", *NAMESPACES, *options) as (_, described):
        strings = described["contoso"]["policies"]
    assert set(strings) == {"root", "send", "listen", "app", "ops", "web", "job"}
    keys = {name: strings[name].split("SharedAccessKey=")[1].split(";")[0] for name in ("app", "ops", "job")}
    assert keys == {"app": "c2VjcmV0PT0=", "ops": "bmV3", "job": "bGFzdA"}


def test_a_policy_of_ones_own_gets_a_connection_string(tmp_path: Path) -> None:
    policy = "app=c2VjcmV0PT0=:send,listen"
    with running_broker(tmp_path / "ready.json", *NAMESPACES, "--policy", policy) as (_, described):
        parts = described["contoso-dr"]["policies"]["app"].split(";")
        assert {"SharedAccessKeyName=app", "SharedAccessKey=c2VjcmV0PT0="} <= set(parts)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--namespace", "contoso"], "NAME=PORT"),
        (["--namespace", "contoso=many"], "NAME=PORT"),
        (["--namespace", "contoso=70000"], "NAME=PORT"),
        (["--namespace", "contoso=0", "--namespace", "contoso=0"], "named before"),
        (["--namespace", "not a name=0"], "not a name"),
        (["--policy", "app"], "NAME=KEY:RIGHTS"),
        (["--policy", "app=QWxhZGRpbg:dance"], "must be of send, listen"),
        (["--policy-env", "NO_SUCH_VARIABLE"], "no variable of this name"),
        (["--policy-file", __file__], "line 1: A policy lacks"),
        (["--jwt-issuer", "https://issuer.example"], "needs --jwt-key"),
        (["--data", ".", "--memory"], "exclude each other"),
        (["--cert", __file__], "belong together"),
        (["--cert", __file__, "--key", __file__], "certificate"),
        (["--ready-file", "no/such/directory/ready.json"], "no/such/directory"),
        (["--fault-plan", __file__], "TOML"),
    ],
)
def test_a_mistake_is_told_in_one_line(arguments: list[str], said: str) -> None:
    done = call("broker", *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert "QWxhZGRpbg" not in done.stderr, "a key is a secret, also in a complaint"
    assert done.stdout == ""


def test_a_port_that_is_taken_is_3() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run("broker", "--namespace", f"contoso={taken.getsockname()[1]}")
    assert done.returncode == 3
    assert len(done.stderr.splitlines()) == 1


def test_logs_are_json_on_request(tmp_path: Path) -> None:
    with running_broker(tmp_path / "ready.json", *NAMESPACES, "--log-format", "json") as (process, _):
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE)
    entries = [json.loads(line) for line in err.splitlines()]
    assert {"contoso", "contoso-dr"} <= {entry.get("namespace") for entry in entries}


def test_a_broker_leaves_the_ready_file_of_the_one_that_took_its_place(tmp_path: Path) -> None:
    file = tmp_path / "ready.json"
    with announced({"port": 1}, file):
        with announced({"port": 2}, file):
            assert json.loads(file.read_text()) == {"port": 2}
        assert not file.exists(), "its own it removes"
    with announced({"port": 1}, file):
        file.write_text('{"port": 2}')
    assert json.loads(file.read_text()) == {"port": 2}


def test_a_damaged_store_is_refused_and_salvaged(tmp_path: Path) -> None:
    """The record of one message of three is damaged: a start says so, and the other two are saved."""
    data = tmp_path / "data"
    bodies = [name * 500 for name in (b"first ", b"second", b"third ")]
    with Broker({"contoso": 0}, data_dir=data) as broker:
        broker["contoso"].create_queue("orders")
        broker.call(lambda: _send(broker, bodies))
    assert call("broker", "--data", str(data), "--salvage").returncode == 0
    with closing(sqlite3.connect(data / "contoso" / "store.db")) as store:
        store.execute("UPDATE message SET size = size + 1 WHERE key % 100 = ?", ((1 << 44) % 100 + 2,))
        store.commit()
    refused = run("broker", "--data", str(data), *NAMESPACES)
    assert refused.returncode == 3
    assert "2 of 3 messages are as they were written" in refused.stderr
    salvaged = run("broker", "--data", str(data), "--salvage")
    assert salvaged.returncode == 1
    assert "contoso: 2 messages are saved, 1 are missing" in salvaged.stdout
    assert "lost: the message 2 of orders" in salvaged.stdout
    with Broker({"contoso": 0}, data_dir=data) as broker:
        assert broker["contoso"].message_count("orders") == 2


def _send(broker: Broker, bodies: list[bytes]) -> None:
    messages = [message(body) for body in bodies]
    broker._hosts["contoso"].run(lambda space, now: space.send("orders", messages, now))


def test_a_hopeless_store_hides_nothing_of_the_others(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Broker({"aa": 0, "bb": 0, "cc": 0}, data_dir=data):
        pass
    (data / "bb" / "store.db").write_bytes(b"?" * 4096)
    salvaged = run("broker", "--data", str(data), "--salvage")
    assert salvaged.returncode == 3
    assert [line.split(":")[0] for line in salvaged.stdout.splitlines()] == ["aa", "cc"]
    assert salvaged.stderr.startswith("pairbus: bb: ")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--host", ""], "it is empty"),
        (["--policy", "c2VjcmV0c2VjcmV0/x=:send"], "name of a policy cannot be used"),
        (["--policy", "c2VjcmV0c2VjcmV0==:send"], "key of a policy cannot be used"),
        (["--token-timeout", "nan"], "is not a number above 0"),
    ],
)
def test_a_mistake_is_told_without_what_may_be_a_key(arguments: list[str], told: str) -> None:
    done = call("broker", "--namespace", "contoso=0", *arguments)
    assert done.returncode == 2
    assert told in done.stderr
    assert "c2VjcmV0c2VjcmV0" not in done.stderr
