"""`provision`, `check`, `send` and `status` on a pair of embedded namespaces."""

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusReceivedMessage

from pairbus.broker import Broker
from pairbus.broker.engine.settings import QueueSettings
from pairbus.cli.send import SendTally
from pairbus.client.observers.observer import AttemptOutcome, Sending
from pairbus.ledger.segment import closed_segments, read_segment
from tests.processes import killed_at_end
from tests.waiting import wait_until

from .process import COMMAND, PATIENCE, call

QUEUES = [f"contoso/x-servicebus-transfer/{index}" for index in range(3)]
NAMED = ["--primary-env", "PRIMARY", "--secondary-env", "SECONDARY"]
# The interval of 0 sends the very message that failed to the backlog; a busy machine answers late.
QUICK = [
    "--option",
    "failover_interval=0",
    "--option",
    "backlog_queue_count=3",
    "--option",
    "send_timeout=60",
]


@dataclass(frozen=True)
class Scene:
    """A pair, and the environment of a command that works on it."""

    broker: Broker
    state: Path

    def variables(self, policy: str = "root") -> dict[str, str]:
        return {
            "PRIMARY": self.broker["contoso"].policies[policy],
            "SECONDARY": self.broker["contoso-dr"].policies[policy],
            "XDG_STATE_HOME": str(self.state),
        }

    def call(self, *arguments: str, policy: str = "root") -> subprocess.CompletedProcess[str]:
        return call(*arguments, *NAMED, variables=self.variables(policy))

    def start(self, *arguments: str, text: bytes = b"", policy: str = "root") -> subprocess.Popen[bytes]:
        """A process that has been given its input; with none it waits for some."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PAIRBUS_")}
        process = subprocess.Popen(
            [*COMMAND, *arguments, *NAMED],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**environment, **self.variables(policy)},
        )
        if text:
            assert process.stdin is not None
            process.stdin.write(text)
            process.stdin.close()
            process.stdin = None  # communicate() would close it again
        return process

    def redirected(self) -> list[dict[str, Any]]:
        directory = self.state / "pairbus" / "contoso" / "records"
        return [row for path in closed_segments(directory, "redirects") for row in read_segment(path).rows]


@pytest.fixture
def scene(tmp_path: Path, pairbus_broker: Broker) -> Scene:
    return Scene(pairbus_broker, tmp_path)


def test_provision_creates_and_then_finds(scene: Scene) -> None:
    done = scene.call("provision", "--count", "3")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split() for line in done.stdout.splitlines()[1:]] == [[name, "created"] for name in QUEUES]
    done = scene.call("provision", "--count", "2", "--json")
    assert done.returncode == 0
    report = json.loads(done.stdout)
    assert (report["primary_name"], report["state"]) == ("contoso", "ready")
    assert [(queue["name"], queue["existed"]) for queue in report["queues"]] == [
        (name, True) for name in QUEUES[:2]
    ]
    assert report["extra"] == [QUEUES[2]]


def test_provision_takes_another_name_and_tells_differences(scene: Scene) -> None:
    scene.broker["contoso-dr"].create_queue("shop/x-servicebus-transfer/0")
    done = scene.call("provision", "--count", "1", "--primary-name", "shop")
    assert done.returncode == 0
    assert "exists; max_size_in_megabytes is 1024, not 5120" in done.stdout


def test_provision_without_manage_or_without_a_secondary_is_3(scene: Scene) -> None:
    done = scene.call("provision", policy="send")
    assert done.returncode == 3
    assert "Manage" in done.stderr
    scene.broker["contoso-dr"].faults.set("refuse")
    done = scene.call("provision", "--json")
    assert done.returncode == 3
    assert json.loads(done.stdout)["state"] == "unreachable"


def test_provision_that_leaves_something_missing_is_1(scene: Scene) -> None:
    scene.broker["contoso-dr"].create_topic(QUEUES[0])
    done = scene.call("provision", "--count", "1")
    assert done.returncode == 1
    assert "missing: a topic has this name" in done.stdout


def test_a_pair_of_the_configuration_file(scene: Scene, tmp_path: Path) -> None:
    file = tmp_path / "pairbus.toml"
    file.write_text(
        '[pairs.shop]\nprimary_env = "PRIMARY"\nsecondary_env = "SECONDARY"\n'
        "[pairs.shop.options]\nbacklog_queue_count = 2\n"
    )
    for words in (["--config", str(file), "--pair", "shop"], []):
        variables = {**scene.variables(), "PAIRBUS_CONFIG": str(file)}
        done = call("provision", *words, "--json", variables=variables)
        assert len(json.loads(done.stdout)["queues"]) == 2


@pytest.mark.parametrize("command", [["provision"], ["check"], ["send", "orders"], ["status"]])
def test_a_command_without_a_pair_is_2(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = call(*command)
    assert done.returncode == 2
    assert "--primary-env" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_check_tells_what_it_found(scene: Scene) -> None:
    scene.broker["contoso"].create_queue("orders")
    done = scene.call("check", "--outage", "3600", "--option", "backlog_queue_count=3")
    assert done.returncode == 1
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["error", "backlog", QUEUES[0]] in [line[:3] for line in lines]
    assert ["warning", "duplicates", "orders"] in [line[:3] for line in lines]
    assert lines[-1] == ["contoso:", "2", "problems", "found"]


def test_check_of_a_pair_that_is_down_is_3(scene: Scene) -> None:
    scene.broker["contoso"].faults.set("refuse")
    scene.broker["contoso-dr"].faults.set("refuse")
    done = scene.call("check", "--json")
    assert done.returncode == 3
    report = json.loads(done.stdout)
    assert report["unreachable"] == ["primary", "secondary"]
    assert [finding["topic"] for finding in report["findings"] if finding["severity"] == "error"] == [
        "reach"
    ] * 2
    assert report["capacity"] is None


ROWS = [
    {"body": {"n": 1}, "message_id": "m1", "subject": "s", "application_properties": {"kind": "new"}},
    {"body": "two", "session_id": "b"},
    {"body": "three", "session_id": "b"},
]


@dataclass(frozen=True)
class Sent:
    """What became of several sends, which ran side by side because each of them mostly waits."""

    healthy: Scene
    failed_over: Scene
    done: dict[str, subprocess.CompletedProcess[bytes]]


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sent]:
    with ExitStack() as stack:

        def new_scene(name: str) -> Scene:
            broker = stack.enter_context(Broker({"contoso": 0, "contoso-dr": 0}))
            return Scene(broker, tmp_path_factory.mktemp(name))

        healthy, failed_over, down = new_scene("healthy"), new_scene("failed-over"), new_scene("down")
        healthy.broker["contoso"].create_queue("orders")
        healthy.broker["contoso"].create_queue("mixed")
        healthy.broker["contoso"].create_queue("sessions", QueueSettings(requires_session=True))
        failed_over.call("provision", "--count", "3")
        failed_over.broker["contoso"].faults.set("refuse")
        for namespace in ("contoso", "contoso-dr"):
            down.broker[namespace].faults.set("refuse")
        file = healthy.state / "messages.jsonl"
        file.write_text("\n".join(map(json.dumps, ROWS)))
        lines = b"one\ntwo\nthree"
        of_file = ["--file", str(file), "--json-lines", "--session", "a", "--json"]
        started = {
            "plain": healthy.start("send", "orders", *QUICK, text=lines),
            "sessions": healthy.start("send", "sessions", *of_file, *QUICK),
            "mistake": healthy.start("send", "mixed", "--json-lines", *QUICK, text=b'{"body": ""}\nnonsense'),
            "nowhere": healthy.start("send", "nowhere", *QUICK, text=b"one"),
            "backlog": failed_over.start("send", "orders", "--batch", "2", *QUICK, text=lines, policy="send"),
            "down": down.start("send", "orders", *QUICK, text=b"one"),
        }
        done = {
            name: subprocess.CompletedProcess(process.args, process.returncode, *streams)
            for name, process in started.items()
            if (streams := process.communicate(timeout=PATIENCE))
        }
        yield Sent(healthy, failed_over, done)


def test_lines_of_standard_input_are_sent_to_the_primary(sent: Sent) -> None:
    done = sent.done["plain"]
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"orders: 3 sent (3 to the primary)")
    assert sent.healthy.broker["contoso"].message_count("orders") == 3
    assert sent.healthy.redirected() == []


def test_json_lines_of_a_file_keep_their_fields_and_batches_their_sessions(sent: Sent) -> None:
    done = sent.done["sessions"]
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["path"], told["sent"], told["primary"], told["backlog"]) == ("sessions", 3, 3, 0)

    def received(session: str) -> list[ServiceBusReceivedMessage]:
        with client.get_queue_receiver("sessions", session_id=session) as receiver:
            return receiver.peek_messages(max_message_count=3)  # a receive gives what has come so far

    with ServiceBusClient.from_connection_string(sent.healthy.variables()["PRIMARY"]) as client:
        (first,) = received("a")
        others = received("b")
    assert (str(first), first.message_id, first.subject) == ('{"n": 1}', "m1", "s")
    assert first.application_properties == {b"kind": b"new"}
    assert [str(message) for message in others] == ["two", "three"]


def test_while_the_primary_is_down_lines_go_to_the_backlog_and_are_on_record(sent: Sent) -> None:
    done = sent.done["backlog"]
    assert done.returncode == 0, done.stderr
    assert b"3 to the backlog" in done.stdout
    assert b"healthy" in done.stderr, "the change of state is logged"
    secondary = sent.failed_over.broker["contoso-dr"]
    assert sum(secondary.message_count(name) for name in QUEUES) == 3
    rows = sent.failed_over.redirected()
    assert [row["path"] for row in rows] == ["orders"] * 3
    assert len({row["message_id"] for row in rows}) == 3


@pytest.mark.parametrize(
    ("name", "code", "said", "summed_up"),
    [
        ("mistake", 2, b"line 2: is not JSON", b"mixed: 1 sent"),
        ("nowhere", 2, b"nowhere: there is no such entity", b"nowhere: 0 sent"),
        ("down", 3, b"neither primary nor backlog took it", b"orders: 0 sent"),
    ],
)
def test_what_cannot_be_sent_is_told_with_what_was(
    sent: Sent, name: str, code: int, said: bytes, summed_up: bytes
) -> None:
    done = sent.done[name]
    assert done.returncode == code
    assert said in done.stderr
    assert b"Traceback" not in done.stderr
    assert done.stdout.startswith(summed_up)


def test_who_waits_for_a_namespace_that_throttles_sees_attempts(caplog: pytest.LogCaptureFixture) -> None:
    tally = SendTally(clock=lambda: 0.0)
    with caplog.at_level("INFO", "pairbus.cli.send"):
        outcomes: list[AttemptOutcome] = ["failed", "ok"]
        for outcome in outcomes:
            told: Any = {"path": "orders", "route": "primary", "messages": 1, "size": 1, "seconds": 0.1}
            tally.sent(Sending(outcome=outcome, **told))
    assert caplog.messages == ["orders: an attempt at the primary: failed"]


def test_status_without_anybody_to_ask_is_3(scene: Scene, tmp_path: Path) -> None:
    done = call("status", "--state", str(tmp_path))
    assert done.returncode == 3
    assert "no client is running" in done.stdout
    scene.broker["contoso-dr"].faults.set("refuse")
    done = scene.call("status")
    assert done.returncode == 3
    assert "backlog of contoso: not known (unreachable" in done.stdout


def test_status_of_clients_that_are_gone_alone_is_3(scene: Scene) -> None:
    left = Path(__file__).parents[1] / "client" / "version_0_1_0"
    shutil.copytree(left / "status", scene.state / "status")
    scene.broker["contoso-dr"].faults.set("refuse")
    done = scene.call("status", "--state", str(scene.state))
    assert (done.returncode, " gone, or" in done.stdout) == (3, True), done.stdout


def test_status_names_files_that_it_cannot_read(tmp_path: Path) -> None:
    (tmp_path / "status").mkdir()
    os.mkfifo(tmp_path / "status" / "7.json")
    done = call("status", "--state", str(tmp_path))
    assert (done.returncode, done.stdout) == (3, "1 status file cannot be read: 7.json\n")
    assert json.loads(call("status", "--state", str(tmp_path), "--json").stdout)["unreadable"] == ["7.json"]


@pytest.mark.parametrize(
    "arguments", [["send"], ["syphon", "run", "--path"], ["redrive", "--path"], ["check", "--entity"]]
)
def test_a_path_that_is_no_text_is_refused(arguments: list[str]) -> None:
    done = call(*arguments, "caf\udce9")
    assert (done.returncode, done.stdout) == (2, "")
    assert "'caf\\udce9' is not valid text: write it in UTF-8" in done.stderr


def test_status_tells_the_depth_of_the_backlog(scene: Scene) -> None:
    scene.call("provision", "--count", "3")
    done = scene.call("status", "--option", "backlog_queue_count=3")
    assert done.returncode == 0
    assert "backlog of contoso: 0 waiting, 0 dead letters\n" in done.stdout
    done = scene.call("status", "--option", "backlog_queue_count=3", policy="send")
    assert done.returncode == 3
    assert "not_permitted" in done.stdout


@pytest.fixture
def sender(scene: Scene) -> Iterator[subprocess.Popen[bytes]]:
    """A client that has failed over, and goes on running until its input ends."""
    scene.broker["contoso"].create_queue("orders")
    scene.call("provision", "--count", "3")
    scene.broker["contoso"].faults.set("refuse")
    with killed_at_end(scene.start("send", "orders", *QUICK)) as process:
        assert process.stdin is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        yield process


def until_failed_over(scene: Scene) -> dict[str, Any]:
    told: dict[str, Any] = {}

    def has_failed_over() -> bool:
        told.update(json.loads(scene.call("status", "--json", "--option", "backlog_queue_count=3").stdout))
        entities = [one for client in told["clients"] for one in client["status"]["entities"]]
        return told["backlog"]["active"] == 1 and [one["health"]["state"] for one in entities] == [
            "failed_over"
        ]

    wait_until(has_failed_over, what="the failover", within=PATIENCE)
    return told


def test_status_of_a_client_that_runs_and_of_one_that_has_ended(
    scene: Scene, sender: subprocess.Popen[bytes]
) -> None:
    told = until_failed_over(scene)
    (client,) = told["clients"]
    assert (client["pid"], client["is_stale"]) == (sender.pid, False)
    assert client["status"]["primary_name"] == "contoso"
    state = scene.state / "pairbus" / "contoso"
    shown = call("status", "--state", str(state)).stdout
    assert f"process {sender.pid} on" in shown
    header, row = shown.splitlines()[-2:]
    assert row.split()[:2] == ["orders", "failed_over"]
    assert int(dict(zip(header.split(), row.split(), strict=False))["FAILED"]) > 0
    started = subprocess.Popen(
        [*COMMAND, "status", "--state", str(state), "--watch", "--interval", "0.1", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with killed_at_end(started) as watching:
        assert watching.stdout is not None
        for _ in range(2):
            assert json.loads(watching.stdout.readline())["clients"][0]["pid"] == sender.pid
        watching.send_signal(signal.SIGINT)
        _, errors = watching.communicate(timeout=PATIENCE)
    assert (watching.returncode, errors) == (0, "")
    sender.send_signal(signal.SIGTERM)  # its input goes on: it ends as by Ctrl-C, and closes its client
    sender.wait(timeout=PATIENCE)
    assert sender.stdout is not None
    assert sender.stderr is not None
    assert sender.returncode == 143
    assert sender.stdout.read().startswith(b"orders: 1 sent (1 to the backlog)")
    assert not re.search(rb"Traceback|RuntimeWarning|ignored", sender.stderr.read())
    assert call("status", "--state", str(state)).returncode == 3
