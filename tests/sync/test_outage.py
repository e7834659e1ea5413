"""An outage as an application on threads sees it: what is sent, what is told, what is logged and shown."""

import json
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from azure.servicebus import ServiceBusMessage

from pairbus import EntityState, StateChange
from pairbus.client.status import PairStatus
from tests.waiting import wait_until

from .conftest import BACKLOG, FAST, PATIENT, QUEUES, SOON, Namespaces

H, S, F = EntityState.HEALTHY, EntityState.SUSPECT, EntityState.FAILED_OVER


class Listener:
    """An application's callback; it remembers its threads, and may be slow or fail."""

    def __init__(self) -> None:
        self.changes: list[StateChange] = []
        self.threads: set[str] = set()

    def __call__(self, change: StateChange) -> None:
        self.threads.add(threading.current_thread().name)
        self.changes.append(change)

    @property
    def steps(self) -> list[tuple[EntityState, EntityState]]:
        return [(change.old, change.new) for change in self.changes]


def state_of(status: PairStatus, path: str = "orders") -> EntityState:
    return next(entity.health.state for entity in status.entities if entity.health.path == path)


def test_an_outage_from_beginning_to_end(namespaces: Namespaces, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="pairbus.client")
    listener = Listener()
    began = time.time()
    with namespaces.client(options=FAST, on_state_change=listener) as client:
        sender = client.get_queue_sender("orders")
        sender.send_messages(ServiceBusMessage("before"))
        assert state_of(client.status()) is H

        namespaces.primary.faults.set("refuse")
        sender.send_messages(ServiceBusMessage("during", message_id="kept"))
        assert namespaces.backlog() == 1
        during = client.status()
        assert state_of(during) is F

        namespaces.primary.faults.clear()
        wait_until(lambda: state_of(client.status()) is H)
        sender.send_messages(ServiceBusMessage("after"))
        wait_until(lambda: len(listener.changes) == 3)
    assert namespaces.receive(2) == ["before", "after"]

    assert listener.steps == [(H, S), (S, F), (F, H)]
    assert all(change.path == "orders" and change.reason for change in listener.changes)
    assert [began, *(change.at for change in listener.changes)] == sorted(
        [began, *(change.at for change in listener.changes)]
    )
    assert len(listener.threads) == 1
    assert listener.threads.isdisjoint({threading.current_thread().name, "pairbus-client"})
    check_log(caplog)
    check_status(during)


def check_log(caplog: pytest.LogCaptureFixture) -> None:
    """One line a change, which programs can read too."""
    told = [record for record in caplog.records if "new" in getattr(record, "fields", {})]
    assert [(record.levelname, record.fields) for record in told] == [  # type: ignore[attr-defined]
        ("WARNING", {"path": "orders", "old": "healthy", "new": "suspect"}),
        ("WARNING", {"path": "orders", "old": "suspect", "new": "failed_over"}),
        ("INFO", {"path": "orders", "old": "failed_over", "new": "healthy"}),
    ]
    assert all("orders: " in record.getMessage() for record in told)


def check_status(status: PairStatus) -> None:
    """The picture that was taken while failed over, typed and as JSON."""
    (entity,) = status.entities
    assert entity.sent["primary"]["ok"] == 1
    assert entity.sent["backlog"]["ok"] == 1
    assert len(status.rotation) == QUEUES
    shown = json.loads(status.to_json())
    assert shown["primary_name"] == "contoso"
    assert shown["entities"][0]["health"]["state"] == "failed_over"
    assert [queue["name"] for queue in shown["rotation"]] == BACKLOG
    assert "SharedAccessKey" not in status.to_json()


def test_threads_that_send_through_a_silent_outage_lose_nothing(namespaces: Namespaces) -> None:
    """The peer takes bytes and says nothing: the SDK's own synchronous sender would wait for minutes."""
    stop = threading.Event()
    with namespaces.client(options=FAST) as client:
        sender = client.get_queue_sender("orders")
        sender.send_messages(ServiceBusMessage("first", message_id="first"))

        def work(number: int) -> list[str]:
            sent: list[str] = []
            while not stop.is_set():
                name = f"{number}/{len(sent)}"
                sender.send_messages(ServiceBusMessage(name, message_id=name))
                sent.append(name)
                stop.wait(0.01)
            return sent

        with ThreadPoolExecutor(8) as pool:
            working = [pool.submit(work, number) for number in range(8)]
            namespaces.primary.faults.set("silence")
            wait_until(lambda: state_of(client.status()) is F)
            wait_until(lambda: namespaces.backlog() >= 16)
            stop.set()
            names = ["first", *(name for done in working for name in done.result(SOON))]
    # The messages of attempts that were abandoned may be at both places, under one id.
    namespaces.primary.faults.clear()
    assert set(names) == namespaces.take_ids()


def test_a_callback_that_fails_or_is_slow_disturbs_nobody(
    namespaces: Namespaces, caplog: pytest.LogCaptureFixture
) -> None:
    told, allowed = threading.Event(), threading.Event()

    def callback(change: StateChange) -> None:
        told.set()
        assert allowed.wait(SOON)
        raise LookupError("the pager is off")

    with namespaces.client(on_state_change=callback) as client:
        client.fail_over("orders")
        assert told.wait(SOON)
        client.get_queue_sender("orders").send_messages(ServiceBusMessage("x"))
        assert namespaces.backlog() == 1
        allowed.set()
    assert "the pager is off" in caplog.text


def test_a_callback_may_use_its_client(namespaces: Namespaces) -> None:
    seen: list[EntityState] = []
    healed = threading.Event()

    def callback(change: StateChange) -> None:
        seen.append(state_of(client.status()))
        if change.new is F:
            client.mark_path_healthy("orders")
        else:
            healed.set()

    client = namespaces.client(on_state_change=callback)
    client.fail_over("orders")
    assert healed.wait(SOON)
    assert seen == [F, H]


def test_a_callback_may_close_its_client(namespaces: Namespaces) -> None:
    taken: list[float] = []
    closed = threading.Event()

    def callback(change: StateChange) -> None:
        began = time.monotonic()
        client.close()
        taken.append(time.monotonic() - began)
        closed.set()

    client = namespaces.client(on_state_change=callback)
    client.fail_over("orders")
    assert closed.wait(SOON)
    assert taken[0] < 15.0  # not by its limit of 20: closing does not wait for the callback that waits for it


def test_failures_are_raised_at_once_where_that_is_wanted(namespaces: Namespaces) -> None:
    options = replace(PATIENT, on_suspect="raise")
    with namespaces.client(options=options) as client:
        sender = client.get_queue_sender("orders")
        sender.send_messages(ServiceBusMessage("before"))
        namespaces.primary.faults.set("refuse")
        with pytest.raises(Exception, match=r"(?i)connect|refused|link") as raised:
            sender.send_messages(ServiceBusMessage("during"))
        assert "servicebus" in type(raised.value).__module__
        assert state_of(client.status()) is S


def test_the_first_send_sets_the_pair_up(namespaces: Namespaces) -> None:
    for queue in BACKLOG:
        namespaces.secondary.delete_queue(queue)
    client = namespaces.client(options=FAST)
    sender = client.get_queue_sender("orders")
    sender.send_messages(ServiceBusMessage("before"))
    wait_until(lambda: client.status().provisioning == "ready")
    namespaces.primary.faults.set("refuse")
    sender.send_messages(ServiceBusMessage("during"))
    assert namespaces.backlog() == 1
