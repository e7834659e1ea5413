"""Everything that can be sent, with the primary up and down: queues, topics, sessions; one message, lists,
generators, mappings, batches, schedules.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties
from azure.servicebus.exceptions import MessageSizeExceededError

from pairbus.aio import PairedSender
from pairbus.amqp.message import scan
from pairbus.broker.engine.message import StoredMessage
from pairbus.broker.engine.settings import QueueSettings
from pairbus.client.direct.encoding import (
    PlainEnvelope,
    enclose_plain,
    encode_in_envelope,
    encode_plainly,
)
from pairbus.client.sending.message import (
    PairedMessageBatch,
    natives_of,
    wrapped_copy,
    wrapped_plainly,
)
from pairbus.options import EntityState
from pairbus.pairing.envelope import Natives, wrap
from pairbus.pairing.errors import ScheduledInBacklogError
from pairbus.sdk.privates import encode_by_sdk
from pairbus.testing import ManualTimers
from pairbus.words import SCHEDULED_TIME

from .scene import Scene, eventually, text


def down(sender: PairedSender) -> PairedSender:
    """The sender, with its entity failed over."""
    sender._client.fail_over(sender.entity_name)
    return sender


def path_of(message: StoredMessage) -> Any:
    return scan(message.application_properties_bytes).application_properties["x-ms-path"]


def generated() -> Iterator[ServiceBusMessage]:
    yield text("1")
    yield text("2")


FORMS: dict[str, Any] = {
    "a message": lambda: text("1"),
    "a list": lambda: [text("1"), text("2")],
    "a tuple": lambda: (text("1"), text("2")),
    "a generator": generated,
    "a mapping": lambda: {"body": "1", "message_id": "1"},
    "a list of mappings": lambda: [{"body": "1", "message_id": "1"}, {"body": "2", "message_id": "2"}],
    "an annotated message": lambda: AmqpAnnotatedMessage(data_body=b"1", properties={"message_id": "1"}),
    "a mixed list": lambda: [
        text("1"),
        {"body": "2", "message_id": "2"},
        AmqpAnnotatedMessage(value_body=[3], properties=AmqpMessageProperties(message_id="3")),
    ],
    "nothing": list,
}
COUNTS = {"nothing": 0, "a message": 1, "a mapping": 1, "an annotated message": 1, "a mixed list": 3}


@pytest.mark.parametrize("form", FORMS)
async def test_every_form_of_input_is_taken_in_both_states(still: Scene, form: str) -> None:
    wanted = [str(number + 1) for number in range(COUNTS.get(form, 2))]
    sender = still.sender()
    await sender.send_messages(FORMS[form]())
    assert still.ids() == wanted
    await down(sender).send_messages(FORMS[form]())
    assert still.backlog_ids() == wanted
    assert still.ids() == wanted


async def test_a_batch_is_taken_in_both_states(still: Scene) -> None:
    sender = still.sender()
    batch = await sender.create_message_batch()
    assert isinstance(batch, ServiceBusMessageBatch)
    for number in range(20):
        batch.add_message(text(f"{number:02d}"))
    assert len(batch) == 20
    await sender.send_messages(batch)
    wanted = [f"{number:02d}" for number in range(20)]
    assert still.ids() == wanted
    await down(sender).send_messages(batch)
    assert still.backlog_ids() == wanted
    await sender.send_messages(await sender.create_message_batch())
    assert len(still.backlog_ids()) == 20


@pytest.mark.parametrize("transport", ["sdk", "amqp"])
async def test_a_batch_holds_messages_as_they_were_when_they_were_added(still: Scene, transport: str) -> None:
    sender = still.sender(transport=transport)
    batch = await sender.create_message_batch()
    own: dict[str | bytes, Any] = {"number": 1}
    plain = ServiceBusMessage("x", message_id="1", session_id="1", application_properties=own)
    named = AmqpMessageProperties(message_id="a")
    valued = AmqpAnnotatedMessage(value_body=[1], application_properties={"number": (listed := [1])})
    valued.properties = named
    for number in (1, 2):  # one object again and again, as with the SDK
        plain.message_id = plain.session_id = str(number)
        own["number"] = number
        batch.add_message(plain)
        named.message_id = "ab"[number - 1]
        valued.body[0] = listed[0] = number
        batch.add_message(valued)
    plain.message_id = plain.session_id = "later"
    await sender.send_messages(batch)
    arrived = still.messages("orders")
    await down(sender).send_messages(batch)
    for messages in (arrived, still.backlog()):
        assert [message.message_id for message in messages] == ["1", "a", "2", "b"]
        assert [_numbers(message)["number"] for message in messages] == [1, [1], 2, [2]]
    assert [message.body_bytes for message in still.backlog()] == [message.body_bytes for message in arrived]
    assert [message.session_id for message in arrived] == ["1", None, "2", None]
    assert [_numbers(message).get("x-ms-sessionid") for message in still.backlog()] == ["1", None, "2", None]


def _numbers(message: StoredMessage) -> Any:
    return scan(message.application_properties_bytes).application_properties


async def test_a_batch_can_be_made_and_sent_while_the_primary_was_never_reached(still: Scene) -> None:
    sender = down(still.sender())
    batch = await sender.create_message_batch()
    batch.add_message(text("1"))
    await sender.send_messages(batch)
    assert still.backlog_ids() == ["1"]


async def test_the_sdk_takes_a_batch_as_it_is(still: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would encode all of its messages again."""
    sender = still.sender()
    batch = await sender.create_message_batch()
    batch.add_message(text("1"))
    built: list[Any] = []
    monkeypatch.setattr(ServiceBusMessageBatch, "_from_list", lambda self, messages: built.extend(messages))
    await sender.send_messages(batch)
    assert built == []
    assert still.ids() == ["1"]


async def test_a_batch_of_somebody_else_is_refused_always(still: Scene) -> None:
    with pytest.raises(TypeError, match="create_message_batch"):
        await still.sender().send_messages(ServiceBusMessageBatch())
    with pytest.raises(TypeError, match="scheduled"):
        await still.sender().schedule_messages(PairedMessageBatch(), datetime.now(UTC))  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [42, None, "text", b"bytes", ["texts"]], ids=repr)
async def test_what_is_no_message_is_refused(still: Scene, wrong: Any) -> None:
    with pytest.raises(TypeError):
        await still.sender().send_messages(wrong)


async def test_topics_and_their_subscriptions(still: Scene) -> None:
    still.primary.create_topic("news")
    still.primary.create_subscription("news", "all")
    sender = still.client().get_topic_sender("news")
    await sender.send_messages(text("1"))
    assert still.ids("news/Subscriptions/all") == ["1"]
    await down(sender).send_messages(text("2"))
    assert [path_of(message) for message in still.backlog()] == ["news"]


async def test_sessions_wait_in_the_envelope(still: Scene) -> None:
    still.primary.create_queue("talks", QueueSettings(requires_session=True))
    sender = still.sender("talks")
    await sender.send_messages([text("1", session_id="a"), text("2", session_id="b")])
    assert [message.session_id for message in still.messages("talks")] == ["a", "b"]
    await down(sender).send_messages([text("3", session_id="a"), text("4", session_id="b")])
    waiting = still.backlog()
    assert [message.session_id for message in waiting] == [None, None]
    aliases = [scan(message.application_properties_bytes).application_properties for message in waiting]
    assert [alias["x-ms-sessionid"] for alias in aliases] == ["a", "b"]


async def test_paths_differ_by_more_than_their_case(still: Scene) -> None:
    client = still.client()
    await client.get_queue_sender("orders").send_messages(text("1"))
    client.fail_over("ORDERS")
    await client.get_queue_sender("Orders").send_messages(text("2"))
    assert still.backlog_ids() == ["2"]


def nameless(**settings: Any) -> ServiceBusMessage:
    """A message without an id; the SDK gives one to each that is made, unless it is taken away."""
    message = ServiceBusMessage("body", **settings)
    message.message_id = None
    return message


async def test_a_message_without_an_id_gets_one_and_the_object_is_not_changed(still: Scene) -> None:
    message = nameless(application_properties={"a": 1})
    annotated = AmqpAnnotatedMessage(data_body=b"body")
    sender = still.sender()
    await sender.send_messages(message)
    await sender.send_messages([message, annotated])  # type: ignore[arg-type]
    batch = await sender.create_message_batch()
    batch.add_message(message)
    batch.add_message(annotated)
    await sender.send_messages(batch)
    assert message.message_id is None
    assert annotated.properties is None
    ids = still.ids()
    assert len(set(ids)) == 5
    assert all(len(each) == 32 for each in ids)


async def test_the_same_object_sent_twice_is_two_messages_in_the_backlog_too(still: Scene) -> None:
    message = nameless()
    sender = down(still.sender())
    await sender.send_messages(message)
    await sender.send_messages([message, message])
    assert len(set(still.backlog_ids())) == 3
    assert message.message_id is None
    assert message.application_properties is None
    assert message.session_id is None


async def test_an_id_is_kept_over_retries_and_failover(still: Scene, manual_timers: ManualTimers) -> None:
    """What the primary may have taken has the same id when it comes again, for duplicate detection."""
    still.primary.create_queue("once", QueueSettings(requires_duplicate_detection=True))
    sender = still.sender("once", failover_interval=30.0, send_timeout=10.0)
    await sender.send_messages(text("before"))
    still.primary.faults.set("drop", entity="once", every=1)  # taken, and never answered
    sending = still.begin(sender.send_messages(nameless()))
    await eventually(lambda: len(still.ids("once")) == 2)
    await manual_timers.advance(30.0)
    await sending
    assert still.backlog_ids() == still.ids("once")[1:]


@pytest.mark.parametrize("given", [0, "", None])
async def test_only_what_is_no_id_is_replaced(still: Scene, given: Any) -> None:
    message = AmqpAnnotatedMessage(data_body=b"1", properties={"message_id": given})
    await still.sender().send_messages(message)
    assert (still.ids() == ["0"]) == (given == 0)


SOON = datetime.now(UTC) + timedelta(hours=1)


async def test_scheduling_works_in_both_states(still: Scene) -> None:
    sender = still.sender()
    numbers = await sender.schedule_messages([text("1"), text("2")], SOON)
    assert len(numbers) == 2
    assert all(number > 0 for number in numbers)
    assert await sender.schedule_messages([], SOON) == []
    [one] = await sender.schedule_messages(text("3"), SOON)
    down(sender)
    assert await sender.schedule_messages([text("4"), text("5")], SOON) == [-1, -2]
    assert await sender.schedule_messages(text("6"), SOON) == [-3]
    waiting = still.backlog()
    assert [message.scheduled_for for message in waiting] == [None, None, None]
    scheduled = {
        scan(message.application_properties_bytes).application_properties["x-ms-scheduledenqueuetimeutc"]
        for message in waiting
    }
    assert scheduled == {still.milliseconds(SOON)}
    assert one not in numbers


async def test_cancelling_asks_the_primary_only_for_its_own_numbers(still: Scene) -> None:
    sender = still.sender()
    numbers = await sender.schedule_messages([text("1"), text("2")], SOON)
    await sender.cancel_scheduled_messages(numbers[0])
    assert still.ids() == ["2"]
    in_backlog = await down(sender).schedule_messages(text("3"), SOON)
    with pytest.raises(ScheduledInBacklogError) as caught:
        await sender.cancel_scheduled_messages([numbers[1], *in_backlog])
    assert caught.value.numbers == (-1,)
    assert still.ids() == ["2"]
    await sender.cancel_scheduled_messages([])
    await sender.cancel_scheduled_messages([numbers[1]])
    assert still.ids() == []


async def test_a_schedule_that_meets_an_outage_goes_to_the_backlog(
    still: Scene, manual_timers: ManualTimers
) -> None:
    sender = still.sender(failover_interval=30.0)
    await sender.send_messages(text("before"))
    still.primary.faults.set("silence")
    scheduling = still.begin(sender.schedule_messages(text("1"), SOON))
    await still.on_the_wire()
    await manual_timers.advance(30.0)
    assert await scheduling == [-1]
    assert still.state() is EntityState.FAILED_OVER


async def test_a_scheduled_message_that_is_sent_keeps_its_time(still: Scene) -> None:
    sender = still.sender()
    message = text("1", scheduled_enqueue_time_utc=SOON)
    await sender.send_messages(message)
    assert [found.scheduled_for for found in still.messages("orders")] == [
        pytest.approx(SOON.timestamp(), abs=0.001)
    ]
    await down(sender).send_messages(message)
    [waiting] = still.backlog()
    assert waiting.scheduled_for is None
    aliases = scan(waiting.application_properties_bytes).application_properties
    assert aliases["x-ms-scheduledenqueuetimeutc"] == still.milliseconds(SOON)
    assert message.scheduled_enqueue_time_utc == SOON


@pytest.mark.parametrize(
    "odd", ["soon", 1.5, float("nan"), b"1", [1], {"a": 1}, {"TYPE": "STRING", "VALUE": "x"}]
)
async def test_what_is_no_time_is_no_schedule_in_either_state(still: Scene, odd: Any) -> None:
    sender = still.sender()
    message = AmqpAnnotatedMessage(data_body=b"1", annotations={SCHEDULED_TIME: odd})
    await sender.send_messages(message)
    await down(sender).send_messages(message)
    [direct], [waiting] = still.messages("orders"), still.backlog()
    assert (direct.scheduled_for, waiting.scheduled_for) == (None, None)
    assert list(scan(waiting.application_properties_bytes).application_properties) == ["x-ms-path"]


def _plain_or_not() -> dict[str, tuple[ServiceBusMessage | AmqpAnnotatedMessage, bool]]:
    expiring = AmqpAnnotatedMessage(data_body=b"1", properties={"message_id": "1"})
    assert expiring.properties is not None
    expiring.properties.absolute_expiry_time = 1_700_000_000_000
    return {
        "an id": (text("1"), True),
        "properties": (ServiceBusMessage(b"1", message_id="1", application_properties={"a": 1}), True),
        "a subject": (ServiceBusMessage(b"1", message_id="1", subject="s", to="t"), True),
        "a value": (AmqpAnnotatedMessage(value_body=1, properties={"message_id": "1"}), True),
        "no id": (AmqpAnnotatedMessage(data_body=b"1"), False),
        "a session": (ServiceBusMessage(b"1", message_id="1", session_id="s"), False),
        "a life": (ServiceBusMessage(b"1", message_id="1", time_to_live=timedelta(hours=1)), False),
        "a partition": (ServiceBusMessage(b"1", message_id="1", partition_key="p"), False),
        "an expiry": (expiring, False),
        "a hop": (
            AmqpAnnotatedMessage(
                data_body=b"1", properties={"message_id": "1"}, delivery_annotations={"for": "a hop"}
            ),
            True,
        ),
    }


@pytest.mark.parametrize("name", _plain_or_not())
def test_a_message_with_nothing_to_hide_is_wrapped_the_short_way_to_the_same_bytes(name: str) -> None:
    message, is_plain = _plain_or_not()[name]
    usual = wrapped_copy(message, wrap("orders", natives_of(message)), created_ms=1_700_000_000_000)
    short = wrapped_plainly(message, wrap("orders", Natives()).aliases)
    assert (short is not None) is is_plain
    if short is not None:
        assert encode_by_sdk(short) == encode_by_sdk(usual)


@pytest.mark.parametrize("name", _plain_or_not())
def test_a_message_with_nothing_to_hide_is_written_in_its_envelope_without_a_copy(name: str) -> None:
    message, is_plain = _plain_or_not()[name]
    usual = wrapped_copy(message, wrap("orders", natives_of(message)), created_ms=1_700_000_000_000)
    found = encode_in_envelope(message, PlainEnvelope.of(wrap("orders", Natives()).aliases))
    is_written = is_plain and name != "a value"
    assert found == (("1", encode_by_sdk(usual)) if is_written else None)


@pytest.mark.parametrize("size", [0, 1, 255, 256, 70_000])
@pytest.mark.parametrize("number", ["1", "ü" * 64])
def test_what_is_written_for_the_primary_is_put_into_its_envelope_as_it_is(size: int, number: str) -> None:
    message, envelope = ServiceBusMessage(b"x" * size, message_id=number), wrap("orders", Natives())
    written = encode_plainly(message)
    assert written is not None
    found = enclose_plain(written[0], PlainEnvelope.of(envelope.aliases))
    assert found == (number, size, encode_by_sdk(wrapped_copy(message, envelope, created_ms=0)))


_LISTS: dict[str, tuple[list[Any], bool]] = {
    "ids": ([text("1"), text("2")], True),
    "sessions": ([ServiceBusMessage(b"1", session_id="s"), ServiceBusMessage(b"2", session_id="s")], True),
    "lives": ([ServiceBusMessage(b"1", time_to_live=timedelta(hours=1))], True),
    "values": ([text("1"), AmqpAnnotatedMessage(value_body=2)], False),
}


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What batches of the SDK are made of: it writes each, which takes long."""
    found: list[Any] = []
    add = ServiceBusMessageBatch.add_message

    def note(self: ServiceBusMessageBatch, message: Any) -> None:
        found.append(message)
        add(self, message)

    monkeypatch.setattr(ServiceBusMessageBatch, "add_message", note)
    return found


@pytest.mark.parametrize("name", _LISTS)
async def test_a_list_is_written_here_if_its_messages_are_of_the_usual_kinds(
    still: Scene, added: list[Any], name: str
) -> None:
    messages, is_usual = _LISTS[name]
    sender = still.sender()
    await sender.send_messages(text("opens the link"))
    added.clear()
    await sender.send_messages(messages)
    assert (added == []) is is_usual
    assert len(still.messages("orders")) == 1 + len(messages)


async def test_a_list_is_written_here_on_its_way_to_the_backlog_too(still: Scene, added: list[Any]) -> None:
    sender = still.sender()
    await sender.send_messages(text("tells the limits"))
    await down(sender).send_messages(text("opens the link"))
    added.clear()
    await sender.send_messages([text("1"), text("2")])
    assert added == [], "neither to know that it fits, nor in its envelope"
    assert still.backlog_ids() == ["opens the link", "1", "2"]


async def test_a_list_that_is_too_large_is_refused_as_by_the_sdk(still: Scene) -> None:
    sender = still.sender()
    await sender.send_messages(text("opens the link"))
    async with ServiceBusClient.from_connection_string(still.primary.connection_string) as plain:
        large = [ServiceBusMessage(b"x" * 200_000) for _ in range(6)]
        told = []
        for one in (plain.get_queue_sender("orders"), sender):
            with pytest.raises(MessageSizeExceededError) as refused:
                await one.send_messages(large)
            told.append(str(refused.value))
    assert told[0] == told[1]
    assert len(still.messages("orders")) == 1


def test_what_was_wrapped_the_short_way_is_not_changed_by_the_owner_of_the_message() -> None:
    message = ServiceBusMessage(b"1", message_id="1", application_properties={"a": 1})
    short = wrapped_plainly(message, wrap("orders", Natives()).aliases)
    assert short is not None
    before = encode_by_sdk(short)
    message.message_id, message.subject = "2", "changed"
    assert message.application_properties is not None
    message.application_properties["a"] = 2
    assert encode_by_sdk(short) == before
    assert message.application_properties == {"a": 2}, "nor is the message by the wrapping"


@pytest.mark.parametrize("is_down", [False, True])
async def test_a_send_changes_nothing_of_the_message(still: Scene, is_down: bool) -> None:
    """The SDK puts text where bytes were."""
    sender = still.sender()
    await sender.send_messages(text("before"))
    if is_down:
        sender._client.fail_over("orders")
    given: dict[str | bytes, Any] = {"raw": b"bytes"}
    for message in (ServiceBusMessage("a", application_properties=given), AmqpAnnotatedMessage(value_body=1)):
        message.application_properties = given
        await sender.send_messages(message)
        await sender.send_messages([text("x", application_properties=given), text("y")])
    assert given == {"raw": b"bytes"}
