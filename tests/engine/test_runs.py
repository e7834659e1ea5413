"""A run of messages, each sent for itself, and of completions: what comes of it is what would come of one
after the other.
"""

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.broker.engine.errors import Refused
from pairbus.broker.engine.message import Incoming
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.settings import NamespaceLimits, QueueSettings
from pairbus.broker.engine.tiers import RELAXED

from .observing import check_books, observe
from .samples import START, message, ping

KINDS: dict[str, dict[str, Any]] = {
    "plain": {"message_id": "1"},
    "another": {"message_id": "2", "subject": "s"},
    "dies": {"message_id": "3", "ttl": 5.0},
    "dies by its properties": {"message_id": "4", "created": 10.0, "expires": 13.0},
    "of a session": {"message_id": "5", "session_id": "a"},
    "with properties": {"message_id": "6", "properties": {"n": 1}},
    "annotated": {"message_id": "7", "annotations": {"x-opt-partition-key": "p"}},
    "for later": {"message_id": "8", "at": START + 50},
    "for the past": {"message_id": "9", "at": START - 50},
    "without an id": {"message_id": None},
    "id too long": {"message_id": "3" * 200},
    "large": {"message_id": "large", "body": b"x" * 300_000},
}
QUEUES: dict[str, QueueSettings | None] = {
    "plain": QueueSettings(),
    "sessions": QueueSettings(requires_session=True),
    "duplicates": QueueSettings(requires_duplicate_detection=True),
    "short lives": QueueSettings(default_message_time_to_live=3.0),
    "forwards": QueueSettings(forward_to="other"),
    "none": None,
}
_runs = st.lists(st.sampled_from([*sorted(KINDS), "ping"]), min_size=1, max_size=12)


def space_with(settings: QueueSettings | None, *, quota: int | None = None) -> Namespace:
    numbers = iter(range(1, 10_000))
    limits = NamespaceLimits(max_message_size=256 * 1024) if quota is None else RELAXED
    space = Namespace("contoso", limits=limits, next_token=lambda: uuid.UUID(int=next(numbers)))
    space.create_queue("other", None, START)
    if settings is not None:
        space.create_queue("orders", settings, START)
    if quota is not None:
        space.get_queue("orders").space.limit = quota
    return space


def made(kinds: list[str]) -> list[Incoming]:
    return [ping() if kind == "ping" else message(**KINDS[kind]) for kind in kinds]


def send_alone(space: Namespace, messages: list[Incoming]) -> list[str]:
    answers = []
    for each in messages:
        try:
            space.send("orders", [each], START)
        except Refused as refused:
            answers.append(refused.condition)
        else:
            answers.append("")
    return answers


def check_alike(kinds: list[str], one: Namespace, other: Namespace) -> None:
    """A run is taken as if each had come alone, or left untouched."""
    before = observe(one)
    taken = one.send_run("orders", made(kinds), START)
    if not taken:
        assert observe(one) == before
        return
    assert send_alone(other, made(kinds)) == [""] * len(kinds)
    assert observe(one) == observe(other)
    assert str(one.take_events()) == str(other.take_events())
    assert one.next_deadline() == other.next_deadline()
    assert len(one.take_ready()) == len(other.take_ready())
    check_books(one)


@given(_runs, st.sampled_from(sorted(QUEUES)))
def test_a_run_is_taken_as_if_each_had_come_alone(kinds: list[str], queue: str) -> None:
    check_alike(kinds, space_with(QUEUES[queue]), space_with(QUEUES[queue]))


@given(_runs, st.integers(0, 2_000))
def test_a_run_fills_a_queue_no_more_than_each_alone_does(kinds: list[str], quota: int) -> None:
    check_alike(kinds, space_with(QueueSettings(), quota=quota), space_with(QueueSettings(), quota=quota))


@given(_runs, st.sampled_from(sorted(QUEUES)))
def test_a_batch_is_taken_as_if_each_had_come_alone(kinds: list[str], queue: str) -> None:
    """Or refused as a whole, for what one of them is refused for."""
    one, other = space_with(QUEUES[queue]), space_with(QUEUES[queue])
    before = observe(one)
    alone = send_alone(other, made(kinds))
    if any(alone):
        with pytest.raises(Refused) as refused:
            one.send("orders", made(kinds), START)
        assert refused.value.condition in alone
        assert observe(one) == before
        return
    one.send("orders", made(kinds), START)
    assert observe(one) == observe(other)
    # Who has given out numbers is told in any order.
    assert sorted(map(str, one.take_events())) == sorted(map(str, other.take_events()))
    assert one.next_deadline() == other.next_deadline()
    assert len(one.take_ready()) == len(other.take_ready())
    check_books(one)


def test_what_most_clients_send_is_taken_as_a_run() -> None:
    """What is always left untouched would be right, too."""
    usual = ["plain", "another", "dies", "with properties", "annotated", "without an id", "of a session"]
    assert space_with(QueueSettings()).send_run("orders", made(usual), START)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=15), st.booleans())
def test_completions_are_done_as_if_each_had_come_alone(chosen: list[int], late: bool) -> None:
    outcomes = []
    for together in (True, False):
        space = space_with(QueueSettings(lock_duration=30.0))
        queue = space.get_queue("orders")
        space.send("orders", [message(message_id=str(number)) for number in range(8)], START)
        tokens = [handout.lock_token for handout in queue.receive(8, START)]
        named = [tokens[at] if at < 8 else uuid.UUID(int=at) for at in chosen]
        now = START + (40.0 if late else 1.0)
        found: list[Refused | None] = []
        if together:
            found = queue.complete_all([token for token in named if token is not None], now)
        else:
            for token in named:
                assert token is not None
                try:
                    queue.complete(token, now)
                    found.append(None)
                except Refused as refused:
                    found.append(refused)
        check_books(space)
        outcomes.append(([each and each.condition for each in found], observe(space)))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("session_id", [None, "a"])
def test_a_receive_that_is_broken_off_leaves_what_it_has_not_given_out_in_line(
    session_id: str | None,
) -> None:
    numbers = iter(range(1, 100))

    def next_token() -> uuid.UUID:
        if (number := next(numbers)) == 5:
            raise MemoryError
        return uuid.UUID(int=number)

    space = Namespace("contoso", next_token=next_token)
    queue = space.create_queue("orders", QueueSettings(requires_session=session_id is not None), START)
    space.send("orders", [message(message_id=str(at), session_id=session_id) for at in range(8)], START)
    session = None if session_id is None else queue.accept_session(session_id, START)
    with pytest.raises(MemoryError):
        queue.receive(8, START, session=session)
    check_books(space)
    later = [handout.message.sequence_number for handout in queue.receive(8, START, session=session)]
    assert later == ([5, 6, 7, 8] if session is None else [4, 5, 6, 7, 8])  # its lock has a token, too
