"""The core of the client over our own AMQP; all its tests go that way in the long form."""

import asyncio
import datetime
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch, TransportType
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    ServiceBusAuthenticationError,
    ServiceBusConnectionError,
    ServiceBusError,
)

from pairbus import PairedServiceBusClient as SyncClient
from pairbus.broker import Broker
from pairbus.client.direct.encoding import encode_message
from pairbus.client.direct.sender import AmqpSender
from pairbus.errors import ConfigurationError
from pairbus.options import SendAvailabilityOptions
from pairbus.testing import ManualTimers
from pairbus.wire.errors import CONNECTION_LOST
from pairbus.wire.links import SenderLink
from tests.waiting import PATIENCE

from .scene import HELD_BACK, Scene, eventually, text

BY_AMQP = SendAvailabilityOptions(backlog_queue_count=3, transport="amqp")


class DirectScene(Scene):
    """A pair that is reached without the SDK."""

    def client(self, **settings: Any) -> Any:
        return super().client(**{"transport": "amqp", **settings})


@pytest.fixture
async def direct(broker: Broker, manual_timers: ManualTimers) -> AsyncIterator[DirectScene]:
    scene = DirectScene(broker, timers=manual_timers)
    yield scene
    await scene.close()


async def test_an_official_receiver_gets_what_was_sent_in_every_way(direct: DirectScene) -> None:
    client = direct.client()
    sender = client.get_queue_sender("orders")
    await sender.send_messages(text("1", application_properties={"n": 1, "s": "two"}, subject="x"))
    await sender.send_messages([text("2"), {"body": "3", "message_id": "3"}])
    batch = await sender.create_message_batch()
    assert isinstance(batch, ServiceBusMessageBatch)
    batch.add_message(text("4"))
    batch.add_message(text("5", time_to_live=datetime.timedelta(minutes=5)))
    await sender.send_messages(batch)
    async with client.get_queue_receiver("orders") as receiver:
        got: list[Any] = []
        while len(got) < 5:
            got += await receiver.receive_messages(5, max_wait_time=5)
    assert [str(one) for one in got] == ["1", "2", "3", "4", "5"]
    assert got[0].application_properties == {b"n": 1, b"s": b"two"}
    assert (got[0].subject, got[4].time_to_live) == ("x", datetime.timedelta(minutes=5))


@pytest.mark.parametrize(("maker", "sender"), [("amqp", "sdk"), ("sdk", "amqp")])
async def test_a_batch_of_a_client_with_the_other_transport_arrives(
    direct: DirectScene, maker: str, sender: str
) -> None:
    made_by, sent_by = (direct.client(transport=name).get_queue_sender("orders") for name in (maker, sender))
    batch = await made_by.create_message_batch()
    batch.add_message(text("1"))
    batch.add_message(text("2"))
    await sent_by.send_messages(batch)
    assert direct.ids() == ["1", "2"]


@pytest.mark.parametrize("transport", ["sdk", "amqp"])
async def test_a_list_may_fill_a_batch_to_its_last_byte(direct: DirectScene, transport: str) -> None:
    """The envelope of a batch, which repeats ids of its first message, is counted by nobody."""
    client = direct.client(transport=transport)
    sender = client.get_queue_sender("orders")
    name, session = "n" * 120, "s" * 120
    room = (await sender.create_message_batch()).max_size_in_bytes
    most = await client.pair.entity("orders").batch_limit()
    assert most is not None
    assert most > room
    head = len(encode_message(ServiceBusMessage(b"x" * 60_000, message_id=name, session_id=session)))
    body = 60_000 + most // 4 - 8 - head
    full = [ServiceBusMessage(b"x" * body, message_id=name, session_id=session) for _ in range(4)]
    await sender.send_messages(full)
    assert direct.ids() == [name] * 4
    with pytest.raises(MessageSizeExceededError):
        await sender.send_messages(
            [*full[:3], ServiceBusMessage(b"x" * (body + 1), message_id=name, session_id=session)]
        )


@pytest.mark.parametrize("transport", ["sdk", "amqp"])
async def test_a_message_without_a_body_goes_to_the_backlog_too(direct: DirectScene, transport: str) -> None:
    client = direct.client(transport=transport)
    client.fail_over("orders")
    sender = client.get_queue_sender("orders")
    for name in ("opens the link", "sets out by itself"):
        await sender.send_messages(ServiceBusMessage(b"", message_id=name))
    assert direct.backlog_ids() == ["opens the link", "sets out by itself"]


async def test_messages_are_scheduled_and_cancelled(direct: DirectScene) -> None:
    sender = direct.sender()
    when = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    given = text("1")
    numbers = await sender.schedule_messages([given, text("2", session_id="s")], when)
    assert len(numbers) == 2
    assert given.scheduled_enqueue_time_utc is None, "a message of the caller's is not changed"
    await sender.cancel_scheduled_messages(numbers[0])
    (left,) = direct.messages("orders")
    assert left.message_id == "2"
    with pytest.raises(ServiceBusError):
        await sender.cancel_scheduled_messages(numbers[0])


async def test_a_number_that_no_message_can_have_is_refused_as_by_the_sdk(direct: DirectScene) -> None:
    for transport in ("sdk", "amqp"):
        sender = direct.client(transport=transport).get_queue_sender("orders")
        with pytest.raises(ServiceBusError, match="Handler failed"):
            await sender.cancel_scheduled_messages(2**70)


@pytest.mark.parametrize("transport", ["sdk", "amqp"])
async def test_slashes_around_a_path_spoil_nothing_for_the_other_senders(
    direct: DirectScene, transport: str
) -> None:
    client = direct.client(transport=transport)
    await client.get_queue_sender("/orders/").send_messages(text("1"))
    when = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    assert len(await client.get_queue_sender("orders").schedule_messages(text("2"), when)) == 1
    assert [entity.health.path for entity in client.status().entities] == ["orders"]


async def test_calls_that_are_made_at_once_are_on_the_way_at_once_and_in_order(direct: DirectScene) -> None:
    sender = direct.sender()
    await sender.send_messages(text("first"))
    direct.primary.faults.set("delay", seconds=HELD_BACK)
    names = [f"{number:02}" for number in range(40)]
    sends = [direct.begin(sender.send_messages(text(name))) for name in names]
    link = sender._client.pair.entity("orders")._links[0]
    await eventually(lambda: len(link._callers) == 40)
    direct.give_answers()
    await asyncio.gather(*sends)
    assert direct.ids() == ["first", *names]


async def test_an_outage_takes_the_way_of_the_backlog_and_ends(
    direct: DirectScene, manual_timers: ManualTimers
) -> None:
    sender = direct.sender(failover_interval=10.0, ping_primary_interval=20.0, ping_jitter=0.0)
    await sender.send_messages(text("before"))
    direct.primary.faults.set("refuse")
    sends = [direct.begin(sender.send_messages(text(f"{number:02}"))) for number in range(20)]
    await eventually(lambda: direct.state().value == "suspect")
    for _ in range(12):
        await manual_timers.advance(1.0)
        await direct.rest(at_most=5.0)
    await asyncio.gather(*sends)
    assert direct.state().value == "failed_over"
    assert sorted(direct.backlog_ids()) == [f"{number:02}" for number in range(20)]
    direct.primary.faults.clear()
    await manual_timers.advance(20.0)
    await eventually(lambda: direct.state().value == "healthy")
    await sender.send_messages(text("after"))
    assert direct.ids() == ["before", "after"]


async def test_a_lost_answer_has_an_unknown_outcome_and_the_id_stays(
    direct: DirectScene, manual_timers: ManualTimers
) -> None:
    sender = direct.sender(send_timeout=10.0)
    await sender.send_messages(text("a"))
    direct.primary.faults.set("drop", every=1)
    sending = direct.begin(sender.send_messages(text("b")))
    await eventually(lambda: direct.ids() == ["a", "b"])
    direct.primary.faults.clear()
    await manual_timers.advance(10.0)
    await eventually(lambda: "unknown" in direct.diary.outcomes("primary"))
    while not sending.done():
        await manual_timers.advance(1.0)
        await direct.rest(at_most=5.0)
    await sending
    assert direct.ids() == ["a", "b", "b"]
    assert direct.diary.outcomes("primary")[-1] == "ok"


async def test_a_link_that_was_closed_while_idle_is_opened_again_unnoticed(direct: DirectScene) -> None:
    sender = direct.sender()
    await sender.send_messages(text("a"))
    direct.primary.faults.set("disabled")
    link = sender._client.pair.entity("orders")._links[0]._sender
    assert isinstance(link, AmqpSender)
    await eventually(lambda: link.is_lost)
    direct.primary.faults.clear()
    await sender.send_messages(text("b"))
    assert direct.ids() == ["a", "b"]
    assert direct.diary.outcomes("primary") == ["ok", "ok"]


async def test_refusals_are_the_sdks_exceptions(direct: DirectScene) -> None:
    client = direct.client()
    with pytest.raises(ServiceBusAuthenticationError, match="client-error"):  # as the SDK says it
        await client.get_queue_sender("nowhere").send_messages(text("a"))
    sender = client.get_queue_sender("orders")
    with pytest.raises(MessageSizeExceededError):
        await sender.send_messages(ServiceBusMessage(bytes(2_000_000)))
    with pytest.raises(ServiceBusError) as caught:
        await sender.send_messages(text("a", application_properties={"n": 2**40}))
    assert isinstance(caught.value.inner_exception, ValueError)
    direct.primary.faults.set("disabled")
    with pytest.raises(MessagingEntityDisabledError):
        await sender.send_messages(text("a"))
    direct.primary.faults.clear()
    await sender.send_messages(text("b"))
    assert direct.ids() == ["b"]


async def test_a_caller_that_is_cancelled_disturbs_no_other(direct: DirectScene) -> None:
    sender = direct.sender()
    await sender.send_messages(text("first"))
    held = sender._client.pair.entity("orders")._links[0]._sender
    direct.primary.faults.set("delay", seconds=HELD_BACK)
    sends = [direct.begin(sender.send_messages(text(f"{number}"))) for number in range(3)]
    await eventually(lambda: len(sender._client.pair.entity("orders")._links[0]._callers) == 3)
    sends[1].cancel()
    await asyncio.sleep(0)
    direct.give_answers()
    outcomes = await asyncio.gather(*sends, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [type(None), asyncio.CancelledError, type(None)]
    assert sender._client.pair.entity("orders")._links[0]._sender is held


@pytest.mark.parametrize(
    ("keywords", "name"),
    [
        ({"http_proxy": {"proxy_hostname": "proxy", "proxy_port": 3128}}, "http_proxy"),
        ({"transport_type": TransportType.AmqpOverWebsocket}, "AmqpOverWebsocket"),
    ],
)
def test_what_only_the_sdk_can_do_is_refused_by_name(
    broker: Broker, keywords: dict[str, Any], name: str
) -> None:
    strings = [broker[side].connection_string for side in ("contoso", "contoso-dr")]
    with pytest.raises(ConfigurationError, match=name):
        SyncClient.from_connection_strings(*strings, options=BY_AMQP, secondary_options=keywords)


def test_threads_send_by_it_too_and_over_tls(broker: Broker, certificate: tuple[Path, Path]) -> None:
    broker["contoso"].create_queue("orders")
    broker["contoso-dr"].create_queue("contoso/x-servicebus-transfer/0")
    strings = [
        broker[side]
        .connection_string.replace(";UseDevelopmentEmulator=true", "")
        .replace("127.0.0.1", "localhost")
        for side in ("contoso", "contoso-dr")
    ]
    keywords = {"connection_verify": str(certificate[0]), "user_agent": "till/1"}
    with (
        SyncClient.from_connection_strings(*strings, options=BY_AMQP, sdk_options=keywords) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ServiceBusMessage("a", message_id="a"))
        batch = sender.create_message_batch()
        batch.add_message(ServiceBusMessage("b", message_id="b"))
        sender.send_messages(batch)
        agents = {one.client.get("user-agent", "") for one in broker["contoso"].connections()}
    assert "till/1 pairbus" in agents
    assert broker["contoso"].message_count("orders") == 2


async def test_an_answer_is_heard_though_what_was_read_with_it_cannot_be_handled(
    direct: DirectScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = direct.sender()
    await sender.send_messages(text("first"))

    def and_fail(settle: Callable[[SenderLink, Any], None]) -> Callable[[SenderLink, Any], None]:
        def settle_and_fail(link: SenderLink, what: Any) -> None:
            settle(link, what)
            raise RuntimeError("this read is beyond us")

        return settle_and_fail

    monkeypatch.setattr(SenderLink, "on_settled", and_fail(SenderLink.on_settled))
    monkeypatch.setattr(SenderLink, "on_accepted", and_fail(SenderLink.on_accepted))
    async with asyncio.timeout(PATIENCE):
        await sender.send_messages(text("second"))
    assert direct.ids() == ["first", "second"]


async def test_a_link_that_is_lost_before_anything_is_sent_is_told_as_the_sdk_does(
    direct: DirectScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = direct.client().pair.primary.open_sender("orders")
    open_link = sender._open

    async def open_and_lose() -> SenderLink:
        link: SenderLink = await open_link()
        link.line.cut(CONNECTION_LOST, "gone")
        return link

    monkeypatch.setattr(sender, "_open", open_and_lose)
    with pytest.raises(ServiceBusConnectionError, match="gone"):
        await sender.send_messages(text("a"))
    assert direct.ids() == []
    await sender.close()


async def test_what_is_sent_beyond_the_credit_waits_for_it_in_its_turn(direct: DirectScene) -> None:
    async with direct.client().pair.primary.open_sender("orders") as sender:
        link: SenderLink = sender._link
        given, link.link.credit = link.link.credit, 0
        sends = [sender.send_messages(text("1"))]
        assert not link._waves, "nothing may leave without credit"
        link.link.credit = given  # of which the link has not been told yet
        sends.append(sender.send_messages(text("2")))
        async with asyncio.timeout(PATIENCE):
            for send in sends:
                await send
    assert direct.ids() == ["1", "2"]


async def test_what_is_larger_than_the_link_takes_does_not_leave(direct: DirectScene) -> None:
    async with direct.client().pair.primary.open_sender("orders") as sender:
        send = sender.send_messages(ServiceBusMessage(bytes(300_000)))
        assert not sender._link._waves
        with pytest.raises(MessageSizeExceededError):
            await send
        assert not sender.is_lost
