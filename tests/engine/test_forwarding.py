"""Entities that pass their messages on."""

import pytest

from pairbus import conditions
from pairbus.broker.engine.filters import SqlFilter
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.rules import Rule
from pairbus.broker.engine.settings import EntityStatus, QueueSettings, SubscriptionSettings
from tests.engine.samples import START, application_properties, bodies, message, namespace, refused


def chain(length: int) -> Namespace:
    """Queues q0 -> q1 -> … -> q<length>."""
    space = namespace()
    space.create_queue(f"q{length}", None, START)
    for n in reversed(range(length)):
        space.create_queue(f"q{n}", QueueSettings(forward_to=f"q{n + 1}"), START)
    return space


def test_a_message_is_passed_on_and_keeps_its_first_number() -> None:
    space = chain(2)
    space.send("q1", [message()], START)
    space.send("q0", [message(b"1")], START)
    last = space.get_queue("q2")
    first, second = last.receive(5, START)
    assert bodies([second]) == [b"1"]
    assert (first.message.sequence_number, second.message.sequence_number) == (1, 2)
    assert second.message.enqueued_sequence_number == 1
    assert space.get_queue("q0").counts().total == 0


def test_nothing_is_received_where_everything_is_passed_on() -> None:
    space = chain(1)
    with refused(conditions.NOT_ALLOWED, text="'q1'"):
        space.get_queue("q0").receive(1, START)
    dead = space.get_queue("q0").dead_letters
    assert dead is not None
    assert dead.receive(1, START) == []


@pytest.mark.parametrize(("length", "arrives"), [(4, True), (5, False)])
def test_four_hops_and_no_more(length: int, arrives: bool) -> None:
    space = chain(length)
    space.send("q0", [message(b"1")], START)
    assert bodies(space.get_queue(f"q{length}").receive(1, START)) == ([b"1"] if arrives else [])
    if not arrives:
        stuck = space.get_queue("q4")
        assert stuck.counts().transfer_dead_letter == 1
        assert stuck.transfer_dead_letters is not None
        assert stuck.transfer_dead_letters.path == "q4/$Transfer/$DeadLetterQueue"
        (letter,) = stuck.transfer_dead_letters.receive(1, START)
        reason = application_properties(letter.message)["DeadLetterReason"]
        assert reason == "MaxTransferHopCountExceeded"


def test_a_circle_ends() -> None:
    space = namespace()
    space.create_queue("a", None, START)
    space.create_queue("b", QueueSettings(forward_to="a"), START)
    space.update_queue("a", QueueSettings(forward_to="b"), START)
    space.send("a", [message()], START)
    assert sum(each.counts().transfer_dead_letter for each in space.list_queues()) == 1


@pytest.mark.parametrize("trouble", ["deleted", "disabled", "full", "session", "duplicate"])
def test_what_the_destination_refuses_goes_to_the_transfer_dead_letters(trouble: str) -> None:
    space = chain(1)
    settings = {
        "disabled": QueueSettings(status=EntityStatus.SEND_DISABLED),
        "full": QueueSettings(max_size_in_megabytes=1),
    }
    if trouble in ("deleted", "session", "duplicate"):
        space.delete_queue("q1", START)
    if trouble == "session":
        space.create_queue("q1", QueueSettings(requires_session=True), START)
    if trouble == "duplicate":
        space.create_queue("q1", QueueSettings(requires_duplicate_detection=True), START)
        space.send("q1", [message(message_id="same")], START)
    if trouble in settings:
        space.update_queue("q1", settings[trouble], START)
    if trouble == "full":
        for _ in range(4):
            space.send("q1", [message(b"x" * 250_000)], START)
    space.send("q0", [message(b"y" * 60_000, message_id="same")], START)
    expected = 0 if trouble == "duplicate" else 1
    assert space.get_queue("q0").counts().transfer_dead_letter == expected


def test_dead_letters_are_passed_on_too() -> None:
    space = namespace()
    graveyard = space.create_queue("graveyard", None, START)
    orders = space.create_queue("orders", QueueSettings(forward_dead_lettered_messages_to="Graveyard"), START)
    space.send("orders", [message(b"1")], START)
    (delivery,) = orders.receive(1, START)
    assert delivery.lock_token is not None
    orders.dead_letter(delivery.lock_token, START, reason="odd")
    assert orders.counts().total == 0
    (letter,) = graveyard.receive(1, START)
    assert letter.message.dead_letter_source == "orders"
    assert application_properties(letter.message) == {"DeadLetterReason": "odd"}


def test_a_subscription_may_feed_a_queue_or_another_topic() -> None:
    space = namespace()
    queue = space.create_queue("sink", None, START)
    space.create_topic("second", None, START)
    red = space.create_subscription("second", "red", None, START, Rule("r", SqlFilter("colour = 'red'")))
    space.create_topic("first", None, START)
    space.create_subscription("first", "to-queue", SubscriptionSettings(forward_to="sink"), START)
    space.create_subscription("first", "to-topic", SubscriptionSettings(forward_to="second"), START)
    space.send("first", [message(b"1", properties={"colour": "red"}), message(b"2")], START)
    assert bodies(queue.receive(9, START)) == [b"1", b"2"]
    assert bodies(red.receive(9, START)) == [b"1"]


def test_the_remaining_life_goes_along() -> None:
    space = chain(1)
    space.send("q0", [message(b"1", ttl=5.0)], START)
    assert space.get_queue("q1").peek(0, 1, START)[0].expires_at == START + 5


@pytest.mark.parametrize("target", ["nowhere", "orders", "news/Subscriptions/s"])
def test_where_nothing_can_be_forwarded_to(target: str) -> None:
    space = namespace()
    space.create_topic("news", None, START)
    space.create_subscription("news", "s", None, START)
    for settings in (
        QueueSettings(forward_to=target),
        QueueSettings(forward_dead_lettered_messages_to=target),
    ):
        with refused(conditions.ARGUMENT_ERROR):
            space.create_queue("orders", settings, START)
