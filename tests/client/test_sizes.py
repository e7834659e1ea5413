"""Messages near the limit: what is watched while all is well, what is compressed, split or refused in an
outage.
"""

import os
from typing import Any

import hypothesis
import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessageSizeExceededError
from hypothesis import strategies as st

from pairbus.aio import PairedServiceBusClient
from pairbus.amqp.message import scan
from pairbus.broker.counters import OperationKind
from pairbus.client.direct.encoding import weigh
from pairbus.client.sending.message import measure
from pairbus.metering import UNIT_BYTES
from pairbus.options import SendAvailabilityOptions
from pairbus.pairing.envelope import expand_body, unwrap
from pairbus.pairing.errors import MessageTooLargeForBacklog
from pairbus.sdk.privates import LinkLimits
from tests.examples import examples

from .scene import BACKLOG, HELD_BACK, Scene, text

LIMIT = 262_144
COMPRESSIBLE = b"0123456789abcdef"


def of_size(size: int, *, random: bool = False, **settings: Any) -> ServiceBusMessage:
    """A message that is so large on the wire."""
    settings.setdefault("message_id", "large")
    small = measure(ServiceBusMessage(b"x" * 1000, **settings)) - 1000
    body = os.urandom(size - small) if random else (COMPRESSIBLE * (size // 16 + 1))[: size - small]
    message = ServiceBusMessage(body, **settings)
    assert measure(message) == size
    return message


def with_footer() -> AmqpAnnotatedMessage:
    """As large as a message may be; what comes after the body is not taken along into a compressed one."""

    def make(size: int) -> AmqpAnnotatedMessage:
        return AmqpAnnotatedMessage(
            data_body=b"x" * size, footer={"a": 1}, properties={"message_id": "large"}
        )

    return make(LIMIT - (measure(make(1000)) - 1000))


def fill(batch: ServiceBusMessageBatch) -> list[str]:
    """Add messages until no more fit; their names."""
    names: list[str] = []
    try:
        while True:
            name = f"{len(names):05d}"
            batch.add_message(ServiceBusMessage(b"x" * 1000, message_id=name, session_id="a session"))
            names.append(name)
    except MessageSizeExceededError:
        return names


async def test_a_message_without_headroom_is_counted_though_nobody_listens(still: Scene) -> None:
    strings = still.primary.connection_string, still.secondary.connection_string
    options = SendAvailabilityOptions(backlog_queue_count=3, share_pings=False)
    async with PairedServiceBusClient.from_connection_strings(*strings, options=options) as client:
        sender = client.get_queue_sender("orders")
        for size in (1000, LIMIT, LIMIT - 1000, LIMIT - 10):
            await sender.send_messages(of_size(size))
        assert client.status().entities[0].without_headroom == 2


async def test_the_largest_message_fits_the_primary_and_is_noticed_once(still: Scene) -> None:
    client = still.client()
    sender = client.get_queue_sender("orders")
    await sender.send_messages(of_size(LIMIT - 1000))  # has room for any envelope
    assert still.diary.notices == []
    await sender.send_messages(of_size(LIMIT))
    await sender.send_messages([text("small"), of_size(LIMIT - 2000)])
    await sender.send_messages(of_size(LIMIT - 10))
    [notice] = still.diary.notices
    assert (notice.path, notice.size, notice.backlog_limit) == ("orders", LIMIT, LIMIT)
    assert still.diary.oversized_messages == 2
    assert client.status().entities[0].without_headroom == 2
    still.primary.create_queue("invoices")
    await client.get_queue_sender("invoices").send_messages(of_size(LIMIT))
    assert [notice.path for notice in still.diary.notices] == ["orders", "invoices"]


async def test_the_headroom_is_that_of_what_was_sent_whatever_its_owner_made_of_it(still: Scene) -> None:
    sender = still.sender()
    await sender.send_messages(text("before"))
    still.primary.faults.set("delay", seconds=HELD_BACK)
    large: Any = of_size(LIMIT)
    send = still.begin(sender.send_messages(large))
    await still.on_the_wire()
    large.application_properties = {"n": object()}  # which cannot be written
    still.give_answers()
    await send
    assert [notice.size for notice in still.diary.notices] == [LIMIT]


async def test_what_does_not_fit_with_its_envelope_is_compressed(still: Scene) -> None:
    sender = still.sender()
    message = of_size(LIMIT, session_id="s", application_properties={"a": 1}, content_encoding=None)
    await sender.send_messages(message)
    sender._client.fail_over("orders")
    await sender.send_messages(message)
    [direct], [waiting] = still.messages("orders"), still.backlog()
    assert waiting.size < LIMIT / 10
    found = unwrap(
        scan(waiting.application_properties_bytes).application_properties,
        policy="pause",
        now_ms=0,
        enqueued_ms=0,
    )
    assert found.body_size is not None
    body = expand_body(scan(waiting.body_bytes).data_sections()[0], found.body_size)
    assert body == direct.body_bytes
    assert found.natives.session_id == "s"
    assert found.application_properties == {"a": 1}


async def test_what_just_fits_is_left_as_it_is(still: Scene) -> None:
    sender = still.sender()
    sender._client.fail_over("orders")
    await sender.send_messages(of_size(LIMIT - 100))
    [waiting] = still.backlog()
    assert waiting.size > LIMIT - 200
    assert len(scan(waiting.body_bytes).data_sections()[0]) > LIMIT - 300


@pytest.mark.parametrize(
    ("message", "settings"),
    [
        (lambda: of_size(LIMIT, random=True), {}),
        (lambda: of_size(LIMIT), {"compress_oversized": False}),
        (with_footer, {}),
    ],
    ids=["incompressible", "not wanted", "footer"],
)
async def test_what_fits_in_no_way_is_refused_by_name_and_size_before_anything_is_sent(
    still: Scene, message: Any, settings: dict[str, Any]
) -> None:
    sender = still.sender(**settings)
    await sender.send_messages(message())
    sender._client.fail_over("orders")
    with pytest.raises(MessageTooLargeForBacklog) as caught:
        await sender.send_messages(message())
    assert caught.value.path == "orders"
    assert caught.value.message_id == "large"
    assert caught.value.size > caught.value.limit == LIMIT
    with pytest.raises(MessageSizeExceededError):  # as the primary would say: the two are no batch
        await sender.send_messages([text("small"), message()])
    assert still.backlog() == []
    await sender.send_messages(text("small"))
    assert still.backlog_ids() == ["small"]


async def test_a_full_batch_has_room_for_an_envelope_and_splits_when_it_must(still: Scene) -> None:
    sender = still.sender()
    batch = await sender.create_message_batch()
    names = fill(batch)
    assert LIMIT - 3000 < batch.size_in_bytes <= batch.max_size_in_bytes < LIMIT
    await sender.send_messages(batch)
    assert still.ids() == names
    sender._client.fail_over("orders")
    sent = still.secondary.count(OperationKind.SEND)
    await sender.send_messages(batch)
    assert still.backlog_ids() == names  # in order, none missing and none twice
    attempts = [sending for sending in still.diary.sendings if sending.route == "backlog"]
    assert 1 < len(attempts) < 5
    assert sum(sending.messages for sending in attempts) == len(names)
    assert still.secondary.count(OperationKind.SEND) - sent == len(names)


async def test_a_list_of_large_messages_splits_as_it_must(still: Scene) -> None:
    sender = still.sender()
    sender._client.fail_over("orders")
    sizes = [100_000, LIMIT - 100, 100_000, 150_000, 10, LIMIT, 60_000, 60_000, 60_000, 60_000]
    messages = [
        of_size(size, message_id=f"{number}") if size > 1000 else text(f"{number}")
        for number, size in enumerate(sizes)
    ]
    await sender.send_messages(messages)
    assert still.backlog_ids() == [f"{number}" for number in range(len(sizes))]


async def test_batches_and_their_limits(still: Scene) -> None:
    sender = still.sender()
    assert (await sender.create_message_batch(5000)).max_size_in_bytes == 5000
    with pytest.raises(ValueError, match="too large"):
        await sender.create_message_batch(LIMIT + 1)
    assert (await sender.create_message_batch(LIMIT)).max_size_in_bytes == LIMIT


async def test_a_secondary_of_another_tier_is_known_by_its_links(still: Scene) -> None:
    """What a backlog link says of its limit is what counts, not what we thought before."""
    sender = still.sender()
    backlog = sender._client.pair.backlog
    assert backlog.limit == LIMIT
    backlog._limits["another"] = LinkLimits(50_000, 50_000)
    sender._client.fail_over("orders")
    await sender.send_messages(text("1"))
    assert (backlog.limit, backlog.batch_limit) == (50_000, 50_000)
    with pytest.raises(MessageTooLargeForBacklog):
        await sender.send_messages(of_size(60_000, random=True))
    await sender.send_messages([of_size(30_000, message_id=f"{number}") for number in range(3)])
    assert still.backlog_ids() == ["1", "0", "1", "2"]


async def test_what_was_wrapped_for_a_wider_queue_is_wrapped_anew_for_a_narrower_one(still: Scene) -> None:
    """That a queue takes less than the others is known when its link opens."""
    sender = still.sender()
    backlog = sender._client.pair.backlog
    backlog._limits[BACKLOG[0]] = LinkLimits(4 * LIMIT, 4 * LIMIT)
    backlog.limit = backlog.batch_limit = 4 * LIMIT
    backlog.rotation.fail(BACKLOG[0], backlog._timers.now(), reason="away")
    sender._client.fail_over("orders")
    await sender.send_messages([of_size(150_000, message_id=f"{number}") for number in range(4)])
    assert (backlog.limit, backlog.batch_limit) == (LIMIT, LIMIT)
    backlog._limits = {BACKLOG[0]: LinkLimits(4 * LIMIT, 4 * LIMIT)}
    backlog.limit = backlog.batch_limit = 4 * LIMIT
    await sender.send_messages(of_size(2 * LIMIT, message_id="large"))
    assert sorted(still.backlog_ids()) == ["0", "1", "2", "3", "large"]
    backlog._limits = {BACKLOG[0]: LinkLimits(4 * LIMIT, 4 * LIMIT)}
    backlog.limit = backlog.batch_limit = 4 * LIMIT
    with pytest.raises(MessageTooLargeForBacklog):
        await sender.send_messages(of_size(2 * LIMIT, random=True))


TEXTS = st.text(max_size=40)
SIZES = st.one_of(st.integers(0, 200), st.integers(15_000, 70_000))
BINARIES = SIZES.map(lambda size: b"b" * size)
VALUES = st.one_of(TEXTS, st.integers(-(2**31), 2**31 - 1), SIZES.map("v".__mul__), BINARIES)
BODIES = {"data_body": BINARIES, "value_body": VALUES, "sequence_body": VALUES.map(lambda one: [one])}


@st.composite
def messages(draw: st.DrawFn) -> AmqpAnnotatedMessage:
    """Of any kind of body, with what weighs in any of its parts."""
    kind = draw(st.sampled_from(sorted(BODIES)))
    parts: dict[str, Any] = {kind: draw(BODIES[kind])}
    return AmqpAnnotatedMessage(
        **parts,
        properties={"message_id": draw(TEXTS)},
        application_properties=draw(st.dictionaries(SIZES.map("n".__mul__), VALUES, max_size=3)),
        annotations=draw(st.dictionaries(TEXTS, VALUES, max_size=2)),
    )


@hypothesis.settings(max_examples=examples(150), deadline=None)
@hypothesis.given(st.lists(messages(), max_size=3))
def test_what_is_above_a_billing_unit_is_measured(
    these: list[AmqpAnnotatedMessage],
) -> None:
    measured = [measure(message) for message in these]
    total, large = weigh(these)
    assert total == sum(measured)
    assert large == tuple(size for size in measured if size > UNIT_BYTES)


async def test_a_value_that_fits_no_backlog_queue_is_refused_by_its_size(still: Scene) -> None:
    sender = still.sender()
    sender._client.fail_over("orders")
    small = AmqpAnnotatedMessage(value_body="v" * 1000, properties={"message_id": "value"})
    room = LIMIT - measure(small)
    value = AmqpAnnotatedMessage(value_body="v" * (1000 + room), properties={"message_id": "value"})
    assert measure(value) == LIMIT
    with pytest.raises(MessageTooLargeForBacklog):
        await sender.send_messages(value)
