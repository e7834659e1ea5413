"""Messages whose properties are longer than the service takes: nobody's outage but their sender's mistake."""

import datetime
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusError
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.amqp.message import scan
from pairbus.client.sending.headers import HEADER_LIMIT, PROPERTY_LIMIT, check_headers
from pairbus.options import EntityState
from pairbus.pairing.errors import MessageTooLargeForBacklog
from pairbus.pairing.headroom import MAX_OVERHEAD
from pairbus.sdk.privates import encode_by_sdk
from tests.examples import examples

from .scene import Scene, text

TOO_LONG = [
    {"long": "x" * (PROPERTY_LIMIT + 1)},
    {"long": {"TYPE": "STRING", "VALUE": "x" * (PROPERTY_LIMIT + 1)}},
    {f"p{number}": "x" * 30_000 for number in range(3)},
]


def with_properties(found: dict[Any, Any], name: str = "long") -> ServiceBusMessage:
    return ServiceBusMessage(b"body", message_id=name, application_properties=found)


def size_of(message: ServiceBusMessage) -> int:
    sections = scan(encode_by_sdk(message.raw_amqp_message))
    return len(sections.payload) - len(sections.body_bytes)


def of_header_size(size: int) -> ServiceBusMessage:
    """A message with so many bytes before its body."""
    filled = {f"p{number}": "x" * 20_000 for number in range(3)}
    message = with_properties({**filled, "rest": "x" * 1000})
    return with_properties({**filled, "rest": "x" * (1000 + size - size_of(message))})


@pytest.mark.parametrize("found", TOO_LONG, ids=["property", "typed", "headers"])
@pytest.mark.parametrize("way", ["send", "list", "schedule"])
async def test_what_is_too_long_is_raised_and_fails_nothing_over(
    still: Scene, found: dict[str, Any], way: str
) -> None:
    sender = still.sender(failover_interval=0)

    async def send() -> None:
        message = with_properties(found)
        if way == "schedule":
            later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
            await sender.schedule_messages(message, later)
        else:
            await sender.send_messages(message if way == "send" else [text("small"), message])

    await sender.send_messages(text("before"))
    with pytest.raises(MessageSizeExceededError, match="into the body"):
        await send()
    entity = sender._client.pair.entity("orders")
    assert entity.health.state is EntityState.HEALTHY
    sender._client.fail_over("orders")
    with pytest.raises(MessageSizeExceededError, match="into the body"):
        await send()
    await sender.send_messages(text("after"))
    assert still.backlog_ids() == ["after"]
    assert len(sender._client.pair.backlog.rotation.usable(0.0)) == 3


async def test_what_leaves_no_room_for_an_envelope_empties_no_rotation(still: Scene) -> None:
    sender = still.sender()
    message = of_header_size(HEADER_LIMIT - 100)
    await sender.send_messages(message)
    sender._client.fail_over("orders")
    with pytest.raises(MessageTooLargeForBacklog, match="into its body") as caught:
        await sender.send_messages(message)
    assert caught.value.size == HEADER_LIMIT - 100 + MAX_OVERHEAD
    fitting = of_header_size(HEADER_LIMIT - MAX_OVERHEAD)
    await sender.send_messages(fitting)
    await sender.send_messages([text("first"), fitting])
    assert still.backlog_ids() == ["long", "first", "long"]
    assert len(sender._client.pair.backlog.rotation.usable(0.0)) == 3


def unreadable(**fields: Any) -> AmqpAnnotatedMessage:
    return AmqpAnnotatedMessage(data_body=b"body", properties=AmqpMessageProperties(**fields))


WRONG: dict[str, tuple[Any, str]] = {
    "a key": (with_properties({2.5: {"TYPE": "INT", "VALUE": 1}}), "key of a map"),
    "a field": (unreadable(user_id=2.5, content_type="x" * 9000), "user_id"),
    "data": (AmqpAnnotatedMessage(data_body=[5]), "data section"),
    "a large one": (
        AmqpAnnotatedMessage(data_body=b"x" * 200_000, application_properties={"odd": datetime.timedelta(1)}),
        "Handler failed: Unable to encode",
    ),
}


@pytest.mark.parametrize("transport", ["sdk", "amqp"])
@pytest.mark.parametrize("wrong", WRONG)
async def test_what_no_namespace_can_read_is_refused_alike_in_both_states(
    still: Scene, wrong: str, transport: str
) -> None:
    sender = still.sender(transport=transport)
    message, words = WRONG[wrong]
    for is_down in (False, True):
        if is_down:
            sender._client.fail_over("orders")
        with pytest.raises(ServiceBusError, match=words):
            await sender.send_messages(message)


_texts = st.text(st.sampled_from("aä€𝄞"), max_size=40)
_values = st.one_of(
    st.tuples(_texts, st.integers(1, 900)).map(lambda pair: pair[0] * pair[1]),
    st.integers(0, 9),
    st.booleans(),
)


@settings(max_examples=examples(200), deadline=None)
@given(st.dictionaries(_texts.filter(bool), _values, max_size=8))
def test_what_is_refused_is_what_the_wire_says(found: dict[str, Any]) -> None:
    message = with_properties(found)
    lengths = [len(value.encode()) for value in found.values() if isinstance(value, str)]
    is_too_long = size_of(message) > HEADER_LIMIT or max(lengths, default=0) > PROPERTY_LIMIT
    if is_too_long:
        with pytest.raises(MessageSizeExceededError):
            check_headers([message])
    else:
        check_headers([message])
