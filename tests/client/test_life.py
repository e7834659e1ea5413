"""How a client begins and lives: what it refuses, the first success, restarts in an outage, what it tells."""

import asyncio
import errno
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus.exceptions import ServiceBusConnectionError, ServiceBusError

from pairbus.aio import PairedServiceBusClient
from pairbus.broker import Broker
from pairbus.client.observers.observer import Observer
from pairbus.errors import ConfigurationError
from pairbus.ledger.segment import closed_segments, read_segment
from pairbus.options import EntityState, SendAvailabilityOptions, StateChange
from pairbus.pairing.errors import SamePairError
from pairbus.testing import ManualTimers

from .outage import hanging_disk
from .scene import BACKLOG, HELD_BACK, Scene, eventually, text


@pytest.fixture
def elsewhere(still: Scene, hold_port: Callable[[], int]) -> str:
    """A connection string whose host has a typing error: nobody listens there, and the name differs."""
    string = still.primary.connection_string.replace(str(still.primary.port), str(hold_port()))
    return string.replace("Namespace=contoso", "Namespace=contso")


def test_a_pair_needs_two_namespaces(broker: Broker) -> None:
    string = broker["contoso"].connection_string
    with pytest.raises(SamePairError):
        PairedServiceBusClient.from_connection_strings(string, string)


def test_a_spool_without_a_directory_is_refused(broker: Broker) -> None:
    with pytest.raises(ConfigurationError, match="state_dir"):
        PairedServiceBusClient.from_connection_strings(
            broker["contoso"].connection_string,
            broker["contoso-dr"].connection_string,
            options=SendAvailabilityOptions(enable_spool=True),
        )


def test_connection_strings_of_one_entity(broker: Broker) -> None:
    primary, secondary = broker["contoso"].connection_string, broker["contoso-dr"].connection_string
    with pytest.raises(ConfigurationError, match="EntityPath"):
        PairedServiceBusClient.from_connection_strings(primary, secondary + ";EntityPath=orders")
    client = PairedServiceBusClient.from_connection_strings(primary + ";EntityPath=orders", secondary)
    client.get_queue_sender("Orders")
    with pytest.raises(ValueError, match="orders"):
        client.get_queue_sender("invoices")
    with pytest.raises(ConfigurationError, match="enable_syphon"):
        PairedServiceBusClient.from_connection_strings(
            primary + ";EntityPath=orders", secondary, options=SendAvailabilityOptions(enable_syphon=True)
        )


def test_making_a_client_needs_no_event_loop_and_does_no_io() -> None:
    client = PairedServiceBusClient(
        "contoso.servicebus.windows.net", object(), "contoso-dr.servicebus.windows.net", object()
    )
    sender = client.get_queue_sender("orders", client_identifier="mine")
    assert sender.fully_qualified_namespace == "contoso.servicebus.windows.net"
    assert sender.entity_name == "orders"
    assert sender.client_identifier == "mine"
    assert str(sender) == "Sender client id: mine, entity: orders"


async def test_nothing_shows_a_key(scene: Scene) -> None:
    client = scene.client()
    await client.start()
    key = scene.primary.connection_string.partition("SharedAccessKey=")[2].partition(";")[0]
    shown = [repr(client.pair.primary), client.status().to_json(), repr(client), repr(client.pair)]
    assert not any(key in text for text in shown)


async def test_a_mistyped_host_raises(still: Scene, elsewhere: str) -> None:
    sender = still.sender(primary=elsewhere)
    with pytest.raises(ServiceBusConnectionError) as caught:
        await sender.send_messages(text("1"))
    assert str(caught.value).count("is its address right?") == 1, "how to mend it"
    assert still.diary.changes == []


async def test_a_mistyped_host_raises_though_the_client_made_its_own_backlog_queues(
    still: Scene, elsewhere: str
) -> None:
    """That the queues are there proves nothing then: nobody has paired before."""
    client = still.client(primary=elsewhere)
    await client.start()
    with pytest.raises(ServiceBusConnectionError):
        await client.get_queue_sender("orders").send_messages(text("1"))
    await eventually(lambda: client.status().provisioning == "ready")
    with pytest.raises(ServiceBusConnectionError):
        await client.get_queue_sender("orders").send_messages(text("1"))
    assert still.diary.changes == []


async def test_a_pair_begins_while_its_primary_is_silent(still: Scene, manual_timers: ManualTimers) -> None:
    """Whoever is deployed for the first time in an outage makes the backlog queues, and can send."""
    for queue in BACKLOG:
        still.secondary.delete_queue(queue)
    still.primary.faults.set("silence")
    client = still.client(failover_interval=5.0, send_timeout=60.0)
    await client.start()
    await eventually(lambda: client.status().provisioning == "ready")
    sending = still.begin(client.get_queue_sender("orders").send_messages(text("1")))
    await still.on_the_wire()
    await manual_timers.advance(5.0)
    await sending
    assert client.status().entities[0].sent["backlog"]["ok"] == 1
    (warning,) = client.status().warnings
    assert "has not answered this client once: if it is up, is this its address?" in warning
    still.primary.faults.clear()
    client.mark_path_healthy("orders")
    await client.get_queue_sender("orders").send_messages(text("2"))
    assert client.status().warnings == ()


async def test_a_process_that_was_stopped_listens_before_it_fails_over(
    still: Scene, manual_timers: ManualTimers
) -> None:
    sender = still.sender(failover_interval=60.0, send_timeout=20.0)
    await sender.send_messages(text("1"))
    still.primary.faults.set("delay", seconds=HELD_BACK)
    sending = still.begin(sender.send_messages(text("2")))
    await still.on_the_wire()
    manual_timers._now += 600.0  # nothing of the client has run since
    await manual_timers.advance(0.0)
    still.give_answers()
    await sending
    assert still.ids() == ["1", "2"]
    assert still.diary.changes == []


async def test_the_first_send_sets_the_pair_up(still: Scene, manual_timers: ManualTimers) -> None:
    """Nobody has called `start` or opened a sender: an outage must find backlog queues all the same."""
    for queue in BACKLOG:
        still.secondary.delete_queue(queue)
    sender = still.sender(failover_interval=30.0)
    await sender.send_messages(text("before"))
    await eventually(lambda: sender._client.status().provisioning == "ready")
    still.primary.faults.set("refuse")
    sending = still.begin(sender.send_messages(text("during")))
    await eventually(lambda: bool(still.diary.changes))
    await manual_timers.advance(30.0)
    await sending
    assert still.backlog_ids() == ["during"]


@pytest.mark.parametrize("is_started", [True, False], ids=["provisioning", "not started"])
async def test_a_client_that_starts_in_an_outage_sends(
    still: Scene, manual_timers: ManualTimers, is_started: bool
) -> None:
    """Somebody has paired before: the backlog queues are there."""
    still.primary.faults.set("refuse")
    client = still.client(failover_interval=30.0)
    if is_started:
        await client.start()
    sending = still.begin(client.get_queue_sender("orders").send_messages(text("1")))
    await eventually(lambda: bool(still.diary.changes))
    await manual_timers.advance(30.0)
    await sending
    assert still.backlog_ids() == ["1"]
    assert still.diary.states == ["suspect", "failed_over"]


async def test_a_client_that_is_started_again_knows_the_primary_of_its_predecessor(
    still: Scene, tmp_path: Path, elsewhere: str
) -> None:
    """Neither side answers, and yet it is no mistyped host: the spool may take the message."""
    await still.sender(state_dir=tmp_path).send_messages(text("1"))
    await eventually((tmp_path / "primary-reached").exists)
    still.primary.faults.set("refuse")
    still.secondary.faults.set("refuse")
    settings: dict[str, Any] = {"state_dir": tmp_path, "enable_spool": True, "failover_interval": 0.0}
    later = still.client(**settings)
    await later.get_queue_sender("orders").send_messages(text("2"))
    assert later.status().entities[0].sent["spool"]["ok"] == 1
    elsewhere_now = still.client(primary=elsewhere, **settings)
    with pytest.raises(ServiceBusConnectionError):
        await elsewhere_now.get_queue_sender("orders").send_messages(text("3"))


async def test_a_failover_of_the_predecessor_shows_that_the_names_are_right(
    still: Scene, tmp_path: Path
) -> None:
    """It has never reached the primary, but a backlog queue that somebody else had made."""
    still.primary.faults.set("refuse")
    settings: dict[str, Any] = {"state_dir": tmp_path, "enable_spool": True, "failover_interval": 0.0}
    await still.sender(**settings).send_messages(text("1"))
    assert still.backlog_ids() == ["1"]
    await eventually((tmp_path / "primary-reached").exists)
    still.secondary.faults.set("refuse")
    later = still.client(**settings)
    await later.get_queue_sender("orders").send_messages(text("2"))
    assert later.status().entities[0].sent["spool"]["ok"] == 1


async def test_what_the_sdk_refuses_to_make_is_the_callers_to_see(still: Scene) -> None:
    sender = still.sender(transport="sdk", sdk_options={"transport_type": "no such transport"})
    with pytest.raises(AttributeError):
        await sender.send_messages(text("1"))
    await asyncio.sleep(0)
    assert still.diary.changes == []


async def test_a_client_with_the_send_claim_alone_sends_in_an_outage(still: Scene) -> None:
    still.primary.faults.set("refuse")
    sender = still.sender(
        primary=still.primary.policies["send"],
        secondary=still.secondary.policies["send"],
        failover_interval=0.0,
    )
    async with sender._client as client:
        await sender.send_messages(text("1"))
        await eventually(lambda: client.status().provisioning == "not_permitted")
        assert still.backlog_ids() == ["1"]


async def test_many_clients_of_one_pair_do_not_mind_each_other(still: Scene) -> None:
    senders = [still.sender(failover_interval=0.0) for _ in range(5)]
    await asyncio.gather(*(sender.send_messages(text(f"a{at}")) for at, sender in enumerate(senders)))
    still.primary.faults.set("refuse")
    await asyncio.gather(*(sender.send_messages(text(f"b{at}")) for at, sender in enumerate(senders)))
    late = still.sender(failover_interval=0.0)  # scaled out in the middle of it
    await late.send_messages(text("b5"))
    assert sorted(still.ids()) == [f"a{at}" for at in range(5)]
    assert sorted(still.backlog_ids()) == [f"b{at}" for at in range(6)]


async def test_backlog_queues_are_made_in_the_background(broker: Broker) -> None:
    scene = Scene(broker)
    for queue in BACKLOG:
        scene.secondary.delete_queue(queue)
    reports: list[Any] = []

    class Listener(Observer):
        def provisioned(self, report: Any) -> None:
            reports.append(report)

    async with scene.client(observers=[Listener()]) as client:
        await eventually(lambda: client.status().provisioning == "ready")
        assert [queue.name for queue in reports[-1].queues if queue.created] == [*BACKLOG]
        client.fail_over("orders")
        await client.get_queue_sender("orders").send_messages(text("1"))
        assert scene.backlog_ids() == ["1"]


async def test_no_send_waits_for_a_secondary_that_is_down(broker: Broker) -> None:
    scene = Scene(broker)
    scene.secondary.faults.set("silence")
    async with scene.client() as client:
        await client.get_queue_sender("orders").send_messages(text("1"))
        assert scene.ids() == ["1"]
        assert client.status().provisioning == "pending"
    assert client.get_queue_sender("orders").entity_name == "orders"


async def test_redirect_records_are_kept_and_the_status_is_written(still: Scene, tmp_path: Path) -> None:
    async with still.client(state_dir=tmp_path) as client:
        sender = client.get_queue_sender("orders")
        await sender.send_messages(text("1"))
        await eventually(lambda: any((tmp_path / "status").glob("*.json")))
        client.fail_over("orders")
        await sender.send_messages([text("2", session_id="s"), text("3")])
    rows = [
        json.loads(line)
        for segment in (tmp_path / "records").rglob("*.jsonl")
        for line in segment.read_text(encoding="utf-8").splitlines()
        if "message_id" in line
    ]
    assert [(row["message_id"], row["path"], row["session_id"]) for row in rows] == [
        ("2", "orders", "s"),
        ("3", "orders", None),
    ]
    assert {row["queue"] for row in rows} <= {*BACKLOG}
    assert not any((tmp_path / "status").glob("*.json"))


async def test_a_send_to_the_backlog_without_an_answer_is_on_record(
    still: Scene, manual_timers: ManualTimers, tmp_path: Path
) -> None:
    async with still.client(state_dir=tmp_path) as client:
        sender = client.get_queue_sender("orders")
        client.fail_over("orders")
        await sender.send_messages(text("1"))
        (first,) = [queue for queue in BACKLOG if still.secondary.message_count(queue)]
        still.secondary.faults.set("delay", entity=first, seconds=60)  # it is taken, and nobody is told
        sending = still.begin(sender.send_messages(text("2")))
        await still.on_the_way_to_the_backlog()
        await manual_timers.advance(10.0)
        await sending
        still.secondary.faults.clear()
    rows = [
        row for path in closed_segments(tmp_path / "records", "redirects") for row in read_segment(path).rows
    ]
    told = [(row["message_id"], row["outcome"], row["queue"] == first) for row in rows]
    assert sorted(told, key=str) == [("1", None, True), ("2", "unknown", True), ("2", None, False)]


async def test_sends_to_the_primary_without_an_answer_are_on_record_with_their_redirect(
    still: Scene, manual_timers: ManualTimers, tmp_path: Path
) -> None:
    """So that a verdict can say how often at most a message has arrived."""
    async with still.client(state_dir=tmp_path, failover_interval=15.0, retry_delay=1.0) as client:
        sender = client.get_queue_sender("orders")
        await sender.send_messages(text("0"))
        still.primary.faults.set("delay", seconds=60)  # it is taken, and nobody is told
        sending = still.begin(sender.send_messages([text("1"), text("2")]))
        await still.on_the_wire()
        await manual_timers.advance(10.0)  # the time of an attempt is over
        await eventually(lambda: still.diary.outcomes("primary") == ["ok", "unknown"])
        await manual_timers.advance(1.0)
        await eventually(lambda: still.primary.message_count("orders") == 5)
        await manual_timers.advance(4.0)  # and that of the entity
        await sending
        still.primary.faults.clear()
    rows = [
        row for path in closed_segments(tmp_path / "records", "redirects") for row in read_segment(path).rows
    ]
    told = sorted((row["message_id"], row["outcome"] or "taken") for row in rows)
    assert told == [(name, how) for name in "12" for how in ("taken", "unanswered", "unanswered")]
    assert {row["queue"] for row in rows} < set(BACKLOG)


async def test_a_disk_that_hangs_holds_up_no_send_that_the_backlog_has_taken(
    still: Scene, manual_timers: ManualTimers, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sender = still.sender(state_dir=tmp_path, records_sync="always")
    sender._client.fail_over("orders")
    await sender.send_messages(text("1"))
    with hanging_disk() as waiting:
        sending = still.begin(sender.send_messages(text("2")))
        await eventually(lambda: "pairbus-redirects" in waiting)
        await manual_timers.advance(10.0)
        await sending
        sending = still.begin(sender.send_messages(text("3")))
        while not sending.done():
            await still.rest(at_most=30.0)
            await manual_timers.advance(0.1)
        await sending
        assert caplog.text.count("redirect records wait for it") == 1
    await sender._client.close()
    rows = [
        row for path in closed_segments(tmp_path / "records", "redirects") for row in read_segment(path).rows
    ]
    assert [row["message_id"] for row in rows] == ["1", "2", "3"], "they are written when it answers"


async def test_records_that_cannot_be_written_do_not_fail_a_send(
    still: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    sender = still.sender()

    class Broken:
        lost = 0

        def begin(self) -> None:
            pass

        def append_at_once(self, rows: Any) -> bool:
            raise RuntimeError("no")

        async def append(self, rows: Any) -> None:
            raise RuntimeError("no")

        async def close(self) -> None:
            pass

    sender._client.pair.backlog._redirects._records = Broken()
    sender._client.fail_over("orders")
    await sender.send_messages(text("1"))
    assert still.backlog_ids() == ["1"]
    assert "redirect records were not written" in caplog.text


@pytest.mark.parametrize("mistake", [RuntimeError, SystemExit])
async def test_changes_are_told_once_in_order_on_a_thread_of_their_own(
    still: Scene, caplog: pytest.LogCaptureFixture, mistake: type[BaseException]
) -> None:
    told: list[tuple[StateChange, threading.Thread]] = []

    def callback(change: StateChange) -> None:
        told.append((change, threading.current_thread()))
        raise mistake("the application's own mistake")

    client = still.client(on_state_change=callback)
    await client.start()
    caplog.set_level(logging.INFO, "pairbus.client")
    client.fail_over("orders", reason="drill")
    client.mark_path_healthy("orders")
    await eventually(lambda: len(told) == 2)
    assert [change for change, _ in told] == still.diary.changes
    assert {thread.name for _, thread in told} == {"pairbus-state-changes"}
    assert abs(told[0][0].at - time.time()) < 60
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("pairbus.client.")]
    assert [line for line in lines if line.startswith("orders:")] == [
        "orders: healthy -> failed_over (drill)",
        "orders: failed_over -> healthy (marked healthy by hand)",
    ]
    assert "on_state_change failed" in caplog.text


async def _tell(change: StateChange) -> None: ...


class _Teller:
    async def __call__(self, change: StateChange) -> None: ...


@pytest.mark.parametrize("callback", [_tell, partial(_tell), _Teller(), "tell"])
def test_a_callback_that_nobody_could_call_is_refused(broker: Broker, callback: Any) -> None:
    strings = [broker[name].connection_string for name in ("contoso", "contoso-dr")]
    with pytest.raises(ConfigurationError, match="on_state_change"):
        PairedServiceBusClient.from_connection_strings(*strings, on_state_change=callback)


async def test_the_status_tells_it_all(still: Scene) -> None:
    sender = still.sender()
    await sender.send_messages([text("1"), text("2")])
    sender._client.fail_over("orders", reason="drill")
    await sender.send_messages(text("3"))
    status = sender._client.status()
    told = json.loads(status.to_json())
    [entity] = told["entities"]
    assert entity["health"]["state"] == "failed_over"
    assert entity["health"]["reason"] == "drill"
    assert entity["health"]["next_ping_at"] == pytest.approx(time.time() + 57, abs=10)
    assert entity["sent"]["primary"] == {"ok": 2, "failed": 0, "unknown": 0}
    assert entity["sent"]["backlog"] == {"ok": 1, "failed": 0, "unknown": 0}
    assert told["had_success"] is True
    assert told["primary_name"] == "contoso"
    assert told["backlog_limit"] == 262144
    assert [queue["name"] for queue in told["rotation"]] == [*BACKLOG]
    assert status.entities[0].health.state is EntityState.FAILED_OVER


async def test_an_observer_that_fails_stops_nobody(still: Scene, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Observer):
        def sent(self, sending: Any) -> None:
            raise RuntimeError("no")

    sender = still.sender(observers=[Broken()])
    await sender.send_messages(text("1"))
    assert still.ids() == ["1"]
    assert still.diary.outcomes("primary") == ["ok"]
    assert "an observer failed" in caplog.text


class _Meddler(Observer):
    """Swallows what is raised, or raises by itself."""

    @contextmanager
    def around(self, undertaking: Any) -> Iterator[None]:
        try:
            yield
        except ServiceBusError:
            return
        raise RuntimeError("no")


async def test_an_observer_around_a_call_changes_nothing_of_its_end(
    still: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    client = still.client(observers=[_Meddler()])
    await client.get_queue_sender("orders").send_messages(text("1"))
    assert still.ids() == ["1"]
    assert "an observer failed" in caplog.text
    with pytest.raises(ServiceBusError):
        await client.get_queue_sender("nowhere").send_messages(text("2"))


async def test_a_state_directory_that_cannot_be_one_is_told_at_the_start(
    still: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_text("in the way")
    (tmp_path / "link").symlink_to("nowhere")
    for below in ("records", "status", "spool"):
        (tmp_path / f"no-{below}").mkdir()
        (tmp_path / f"no-{below}" / below).write_text("in the way")
    spoilt = tmp_path.glob("no-*")
    for place in (file, file / "below", tmp_path / "link", *spoilt):
        client = still.client(state_dir=place, enable_spool=True)
        with pytest.raises(ConfigurationError, match="no directory"):
            await client.start()
        with pytest.raises(ConfigurationError, match="no directory"):
            await client.get_queue_sender("orders").send_messages(text("1"))
    monkeypatch.setattr("os.access", lambda *_: False)  # as to a user without rights, which root is not
    with pytest.raises(ConfigurationError, match="may not write"):
        await still.client(state_dir=tmp_path / "closed").start()
    assert still.ids() == []


async def test_a_full_disk_is_told_at_the_start_and_stops_nothing(
    still: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pairbus.client.aio.try_directory", fail)
    client = still.client(state_dir=tmp_path)
    await client.get_queue_sender("orders").send_messages(text("1"))
    await eventually(lambda: any("No space left" in one for one in client.status().warnings))
    assert still.ids() == ["1"]
