"""The control address: what it answers, to whom, and that nothing which is said to it disturbs it."""

import http.client
import json
import re
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pairbus.broker import Broker, ControlError, FaultKind, NamespaceHandle, OperationKind
from pairbus.broker.control import ControlClient, read_ready_file
from pairbus.errors import ConfigurationError
from tests.examples import examples
from tests.waiting import PATIENCE


@pytest.fixture
def control(broker: Broker) -> dict[str, Any]:
    described: dict[str, Any] = broker.describe()["control"]
    return described


@pytest.fixture
def client(control: dict[str, Any]) -> ControlClient:
    return ControlClient(control["url"], control["token"])


def ask(
    control: dict[str, Any], method: str, target: str, body: bytes | None = None, *, token: str | None = ""
) -> tuple[int, Any]:
    """Status and answer. A token of None is none at all; the right one is the default."""
    address = control["url"].removeprefix("http://")
    connection = http.client.HTTPConnection(address, timeout=40)
    given_token = control["token"] if token == "" else token
    headers = {} if given_token is None else {"Authorization": f"Bearer {given_token}"}
    try:
        connection.request(method, target, body, headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def test_set_list_clear(client: ControlClient, contoso: NamespaceHandle) -> None:
    arguments = {"entity": "orders", "for": 60, "seconds": 2}
    made = client.set_fault("contoso", "delay", arguments=arguments)
    assert made["namespace"] == "contoso"
    assert (made["kind"], made["entity"], made["seconds"]) == ("delay", "orders", 2)
    assert made["until"] == made["since"] + 60
    client.set_fault("contoso", "full", arguments={})
    listed = client.list_faults()
    assert [fault["kind"] for fault in listed["contoso"]] == ["full", "delay"]
    assert listed["contoso-dr"] == []
    assert [fault.kind for fault in contoso.faults.list()] == [FaultKind.FULL, FaultKind.DELAY]
    assert client.clear_faults("contoso", "ORDERS") == {"namespace": "contoso", "cleared": 1}
    assert client.clear_faults("contoso") == {"namespace": "contoso", "cleared": 1}
    assert client.list_faults() == {"contoso": [], "contoso-dr": []}


@pytest.mark.parametrize("kind", FaultKind)
def test_every_kind_can_be_set(kind: FaultKind, client: ControlClient, contoso: NamespaceHandle) -> None:
    client.set_fault("contoso", kind.value, arguments={})
    assert [fault.kind for fault in contoso.faults.list()] == [kind]


@pytest.mark.parametrize("kind", ["refuse", "reset", "silence", "blackhole"])
def test_it_heals_what_nobody_can_reach_any_more(
    kind: str, broker: Broker, client: ControlClient, contoso: NamespaceHandle
) -> None:
    for name in broker:
        client.set_fault(name, kind, arguments={})
    for name in broker:
        assert client.list_faults()[name][0]["kind"] == kind
        client.clear_faults(name)
        with socket.create_connection(("127.0.0.1", broker[name].port), timeout=40) as sock:
            sock.sendall(b"AMQP\x00\x01\x00\x00")
            assert sock.recv(4) == b"AMQP"


def test_counters_and_connections(client: ControlClient, contoso: NamespaceHandle) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", contoso.port, timeout=40)
    connection.request("GET", "/orders", headers={"User-Agent": "a test"})
    assert connection.getresponse().read()
    rows = client.counters("contoso")
    assert list(rows) == ["contoso"]
    (row,) = rows["contoso"]
    assert (row["entity"], row["kind"], row["count"], row["units"]) == ("orders", "admin", 1, 1)
    assert client.counters() == {**rows, "contoso-dr": []}
    (info,) = client.connections("contoso")["contoso"]
    assert info["name"] == row["connection"]
    assert (info["protocol"], info["client"], info["closed_at"]) == ("http", {"user-agent": "a test"}, None)
    assert client.connections().keys() == {"contoso", "contoso-dr"}
    assert contoso.count(OperationKind.ADMIN) == 1
    connection.close()


def test_status_is_what_the_ready_file_says_without_its_keys(broker: Broker, client: ControlClient) -> None:
    status, known = client.status(), broker.describe()
    assert status == broker.describe(with_keys=False)
    assert status["control"]["url"] == known["control"].pop("url")
    for name in ("contoso", "contoso-dr"):
        assert status[name]["port"] == known[name].pop("port")
        assert status[name]["policies"] == ["root", "send", "listen"]
    secrets = [*re.findall("SharedAccessKey=([^;]+)", json.dumps(known)), known["control"]["token"]]
    assert len(secrets) == 9
    assert not [secret for secret in secrets if secret in json.dumps(status)]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("localhost:1234", 200),
        ("LOCALHOST", 200),
        ("[::1]:80", 200),
        ("evil.example", 421),
        ("evil.example:80", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example", 421),
        ("[::1", 421),
        ("user@evil.example", 421),
        ("evil.example@localhost", 421),
        ("localhost/evil.example", 421),
        ("localhost:80:evil", 421),
        ("LOCALHOST:1", 200),
        ("", 421),
    ],
)
def test_it_answers_to_its_own_names_alone(control: dict[str, Any], host: str, status: int) -> None:
    connection = http.client.HTTPConnection(control["url"].removeprefix("http://"), timeout=PATIENCE)
    connection.putrequest("GET", "/faults", skip_host=True)
    connection.putheader("Host", host)
    connection.putheader("Authorization", f"Bearer {control['token']}")
    connection.endheaders()
    assert connection.getresponse().status == status
    connection.close()


@pytest.mark.parametrize("token", [None, "wrong", "wröng", "Bearer"])
@pytest.mark.parametrize(("method", "target"), [("GET", "/status"), ("POST", "/faults"), ("GET", "/nothing")])
def test_without_the_token_nothing_is_told(
    control: dict[str, Any], method: str, target: str, token: str | None
) -> None:
    status, answer = ask(control, method, target, token=token)
    assert status == 401
    assert answer.keys() == {"error"}
    assert "ready file" in answer["error"]


def test_a_client_with_a_wrong_token_is_told_so(control: dict[str, Any]) -> None:
    with pytest.raises(ControlError, match="ready file"):
        ControlClient(control["url"], "wrong").list_faults()


@pytest.mark.parametrize(
    ("method", "target", "status", "said"),
    [
        ("GET", "/", 404, "there are /faults"),
        ("GET", "/fault", 404, "there is no /fault"),
        ("GET", "/faults/1", 404, "there is no /faults/1"),
        ("PUT", "/faults", 405, "GET, POST, DELETE"),
        ("POST", "/counters", 405, "not possible"),
        ("DELETE", "/faults", 400, "name a namespace"),
        ("DELETE", "/faults?namespace=fabrikam", 400, "there is no namespace 'fabrikam'"),
        ("DELETE", "/faults?namespace=contoso&entity=", 400, "path of a queue"),
        ("DELETE", "/faults?namespace=contoso&entty=orders", 400, "does not take entty"),
        ("GET", "/faults?namespace=fabrikam", 400, "there are contoso, contoso-dr"),
        ("GET", "/counters?name=contoso", 400, "does not take name"),
        ("GET", "/status?namespace=contoso", 400, "does not take namespace"),
        ("GET", "/faults?" + "&".join(f"a{n}=1" for n in range(50)), 400, "too many"),
    ],
)
def test_a_mistake_is_told(control: dict[str, Any], method: str, target: str, status: int, said: str) -> None:
    answered, answer = ask(control, method, target)
    assert answered == status
    assert said in answer["error"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[" * 50_000, "not JSON"),
        (b"[]", "JSON object"),
        (b"null", "JSON object"),
        (b"{}", "name a namespace"),
        (b'{"namespace": 5}', "there is no namespace 5"),
        (b'{"namespace": ["contoso"]}', "there is no namespace"),
        (b'{"namespace": "contoso"}', "there is no fault None"),
        (b'{"namespace": "contoso", "kind": "sulk"}', "there is no fault 'sulk'"),
        (b'{"namespace": "contoso", "kind": ["refuse"]}', "there is no fault"),
        (b'{"namespace": "contoso", "kind": {}}', "there is no fault"),
        (b'{"namespace": "contoso", "kind": "refuse", "for": "ever"}', "leave the time out"),
        (b'{"namespace": "contoso", "kind": "refuse", "for": NaN}', "leave the time out"),
        (b'{"namespace": "contoso", "kind": "refuse", "for": 1e999}', "leave the time out"),
        (b'{"namespace": "contoso", "kind": "refuse", "entity": 5}', "path of a queue"),
        (b'{"namespace": "contoso", "kind": "refuse", "entity": "\\ud800"}', "path of a queue"),
        (b'{"namespace": "contoso", "kind": "refuse", "every": 5}', "does not take 'every'"),
        (b'{"namespace": "contoso", "kind": "refuse", "colour": "red"}', "does not take colour"),
    ],
    ids=lambda value: value[:40].decode("latin-1") if isinstance(value, bytes) else None,
)
def test_a_bad_fault_is_told_and_not_set(
    control: dict[str, Any], contoso: NamespaceHandle, body: bytes, said: str
) -> None:
    status, answer = ask(control, "POST", "/faults", body)
    assert status == 400
    assert said in answer["error"]
    assert contoso.faults.list() == []


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
bodies = st.binary(max_size=50) | st.dictionaries(
    st.sampled_from(
        ["namespace", "kind", "entity", "for", "seconds", "condition", "every", "up", "down", "more"]
    ),
    st.sampled_from(["contoso", "orders", *FaultKind]) | values,
).map(lambda value: json.dumps(value).encode())


@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=bodies)
def test_whatever_is_posted_is_answered(
    control: dict[str, Any], contoso: NamespaceHandle, body: bytes
) -> None:
    status, answer = ask(control, "POST", "/faults", body)
    assert status in (200, 400)
    assert status == 200 or answer["error"]
    contoso.faults.clear()


def test_what_is_no_http_is_shown_the_door(control: dict[str, Any], client: ControlClient) -> None:
    host, port = control["url"].removeprefix("http://").split(":")
    for rubbish in (
        b"AMQP\x00\x01\x00\x00",
        b"\x00" * 100,
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01rubbish",
    ):
        with socket.create_connection((host, int(port)), timeout=40) as sock:
            sock.sendall(rubbish)
            sock.shutdown(socket.SHUT_WR)
            try:
                while sock.recv(4096):
                    pass
            except ConnectionResetError:
                pass
    assert client.list_faults() == {"contoso": [], "contoso-dr": []}


def test_a_broker_that_is_gone_is_told(
    control: dict[str, Any], broker: Broker, client: ControlClient
) -> None:
    broker.__exit__(None, None, None)
    with pytest.raises(ControlError, match=r"answer \(Connection refused\); is the broker running\?$"):
        client.list_faults()


def test_a_mistake_of_the_callers_is_a_configuration_error(client: ControlClient) -> None:
    with pytest.raises(ConfigurationError, match="there is no namespace 'fabrikam'"):
        client.set_fault("fabrikam", "refuse", arguments={})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1]",
        "{}",
        '{"control": {"url": 1, "token": ""}}',
        '{"control": {"url": "", "token": ""}, "contoso": 3}',
        '{"control": {"url": "", "token": ""}, "contoso": {"port": 1, "cert": ""}}',
    ],
)
def test_what_is_no_ready_file_is_told(text: str, tmp_path: Path) -> None:
    path = tmp_path / "ready.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match="is not a ready file"):
        read_ready_file(path)


def test_a_ready_file_tells_of_the_control_address_and_of_namespaces(broker: Broker, tmp_path: Path) -> None:
    path, described = tmp_path / "ready.json", broker.describe()
    path.write_text(json.dumps(described), encoding="utf-8")
    control, namespaces = read_ready_file(path)
    assert {**namespaces, "control": control} == described
