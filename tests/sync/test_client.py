"""The client for threads on real namespaces: it sends as the SDK's does."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import assert_type

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiver
from azure.servicebus.exceptions import MessageSizeExceededError

import pairbus
from pairbus import PairedSender, PairedServiceBusClient
from pairbus.broker.engine.settings import QueueSettings, SubscriptionSettings
from pairbus.client.errors import ClientClosedError
from pairbus.client.observers.observer import Observer, Sending
from pairbus.client.sending.message import PairedMessageBatch
from pairbus.client.status import PairStatus
from pairbus.pairing.errors import PairFaultedError, SamePairError
from pairbus.portal import PortalReentered

from .conftest import PATIENT, SOON, Namespaces


def threads_of_clients() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "pairbus-client"]


def test_messages_lists_and_batches_arrive_in_order(namespaces: Namespaces) -> None:
    with namespaces.client() as client, client.get_queue_sender("orders") as sender:
        assert_type(sender, PairedSender)
        sender.send_messages(ServiceBusMessage("one"))
        sender.send_messages([ServiceBusMessage("two"), ServiceBusMessage("three")])
        batch = sender.create_message_batch()
        assert_type(batch, PairedMessageBatch)
        batch.add_message(ServiceBusMessage("four"))
        sender.send_messages(batch, timeout=600.0)  # of the hurried loop
        sender.send_messages([])
        assert namespaces.receive(4) == ["one", "two", "three", "four"]


def test_topics_and_receivers_are_those_of_the_primary(namespaces: Namespaces) -> None:
    with namespaces.client() as client:
        client.get_topic_sender("news").send_messages(ServiceBusMessage("extra"))
        with client.get_subscription_receiver("news", "all", max_wait_time=5) as receiver:
            assert_type(receiver, ServiceBusReceiver)
            received = next(iter(receiver))
            assert str(received) == "extra"
            receiver.complete_message(received)
        client.get_queue_sender("orders").send_messages(ServiceBusMessage("first"))
        with client.get_queue_receiver("orders", receive_mode="receiveanddelete", prefetch_count=1) as plain:
            assert [str(message) for message in plain.receive_messages(max_wait_time=5)] == ["first"]


def test_sessions_are_listed_as_the_sdk_lists_them(namespaces: Namespaces) -> None:
    namespaces.primary.create_queue("grouped", QueueSettings(requires_session=True))
    with namespaces.client() as client:
        client.get_queue_sender("grouped").send_messages(ServiceBusMessage("a", session_id="blue"))
        assert list(client.list_queue_sessions("grouped")) == ["blue"]
        namespaces.primary.create_subscription(
            "news", "grouped", settings=SubscriptionSettings(requires_session=True)
        )
        client.get_topic_sender("news").send_messages(ServiceBusMessage("a", session_id="red"))
        assert list(client.list_subscription_sessions("news", "grouped")) == ["red"]


def test_scheduled_messages_can_be_cancelled(namespaces: Namespaces) -> None:
    with namespaces.client() as client, client.get_queue_sender("orders") as sender:
        later = datetime.now(UTC) + timedelta(hours=1)
        numbers = sender.schedule_messages([ServiceBusMessage("a"), ServiceBusMessage("b")], later)
        assert len(numbers) == 2
        assert all(number > 0 for number in numbers)
        sender.cancel_scheduled_messages(numbers)
        assert namespaces.primary.message_count("orders") == 0


def test_messages_of_a_generator_are_made_on_the_thread_of_the_caller(namespaces: Namespaces) -> None:
    with namespaces.client() as client, client.get_queue_sender("orders") as sender:

        def generate(*names: str) -> Iterator[ServiceBusMessage]:
            for name in names:
                assert client.status().primary_name == "contoso"  # which the loop has to tell
                made_on.append(threading.get_ident())
                yield ServiceBusMessage(name)

        made_on: list[int] = []
        later = datetime.now(UTC) + timedelta(hours=1)
        sender.send_messages(generate("one", "two"))
        numbers = sender.schedule_messages(generate("three"), later)
        sender.cancel_scheduled_messages(number for number in numbers if client.status())  # type: ignore[arg-type]
        assert made_on == [threading.get_ident()] * 3
        assert namespaces.receive(2) == ["one", "two"]
        assert namespaces.primary.message_count("orders") == 0


def test_a_call_that_is_refused_takes_nothing_of_a_generator(namespaces: Namespaces) -> None:
    """Given to another sender then, it would have nothing left to send, and nobody would be told."""
    left = (ServiceBusMessage(name) for name in ("one", "two"))
    with namespaces.client() as client:
        sender = client.get_queue_sender("orders")
        with pytest.raises(ValueError, match="timeout"):
            sender.send_messages(left, timeout=-1.0)
        sender.close()
        with pytest.raises(ClientClosedError):
            sender.send_messages(left)
        another = client.get_queue_sender("orders")
    with pytest.raises(ClientClosedError):
        another.schedule_messages(left, datetime.now(UTC))
    assert len(list(left)) == 2


def test_errors_come_through_as_the_sdk_raises_them(namespaces: Namespaces) -> None:
    with namespaces.client() as client:
        with pytest.raises(MessageSizeExceededError):
            client.get_queue_sender("orders").send_messages(ServiceBusMessage(b"x" * 300_000))
        with pytest.raises(ValueError, match="timeout"):
            client.get_queue_sender("orders").send_messages(ServiceBusMessage("x"), timeout=0)
        client.fault("the operator said so")
        with pytest.raises(PairFaultedError, match="the operator said so"):
            client.get_queue_sender("orders").send_messages(ServiceBusMessage("x"))


def test_wrong_input_is_refused_when_the_client_is_made(namespaces: Namespaces) -> None:
    with pytest.raises(SamePairError):
        PairedServiceBusClient.from_connection_strings(*[namespaces.primary.connection_string] * 2)


def test_a_sender_tells_of_itself(namespaces: Namespaces) -> None:
    sender = namespaces.client().get_queue_sender("orders", client_identifier="till-7")
    assert sender.fully_qualified_namespace == "127.0.0.1"
    assert (sender.entity_name, sender.client_identifier) == ("orders", "till-7")
    assert "till-7" in str(sender)


def test_the_state_can_be_seen_and_forced(namespaces: Namespaces) -> None:
    with namespaces.client() as client, client.get_queue_sender("orders") as sender:
        client.fail_over("orders", reason="a drill")
        sender.send_messages(ServiceBusMessage("kept"))
        status = client.status()
        assert_type(status, PairStatus)
        assert status.entities[0].health.reason == "a drill"
        assert (namespaces.backlog(), namespaces.primary.message_count("orders")) == (1, 0)
        client.mark_path_healthy("orders")
        sender.send_messages(ServiceBusMessage("sent"))
        assert namespaces.receive(1) == ["sent"]


def test_making_a_client_starts_nothing_and_closing_it_ends_all(namespaces: Namespaces) -> None:
    client = namespaces.client()
    sender = client.get_queue_sender("orders")
    assert threads_of_clients() == []
    sender.send_messages(ServiceBusMessage("x"))
    assert len(threads_of_clients()) == 1
    client.close()
    assert threads_of_clients() == []
    client.close()
    sender.close()


def test_a_closed_client_says_so(namespaces: Namespaces) -> None:
    with namespaces.client() as client, client.get_queue_sender("orders") as sender:
        client.close()
        for use in (
            client.start,
            lambda: client.get_queue_receiver("orders"),
            lambda: sender.send_messages(ServiceBusMessage("x")),
            lambda: sender.create_message_batch(),
        ):
            with pytest.raises(ValueError, match="has been closed"):
                use()
        told = client.status()
        assert set(told.sides.values()) == {"closed"}
    unused = namespaces.client()
    unused.close()
    with pytest.raises(ValueError, match="has been closed"):
        unused.status()


def test_a_closed_sender_says_so_and_the_others_go_on(namespaces: Namespaces) -> None:
    with namespaces.client() as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("one"))
        with pytest.raises(ValueError, match="sender has been closed"):
            sender.send_messages(ServiceBusMessage("x"))
        client.get_queue_sender("orders").send_messages(ServiceBusMessage("two"))
    assert namespaces.receive(2) == ["one", "two"]


def test_a_client_that_is_dropped_takes_its_thread_with_it(namespaces: Namespaces) -> None:
    client = PairedServiceBusClient.from_connection_strings(*namespaces.strings, options=PATIENT)
    sender = client.get_queue_sender("orders")
    del client
    sender.send_messages(ServiceBusMessage("a sender keeps its client"))
    (thread,) = threads_of_clients()
    del sender
    thread.join(SOON)
    assert not thread.is_alive()


def test_several_clients_of_a_process_do_not_disturb_each_other(namespaces: Namespaces) -> None:
    with namespaces.client() as one, namespaces.client() as other:
        assert len(threads_of_clients()) == 2
        one.get_queue_sender("orders").send_messages(ServiceBusMessage("1"))
        one.close()
        other.get_queue_sender("orders").send_messages(ServiceBusMessage("2"))
    assert namespaces.receive(2) == ["1", "2"]


class Meddler(Observer):
    """An observer that makes a mistake."""

    def __init__(self) -> None:
        self.uses: list[Callable[[], None]] = []
        self.errors: list[PortalReentered] = []

    def sent(self, sending: Sending) -> None:
        for use in self.uses:
            try:
                use()
            except PortalReentered as error:
                self.errors.append(error)


def test_an_observer_that_calls_its_client_is_told_instead_of_stuck(namespaces: Namespaces) -> None:
    meddler = Meddler()
    with namespaces.client(observers=[meddler]) as client:
        sender = client.get_queue_sender("orders")
        meddler.uses = [lambda: sender.send_messages(ServiceBusMessage("again")), client.close]
        sender.send_messages(ServiceBusMessage("one"))
        assert len(meddler.errors) == 2
        sender.send_messages(ServiceBusMessage("two"))
    assert namespaces.receive(2) == ["one", "two"]


THREADS = 16
EACH = 25


def test_sixteen_threads_share_one_client(namespaces: Namespaces) -> None:
    namespaces.primary.create_queue("bills")
    start = threading.Barrier(THREADS)
    with namespaces.client() as client:
        shared = client.get_queue_sender("orders")

        def work(number: int) -> None:
            own = client.get_queue_sender("Bills" if number % 2 else "bills")
            start.wait(SOON)
            for index in range(EACH):
                shared.send_messages(ServiceBusMessage(f"{number}/{index}"))
                own.send_messages([ServiceBusMessage(f"{number}/{index}")] * 1)

        with ThreadPoolExecutor(THREADS) as pool:
            for done in [pool.submit(work, number) for number in range(THREADS)]:
                done.result(50.0)
        assert len(threads_of_clients()) == 1
        assert {entity.health.path.lower() for entity in client.status().entities} == {"orders", "bills"}
    expected = [f"{number}/{index}" for number in range(THREADS) for index in range(EACH)]
    for queue in ("orders", "bills"):
        arrived = namespaces.receive(len(expected), queue)
        assert sorted(arrived) == sorted(expected)
        for number in range(THREADS):
            of_thread = [body for body in arrived if body.startswith(f"{number}/")]
            assert of_thread == [f"{number}/{index}" for index in range(EACH)]


def test_threads_that_begin_at_once_get_one_loop(namespaces: Namespaces) -> None:
    client = namespaces.client()
    start = threading.Barrier(8)

    def begin() -> None:
        start.wait(SOON)
        client.start()

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(begin) for _ in range(8)]:
            done.result(SOON)
    assert len(threads_of_clients()) == 1


def test_the_package_offers_the_client_by_name() -> None:
    assert pairbus.PairedServiceBusClient is PairedServiceBusClient
    assert {"PairedServiceBusClient", "SendAvailabilityOptions", "EntityState", "StateChange"} <= set(
        dir(pairbus)
    )
    assert all(hasattr(pairbus, name) for name in pairbus.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = pairbus.nothing
