"""`pairbus spool`: what waits, was refused or is damaged is listed, shown, sent again and dropped."""

import io
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from pairbus.broker import Broker
from pairbus.broker.engine.settings import QueueSettings
from pairbus.cli.main import main
from pairbus.client.state.directory import spool_dir
from pairbus.client.state.packing import pack
from pairbus.client.state.spool_aside import keep_damaged, keep_refused, list_refused
from pairbus.client.state.spool_records import SpoolRecord
from pairbus.client.state.spool_store import LineKey, SpoolStore, adopt_stores, put_back
from pairbus.client.state.spool_survey import list_waiting

from .process import call

NAMED = ["--primary-env", "PRIMARY", "--secondary-env", "SECONDARY"]
QUICK = [
    "--option",
    "failover_interval=0",
    "--option",
    "send_timeout=60",
    "--option",
    "backlog_queue_count=1",
]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory with two messages that wait, one that was refused and one that is damaged."""
    spool = spool_dir(tmp_path)
    store = SpoolStore.create(spool)
    waiting = [ServiceBusMessage(name, message_id=name) for name in ("w0", "w1")]
    record = SpoolRecord("orders", 2, pack(waiting, scheduled_for=None, stays=False))
    store.append(LineKey.of("orders"), [record])
    store.close()
    refused = ServiceBusMessage(
        "the body", message_id="r0", session_id="s", application_properties={"kind": "invoice"}
    )
    keep_refused(spool, "one", path="strict", message=refused, when=None, reason="too strict", at=5.0)
    keep_damaged(spool, "two", b"\x00\xff")
    return tmp_path


def variables(broker: Broker) -> dict[str, str]:
    return {
        "PRIMARY": broker["contoso"].connection_string,
        "SECONDARY": broker["contoso-dr"].connection_string,
    }


def ask(state: Path, *arguments: str) -> dict[str, Any]:
    done = call("spool", *arguments, "--state", str(state), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def send(state: Path, broker: Broker, *arguments: str) -> subprocess.CompletedProcess[str]:
    words = ["spool", "replay", *arguments, *NAMED, *QUICK, "--state", str(state)]
    return call(*words, variables=variables(broker))


def test_ls_tells_what_waits_what_was_refused_and_what_is_damaged(state: Path) -> None:
    done = call("spool", "ls", "--state", str(state))
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split() for line in done.stdout.splitlines()[1:]]
    assert lines == [
        ["waiting", "orders", "2", "messages"],
        ["refused", "one", "strict", "r0", "too", "strict"],
        ["damaged", "two", "2", "bytes"],
    ]
    found = ask(state, "ls")
    assert [one["message_id"] for one in found["waiting"]] == ["w0", "w1"]
    [refused] = found["refused"]
    assert (refused["path"], refused["session_id"], refused["at"]) == ("strict", "s", 5.0)
    assert [one["name"] for one in found["damaged"]] == ["two"]
    assert found["newer"] == []


def test_status_tells_of_it_too(state: Path) -> None:
    done = call("status", "--state", str(state))
    assert "1 message was refused and is kept" in done.stdout
    assert "1 part is damaged and is kept" in done.stdout
    assert "spool: clients that are gone have left" in done.stdout
    done = call("status", "--state", str(state), "--json")
    found = json.loads(done.stdout)["spool"]
    assert [one["message_id"] for one in found["refused"]] == ["r0"]
    files = {one.file for one in list_waiting(spool_dir(state))}
    assert found["bytes_left"] == sum(file.stat().st_size for file in files) > 0


def test_status_tells_nothing_of_what_a_running_client_holds(tmp_path: Path) -> None:
    store = SpoolStore.create(spool_dir(tmp_path))
    record = SpoolRecord("orders", 1, pack([ServiceBusMessage("w")], scheduled_for=None, stays=False))
    store.append(LineKey.of("orders"), [record])
    assert "spool" not in call("status", "--state", str(tmp_path)).stdout
    store.close()
    assert "spool: clients that are gone have left" in call("status", "--state", str(tmp_path)).stdout


def test_show_tells_all_of_a_message(state: Path) -> None:
    found = ask(state, "show", "one")
    assert found["body"] == "the body"
    assert found["application_properties"] == {"kind": "invoice"}
    assert found["reason"] == "too strict"
    assert ask(state, "show", "two")["base64"] == "AP8="
    done = call("spool", "show", "one", "--state", str(state))
    assert "the body" in done.stdout


def test_drop_removes_what_was_put_aside_and_nothing_else(state: Path) -> None:
    assert [one["name"] for one in ask(state, "drop", "one", "--yes")["dropped"]] == ["one"]
    left = ask(state, "ls")
    assert (len(left["waiting"]), left["refused"], len(left["damaged"])) == (2, [], 1)
    done = call("spool", "drop", "--all", "--yes", "--state", str(state))
    assert (done.returncode, done.stdout) == (0, "dropped 1\n")
    assert ask(state, "ls")["damaged"] == []


@pytest.mark.parametrize("chosen", [["one"], ["--all"], ["--waiting", "orders"]])
def test_nothing_is_dropped_unasked(state: Path, monkeypatch: pytest.MonkeyPatch, chosen: list[str]) -> None:
    before = ask(state, "ls")
    monkeypatch.setattr("sys.stdin", io.StringIO())
    done = call("spool", "drop", *chosen, "--state", str(state))
    assert (done.returncode, "say --yes" in done.stderr) == (2, True)
    assert ask(state, "ls") == before


def test_an_empty_spool_is_empty(tmp_path: Path) -> None:
    done = call("spool", "ls", "--state", str(tmp_path))
    assert (done.returncode, done.stdout) == (0, f"nothing in the spool of {tmp_path}\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["show", "nothing"], "Nothing called 'nothing'"),
        (["drop", "nothing"], "Nothing called 'nothing'"),
        (["drop"], "Say what to drop"),
        (["replay", "two", *NAMED], "cannot be sent"),
        (["replay", "nothing", *NAMED], "Nothing called 'nothing'"),
    ],
)
def test_mistakes_are_told_in_a_line_and_are_2(
    state: Path, pairbus_broker: Broker, arguments: list[str], told: str
) -> None:
    done = call("spool", *arguments, "--state", str(state), variables=variables(pairbus_broker))
    assert done.returncode == 2
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_directory_that_is_not_there_is_2(tmp_path: Path) -> None:
    done = call("spool", "ls", "--state", str(tmp_path / "nowhere"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "nowhere" in done.stderr


def test_what_a_newer_version_has_written_is_named_and_2(state: Path) -> None:
    [store] = spool_dir(state).glob("*-*-*")
    newer = store.with_name(f"{store.name}.v2")
    shutil.copytree(store, newer)
    done = call("spool", "ls", "--state", str(state), "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["newer"] == [str(newer)]
    assert f"A newer version of Pairbus has written {newer}" in done.stderr


def test_replay_sends_what_is_left_and_what_is_named(state: Path, pairbus_broker: Broker) -> None:
    primary = pairbus_broker["contoso"]
    for path in ("orders", "strict"):
        primary.create_queue(path)
    done = send(state, pairbus_broker, "--json")
    assert json.loads(done.stdout) == {
        "sent": 2, "refused": 0, "waiting": 0, "damaged": 0, "reason": None
    }  # fmt: skip
    assert done.returncode == 0
    done = send(state, pairbus_broker, "one")
    assert (done.returncode, done.stdout) == (0, "1 sent, 0 refused, 0 waiting\n")
    assert list_refused(state) == []


def test_what_is_refused_again_is_kept_again_and_1(state: Path, pairbus_broker: Broker) -> None:
    pairbus_broker["contoso"].create_queue("orders")
    pairbus_broker["contoso"].create_queue("strict", QueueSettings(requires_session=True))
    spool, message = spool_dir(state), ServiceBusMessage("no session", message_id="r1")
    keep_refused(spool, "three", path="strict", message=message, when=None, reason="before", at=6.0)
    done = send(state, pairbus_broker, "--all")
    assert (done.returncode, done.stdout) == (1, "3 sent, 1 refused, 0 waiting\n")
    [kept] = list_refused(state)
    assert kept.message_id == "r1"
    assert kept.reason != "before"


def test_what_turns_out_to_be_damaged_was_not_sent_and_is_1(state: Path, pairbus_broker: Broker) -> None:
    pairbus_broker["contoso"].create_queue("orders")
    store = SpoolStore.create(spool_dir(state))
    store.append(LineKey.of("orders"), [SpoolRecord("orders", 7, b"no message")])
    store.close()
    done = send(state, pairbus_broker)
    assert (done.returncode, done.stdout) == (1, "2 sent, 0 refused, 0 waiting\n")
    assert "1 part is damaged and was put aside" in done.stderr


def test_what_no_side_takes_is_kept_and_3(state: Path, pairbus_broker: Broker) -> None:
    for side in ("contoso", "contoso-dr"):
        pairbus_broker[side].faults.set("refuse")
    done = send(state, pairbus_broker, "one", "--timeout", "0.5")
    assert done.returncode == 3
    assert "0 sent, 0 refused, 3 waiting" in done.stdout
    assert "no side has taken what waits" in done.stderr
    found = ask(state, "ls")
    assert sorted(one["message_id"] for one in found["waiting"]) == ["r0", "w0", "w1"]


def test_files_of_other_names_are_sent_too(state: Path, pairbus_broker: Broker) -> None:
    pairbus_broker["contoso"].create_queue("orders")
    [file] = spool_dir(state).glob("*-*-*/*.spool")
    file.rename(file.with_name("saved by hand.spool"))
    done = send(state, pairbus_broker)
    assert (done.returncode, done.stdout) == (0, "2 sent, 0 refused, 0 waiting\n")
    assert pairbus_broker["contoso"].message_count("orders") == 2
    assert ask(state, "ls")["waiting"] == []


def test_what_no_client_can_read_waits_and_is_3(
    state: Path, pairbus_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairbus_broker["contoso"].create_queue("orders")
    for name, value in variables(pairbus_broker).items():
        monkeypatch.setenv(name, value)

    def fail(store: SpoolStore, path: Path) -> None:
        raise OSError(f"{path} cannot be read")

    monkeypatch.setattr(SpoolStore, "_load_file", fail)
    assert main(["spool", "replay", *NAMED, *QUICK, "--state", str(state)]) == 3


def test_two_who_replay_at_once_send_nothing_twice(state: Path) -> None:
    first, second = list_refused(state), list_refused(state)
    assert put_back(spool_dir(state), first) == 1
    assert put_back(spool_dir(state), second) == 0
    assert [one.message_id for one in list_waiting(spool_dir(state))].count("r0") == 1
    assert list_refused(state) == []


def test_replay_makes_no_directory(tmp_path: Path, pairbus_broker: Broker) -> None:
    done = send(tmp_path / "typo", pairbus_broker)
    assert (done.returncode, done.stdout) == (2, "")
    assert not (tmp_path / "typo").exists()


def test_directories_with_the_names_of_files_are_none(state: Path, pairbus_broker: Broker) -> None:
    spool = spool_dir(state)
    [store] = spool.glob("*-*-*")
    for place in ("refused/x.spool", "damaged/x.bytes", f"{store.name}/x.spool", f"{store.name}/y.cursor"):
        (spool / place).mkdir()
    found = ask(state, "ls")
    assert [len(found[name]) for name in ("waiting", "refused", "damaged")] == [2, 1, 1]
    assert len(ask(state, "drop", "--all", "--yes")["dropped"]) == 2
    pairbus_broker["contoso"].create_queue("orders")
    done = send(state, pairbus_broker)
    assert (done.returncode, done.stdout) == (0, "2 sent, 0 refused, 0 waiting\n")


def test_what_waits_for_an_entity_can_be_dropped_unless_a_client_holds_it(state: Path) -> None:
    spool = spool_dir(state)
    for path, is_late in (("Orders", True), ("other", False)):
        store = SpoolStore.create(spool)
        packed = pack([ServiceBusMessage(path, message_id=path)], scheduled_for=None, stays=False)
        store.append(LineKey.of(path, is_late=is_late), [SpoolRecord(path, 1, packed)])
        done = call("spool", "drop", "--waiting", path, "--state", str(state))
        assert done.returncode == 3
        assert "a client that runs holds messages" in done.stderr
        store.close()
    assert len(ask(state, "drop", "--waiting", "orders", "--yes")["dropped"]) == 3
    assert [one["message_id"] for one in ask(state, "ls")["waiting"]] == ["other"]
    done = call("spool", "drop", "--waiting", "orders", "--state", str(state))
    assert (done.returncode, "Nothing waits for 'orders'" in done.stderr) == (2, True)


def test_what_is_dropped_is_counted_once_however_it_is_written(state: Path) -> None:
    dropped = ask(state, "drop", "--waiting", "ORDERS", "--waiting", "orders", "--yes")["dropped"]
    assert [one["message_id"] for one in dropped] == ["w0", "w1"]


def test_what_somebody_takes_while_the_question_is_asked_is_not_dropped(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[SpoolStore] = []

    def take(_: str) -> None:
        put_back(spool_dir(state), list_refused(state))
        taken.extend(adopt_stores(spool_dir(state)))

    monkeypatch.setattr("pairbus.cli.spool.confirm", take)
    done = call("spool", "drop", "one", "two", "--waiting", "orders", "--state", str(state))
    for store in taken:
        store.close()
    assert (done.returncode, done.stdout) == (3, "dropped 1\n")
    assert "3 could not be dropped" in done.stderr
    assert len(ask(state, "ls")["waiting"]) == 3
