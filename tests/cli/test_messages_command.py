"""`pairbus messages` on embedded namespaces: nothing of a message is lost between an export and an import."""

import asyncio
import io
import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusMessage

from pairbus import conditions
from pairbus.broker import Broker, NamespaceHandle, QueueSettings
from pairbus.cli.message_form import read_line
from pairbus.cli.message_moves import MessagePlace, in_words
from pairbus.cli.namespaces import ChosenNamespace
from pairbus.cli.pairs import SideAddress
from pairbus.errors import UnreachableError
from pairbus.plumbing.files import publish
from pairbus.plumbing.wording import SIGN_IN
from pairbus.pump.amqp_transport import AmqpSource
from pairbus.pump.options import PumpOptions
from pairbus.pump.pair import Side
from pairbus.pump.pump import open_transport
from pairbus.pump.transport import Unit
from pairbus.sdk import sessions
from pairbus.wire.errors import NO_TOKEN, TokenMissing
from tests.waiting import PATIENCE

from .process import call
from .test_message_lines import bare, every_kind


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"contoso": 0}) as broker:
        yield broker


@pytest.fixture
def contoso(broker: Broker) -> Iterator[NamespaceHandle]:
    namespace = broker["contoso"]
    namespace.create_queue("orders")
    namespace.create_queue("sessions", QueueSettings(requires_session=True))
    yield namespace
    namespace.faults.clear()
    namespace.delete_queue("orders")
    namespace.delete_queue("sessions")


@pytest.fixture
def here(broker: Broker, contoso: NamespaceHandle, tmp_path: Path) -> tuple[str, str]:
    ready = tmp_path / "ready.json"
    publish(ready, json.dumps(broker.describe()))
    return "--ready-file", str(ready)


def done(*arguments: str, code: int = 0) -> Any:
    result = call("messages", *arguments, "--json")
    assert result.returncode == code, result.stderr
    return json.loads(result.stdout)


def send_raw(namespace: NamespaceHandle, path: str, payloads: Sequence[bytes]) -> None:
    async def work() -> None:
        side = Side(connection_string=namespace.connection_string).resolve()
        transport = open_transport(side, PumpOptions())
        outcomes = await transport.destination(path).send([Unit([payload]) for payload in payloads])
        await transport.close()
        assert outcomes == [None] * len(payloads)

    asyncio.run(work())


def test_exported_purged_and_imported_a_message_is_what_it_was(
    contoso: NamespaceHandle, here: tuple[str, str], tmp_path: Path
) -> None:
    sent, files = every_kind(), [tmp_path / "one", tmp_path / "two"]
    send_raw(contoso, "orders", sent)
    done("export", "orders", "--file", str(files[0]), *here)
    assert done("purge", "orders", "--yes", *here)["purged"] == len(sent)
    assert done("import", "orders", "--file", str(files[0]), *here)["imported"] == len(sent)
    done("export", "orders", "--file", str(files[1]), *here)
    for file in files:
        found = [read_line(line, 1).payload for line in file.read_bytes().splitlines()]
        assert [bare(payload) for payload in found] == [bare(payload) for payload in sent]


def test_messages_are_sent_listed_and_peeked(here: tuple[str, str], tmp_path: Path) -> None:
    options = ("--subject", "hi", "--property", "n=3", "--property", "t=x", "--message-id", "m1")
    assert done("send", "orders", "hello", *here, *options) == {"path": "orders", "sent": 1}
    lines = tmp_path / "lines"
    lines.write_text('{"body": "b", "session_id": "own"}\n{"body": "c"}\n', encoding="utf-8")
    sent = ("send", "sessions", "--file", str(lines), "--json-lines", "--session", "s", *here)
    assert done(*sent)["sent"] == 2
    (listed,) = done("ls", "orders", *here)
    assert (listed["message_id"], listed["subject"], listed["state"]) == ("m1", "hi", "active")
    (peeked,) = done("peek", "orders", *here)
    assert (peeked["body"], peeked["application_properties"]) == ("hello", {"n": 3, "t": "x"})
    assert [one["session_id"] for one in done("ls", "sessions", *here)] == ["own", "s"]
    assert [one["session_id"] for one in done("ls", "sessions", "--session", "s", *here)] == ["s"]
    assert done("peek", "sessions", "--from", "2", *here)[0]["body"] == "c"
    assert "m1" in call("messages", "ls", "orders", *here).stdout
    assert "body: hello\n" in call("messages", "peek", "orders", *here).stdout
    assert (
        call("messages", "ls", "orders", "--from", "9", *here).stdout == "no messages in orders of contoso\n"
    )


def fill(namespace: NamespaceHandle) -> None:
    """Active, deferred, scheduled and dead messages, with and without sessions."""
    later = datetime.now(UTC) + timedelta(hours=1)
    with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
        for queue, session in (("orders", None), ("sessions", "s")):
            sender = client.get_queue_sender(queue)
            sender.send_messages([ServiceBusMessage(f"{n}", session_id=session) for n in range(4)])
            sender.schedule_messages(ServiceBusMessage("later", session_id=session), later)
            receiver = client.get_queue_receiver(queue, session_id=session)
            with receiver:
                (dead,) = receiver.receive_messages(max_message_count=1, max_wait_time=20)
                receiver.dead_letter_message(dead, reason="bad")
                (deferred,) = receiver.receive_messages(max_message_count=1, max_wait_time=20)
                receiver.defer_message(deferred)


@pytest.mark.parametrize("queue", ["orders", "sessions"])
def test_purge_takes_messages_in_every_state(
    queue: str, here: tuple[str, str], contoso: NamespaceHandle
) -> None:
    fill(contoso)
    assert sorted(one["state"] for one in done("ls", queue, *here)) == [
        "active",
        "active",
        "deferred",
        "scheduled",
    ]
    (dead,) = done("ls", queue, "--dead-letter", *here)
    assert dead["application_properties"]["DeadLetterReason"] == "bad"
    assert done("purge", queue, "--yes", *here) == {"path": queue, "purged": 4, "left": 0}
    assert done("ls", queue, *here) == []
    assert done("purge", queue, "--dead-letter", "--yes", *here)["purged"] == 1
    assert done("purge", queue, "--yes", *here)["purged"] == 0
    assert contoso.message_count(queue) == 0


@pytest.mark.parametrize("queue", ["orders", "sessions"])
def test_purge_takes_what_has_come_due(queue: str, here: tuple[str, str], contoso: NamespaceHandle) -> None:
    """The namespace goes on telling that it was scheduled, of dead letters too."""
    with ServiceBusClient.from_connection_string(contoso.connection_string) as client:
        sender = client.get_queue_sender(queue)
        messages = [ServiceBusMessage(f"{n}", session_id="s") for n in range(3)]
        sender.schedule_messages(messages, datetime.now(UTC) - timedelta(seconds=1))
        with client.get_queue_receiver(queue, session_id="s" if queue == "sessions" else None) as receiver:
            (dead,) = receiver.receive_messages(max_message_count=1, max_wait_time=20)
            receiver.dead_letter_message(dead)
    for more, count in (("--dead-letter",), 1), ((), 2):
        purged = done("purge", queue, *more, "--yes", *here)
        assert (purged["purged"], purged["left"]) == (count, 0)


@pytest.mark.parametrize("queue", ["orders", "sessions"])
def test_purge_waits_for_a_namespace_that_stands_still(
    queue: str, here: tuple[str, str], contoso: NamespaceHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        done("send", queue, "x", *(["--session", "s"] if queue == "sessions" else []), *here)
    stands = threading.Event()

    def stand_still(*_: object) -> None:
        stands.set()
        time.sleep(1.5)

    async def late(act: Callable[..., Awaitable[Any]], *given: Any) -> Any:
        if not stands.is_set():
            if queue == "orders":
                await given[0].attach()  # for which it is waited in any case
            standing.start()
            assert await asyncio.to_thread(stands.wait, PATIENCE)
        return await act(*given)

    standing = threading.Thread(target=contoso._run, args=(stand_still,))
    place, name = (AmqpSource, "receive") if queue == "orders" else (sessions, "_purge")
    act = getattr(place, name)
    monkeypatch.setattr(place, name, lambda *given: late(act, *given))
    assert done("purge", queue, "--yes", *here) == {"path": queue, "purged": 2, "left": 0}
    standing.join(PATIENCE)
    assert stands.is_set()


def test_purge_of_a_session_leaves_the_others(here: tuple[str, str]) -> None:
    for session in ("one", "two"):
        done("send", "sessions", "x", "--session", session, *here)
    assert done("purge", "sessions", "--session", "one", "--yes", *here)["purged"] == 1
    assert [one["session_id"] for one in done("ls", "sessions", *here)] == ["two"]


def test_what_others_hold_is_left_and_told(here: tuple[str, str], contoso: NamespaceHandle) -> None:
    for _ in range(2):
        done("send", "orders", "x", *here)
    done("send", "sessions", "x", "--session", "s", *here)
    with ServiceBusClient.from_connection_string(contoso.connection_string) as client:
        receiver = client.get_queue_receiver("orders")
        (held,) = receiver.receive_messages(max_message_count=1, max_wait_time=20)
        with client.get_queue_receiver("sessions", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=20):
            assert done("purge", "orders", "--yes", *here, code=4) == {
                "path": "orders",
                "purged": 1,
                "left": 1,
            }
            assert done("purge", "sessions", "--yes", *here, code=4)["left"] == 1
        receiver.complete_message(held)


def test_nothing_is_purged_unasked(here: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    done("send", "orders", "x", *here)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    result = call("messages", "purge", "orders", *here)
    assert (result.returncode, "Delete 1 message of orders of contoso" in result.stderr) == (2, True)
    assert len(done("ls", "orders", *here)) == 1
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    said = call("messages", "purge", "orders", *here).stdout
    assert said.removeprefix(" ") == "orders of contoso: 1 purged\n"  # older clicks end their question here


def test_an_export_removes_nothing_and_replaces_nothing(here: tuple[str, str], tmp_path: Path) -> None:
    done("send", "orders", "x", *here)
    file = tmp_path / "orders.jsonl"
    export = ("export", "orders", "--file", str(file), *here)
    assert done(*export) == {"path": "orders", "exported": 1, "file": str(file)}
    before = file.read_bytes()
    result = call("messages", *export)
    assert (result.returncode, "say --force" in result.stderr) == (2, True)
    assert file.read_bytes() == before
    assert done(*export, "--force")["exported"] == 1
    assert len(done("ls", "orders", *here)) == 1


def test_an_export_that_fails_leaves_no_file(
    here: tuple[str, str], tmp_path: Path, contoso: NamespaceHandle
) -> None:
    done("send", "orders", "x", *here)
    contoso.faults.set("error", entity="orders")
    file = tmp_path / "orders.jsonl"
    assert call("messages", "export", "orders", "--file", str(file), *here).returncode == 3
    assert [path.name for path in tmp_path.iterdir()] == ["ready.json"]


def write_export(tmp_path: Path, here: tuple[str, str], count: int) -> Path:
    lines = tmp_path / "lines"
    lines.write_text("".join(f"{number}\n" for number in range(count)), encoding="utf-8")
    done("send", "orders", "--file", str(lines), *here)
    file = tmp_path / "orders.jsonl"
    done("export", "orders", "--file", str(file), *here)
    done("purge", "orders", "--yes", *here)
    return file


def test_an_import_that_was_cut_off_is_repeated_with_its_journal(
    here: tuple[str, str], tmp_path: Path, contoso: NamespaceHandle
) -> None:
    file, journal = write_export(tmp_path, here, 5), tmp_path / "journal"
    journal.write_text(json.dumps({"target": "orders of contoso", "lines": [[1, 2], [4, 4]]}))
    again = ("import", "orders", "--file", str(file), "--journal", str(journal), *here)
    contoso.faults.set("error", entity="orders")
    assert call("messages", *again).returncode == 3  # nothing was sent
    contoso.faults.clear()
    found = done(*again)
    assert (found["imported"], found["imported_before"], found["lines"]) == (2, 3, [[3, 3], [5, 5]])
    assert [one["body"] for one in done("peek", "orders", "--limit", "9", *here)] == ["2", "4"]
    assert done(*again)["imported"] == 0
    assert json.loads(journal.read_text(encoding="utf-8"))["lines"] == [[1, 5]]
    result = call("messages", "import", "sessions", "--file", str(file), "--journal", str(journal), *here)
    assert (result.returncode, "journal of an import to orders of contoso" in result.stderr) == (2, True)


def test_a_journal_that_cannot_be_written_is_told_before_anything_is_sent(
    here: tuple[str, str], tmp_path: Path
) -> None:
    file, journal = write_export(tmp_path, here, 2), tmp_path / "nowhere" / "journal"
    result = call("messages", "import", "orders", "--file", str(file), "--journal", str(journal), *here)
    assert (result.returncode, "nothing was sent" in result.stderr) == (2, True), result.stderr
    assert done("peek", "orders", *here) == []


def test_a_send_that_ends_early_says_how_many_were_sent(here: tuple[str, str], tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text('{"body": "a"}\n{"body": "b"}\n{"body": 1, "x": 2}\n', encoding="utf-8")
    result = call("messages", "send", "orders", "--file", str(file), "--json-lines", *here)
    assert (result.returncode, "line 3" in result.stderr) == (2, True), result.stderr
    assert "2 sent" in result.stdout


@pytest.mark.parametrize("entity", [None, "orders"])
def test_a_send_that_nobody_answers_ends(
    here: tuple[str, str], contoso: NamespaceHandle, monkeypatch: pytest.MonkeyPatch, entity: str | None
) -> None:
    monkeypatch.setattr("pairbus.cli.messages.ANSWER", 2)
    contoso.faults.set("silence", entity=entity)
    try:
        result = call("messages", "send", "orders", "x", *here)
    finally:
        contoso.faults.clear()
    assert (result.returncode, result.stdout) == (3, "orders of contoso: 0 sent\n"), result.stderr
    assert "orders: no answer within 2 s; is the namespace up" in result.stderr


@pytest.mark.parametrize(("fault", "mend"), [("disabled", "let it be enabled"), ("busy", "try again later")])
def test_a_send_that_is_not_taken_says_what_to_do(
    here: tuple[str, str], contoso: NamespaceHandle, fault: str, mend: str
) -> None:
    contoso.faults.set(fault)
    try:
        result = call("messages", "send", "orders", "x", *here)
    finally:
        contoso.faults.clear()
    assert (result.returncode, result.stdout) == (3, "orders of contoso: 0 sent\n"), result.stderr
    assert result.stderr.endswith(f"; {mend}\n")


def test_numbers_that_are_none_stay_text(here: tuple[str, str]) -> None:
    done("send", "orders", "x", "--property", "a=inf", "--property", "b=1e400", "--property", "c=1.5", *here)
    (found,) = done("peek", "orders", *here)
    told = json.dumps(found)
    assert '"inf"' in told
    assert '"1e400"' in told
    assert "1.5" in told


def test_whole_numbers_have_64_bits(here: tuple[str, str], tmp_path: Path) -> None:
    file = tmp_path / "lines"
    least, most = -(2**63), 2**63 - 1
    file.write_text(f'{{"body": "", "application_properties": {{"n": {least}}}}}\n', encoding="utf-8")
    done("send", "orders", "x", "--property", f"n={most}", *here)
    done("send", "orders", "--file", str(file), "--json-lines", *here)
    told = done("peek", "orders", "--limit", "2", *here)
    assert [one["application_properties"]["n"] for one in told] == [most, least]


def test_lines_that_are_refused_do_not_stop_the_others(here: tuple[str, str], tmp_path: Path) -> None:
    file = write_export(tmp_path, here, 3)
    done("send", "sessions", "x", "--session", "s", *here)
    more = call("messages", "export", "sessions", *here).stdout
    file.write_text(file.read_text(encoding="utf-8") + more, encoding="utf-8")
    found = done("import", "sessions", "--file", str(file), *here, code=4)
    assert (found["imported"], [one["line"] for one in found["refused"]]) == (1, [1, 2, 3])
    told = call("messages", "import", "sessions", "--file", str(file), *here)
    assert "line 2 was refused: " in told.stderr


def test_a_line_that_was_edited_is_refused(here: tuple[str, str], tmp_path: Path) -> None:
    file = write_export(tmp_path, here, 2)
    file.write_text(
        file.read_text(encoding="utf-8").replace('"body": "1"', '"body": "one"'), encoding="utf-8"
    )
    result = call("messages", "import", "orders", "--file", str(file), *here)
    assert (result.returncode, "line 2: body says another thing" in result.stderr) == (2, True)


def test_a_line_that_was_cut_off_is_told_as_that(here: tuple[str, str], tmp_path: Path) -> None:
    file = write_export(tmp_path, here, 2)
    file.write_text(file.read_text(encoding="utf-8")[:-30], encoding="utf-8")
    result = call("messages", "import", "orders", "--file", str(file), *here)
    assert (result.returncode, "line 2 is not JSON: the file was cut off there" in result.stderr) == (2, True)


FILES = {
    "LARGE": f"small\n{'x' * 300_000}\n",
    "LONG": f'{{"body": "a"}}\n\n{{"body": "b", "session_id": "{"s" * 200}"}}\n',
}


@pytest.mark.parametrize(
    ("arguments", "told", "code"),
    [
        (("ls", "missing"), "`pairbus entity ls --ready-file", 2),
        (("ls", "a/Subscriptions/b/Rules/c"), "is a rule", 2),
        (("ls", "orders", "--dead-letter", "--transfer-dead-letter"), "exclude each other", 2),
        (("import", "missing", "--file", "EXPORT"), "missing", 2),
        (("send", "orders"), "give either BODY, or --file", 2),
        (("send", "orders", "x", "--property", "a"), "write NAME=VALUE", 2),
        (("send", "missing", "x"), "missing: there is no such entity; create it, or mend the path", 2),
        (("send", "sessions", "x"), "sessions: refused: The entity 'sessions' requires sessions", 2),
        (("send", "orders", "--file", "LARGE"), "orders: line 2: too large: The message has", 2),
        (("send", "orders", "--json-lines", "--file", "LONG"), "orders: line 3: bad argument: session_id", 2),
        (("export", "orders", "--json"), "--json needs --file", 2),
        (("export", "orders", "--file", "NOWHERE"), "there is no directory ", 2),
        (("ls", "orders", "--from", str(2**63)), "is not a whole number from 0 to 9,223", 2),
        (("send", "orders", "\udcff"), "is not valid text", 2),
        (("send", "orders", "x", "--property", f"a={2**63}"), "a whole number has 64 bits", 2),
    ],
)
def test_mistakes_are_told(
    here: tuple[str, str], tmp_path: Path, arguments: tuple[str, ...], told: str, code: int
) -> None:
    if "EXPORT" in arguments:
        file = write_export(tmp_path, here, 1)
        arguments = tuple(str(file) if one == "EXPORT" else one for one in arguments)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    places = {**{name: tmp_path / name for name in FILES}, "NOWHERE": tmp_path / "nowhere" / "x"}
    arguments = tuple(str(places.get(one, one)) for one in arguments)
    result = call("messages", *arguments, *here)
    assert (result.returncode, told in result.stderr) == (code, True), result.stderr
    assert "Traceback" not in result.stderr


def test_an_import_waits_where_the_namespace_is_throttled(
    here: tuple[str, str], tmp_path: Path, contoso: NamespaceHandle
) -> None:
    file = write_export(tmp_path, here, 3)
    began = time.monotonic()
    contoso.faults.set("busy", duration=1.0)
    assert done("import", "orders", "--file", str(file), *here)["imported"] == 3
    assert time.monotonic() - began >= 1.0


def test_a_credential_that_gives_no_token_is_no_wrong_key() -> None:
    address = SideAddress(host="contoso.servicebus.windows.net", connection_string=None)
    place = MessagePlace(ChosenNamespace(name="contoso", address=address, certificate=None), "orders")
    told = in_words(TokenMissing(conditions.AUTH_FAILED, f"{NO_TOKEN}: LookupError: none."), place)
    assert type(told) is UnreachableError
    assert str(told) == f"orders of contoso: {NO_TOKEN}: LookupError: none; {SIGN_IN}"
