"""What comes back from the file: everything that was committed, and nothing else."""

import shutil
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.amqp.types import Symbol, Timestamp, UInt
from pairbus.broker.contents import Contents
from pairbus.broker.engine.actions import SqlAction
from pairbus.broker.engine.errors import Refused
from pairbus.broker.engine.filters import CorrelationFilter, FalseFilter, SqlFilter
from pairbus.broker.engine.message import MessageState
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.queue import MessageQueue
from pairbus.broker.engine.rules import Rule
from pairbus.broker.engine.settings import EntityStatus, QueueSettings, SubscriptionSettings, TopicSettings
from pairbus.broker.flights import StoreThread
from pairbus.broker.store.sqlite import SqliteStore
from tests.engine.observing import check_books, observe
from tests.engine.samples import START, bodies, message, namespace
from tests.engine.test_recovery import STEPS, Story, assert_alive
from tests.examples import examples
from tests.store.files import bring_all, load, query, store_path, write


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return store_path(tmp_path)


def queue_of(space: Namespace, path: str) -> MessageQueue:
    node = space.node(path)
    assert isinstance(node, MessageQueue)
    return node


def kept(path: Path, space: Namespace) -> Namespace:
    """Commit what a namespace has to tell and give the one that comes back, which must look the same."""
    write(path, space.take_events())
    again = load(path)
    assert observe(again) == observe(space)
    check_books(again)
    return again


# -- whatever happens


@given(STEPS, st.integers(1, 7), st.sampled_from(["by one store", "by a new one each turn", "frugally"]))
@settings(max_examples=examples(100))
def test_whatever_happens_the_file_tells_it(
    steps: list[tuple[int, int, int]], per_turn: int, how: str
) -> None:
    """Random stories, several steps a turn, a commit a turn. Who is frugal keeps no content of a message that
    is committed, and is not told from one who does.
    """
    story, twin = Story(), Story()
    directory = Path(tempfile.mkdtemp(prefix="pairbus-test-"))
    try:
        path = store_path(directory)
        store = _open_hastily(path)
        store.commit(story.space.take_events())
        contents = Contents(store, StoreThread(store, "test"), fail=fail, budget=0)
        for at in range(0, len(steps), per_turn):
            story.log.clear()
            for step in steps[at : at + per_turn]:
                story.step(*step)
                twin.step(*step)
            if how == "by a new one each turn":
                store.close()
                store = _open_hastily(path)
            contents.note(story.log)
            store.commit(story.log)
            if how == "frugally":
                contents.settle()
        assert observe(story.space) == observe(twin.space)
        bring_all(story.space)
        store.close()
        again = load(path)
        check_books(again)
        assert observe(again) == observe(story.space)
        assert again.take_events() == []
        assert_alive(again, story.now + 100)
    finally:
        shutil.rmtree(directory)


def fail(error: Exception) -> None:
    raise error


def _open_hastily(path: Path) -> SqliteStore:
    store = SqliteStore(path)
    store._database.execute("PRAGMA synchronous = OFF")  # thousands of turns, and no power cut
    return store


# -- one thing at a time


def test_entities_with_all_their_settings(path: Path) -> None:
    space = namespace()
    space.create_queue("target", None, START)
    space.create_queue(
        "Orders/New",
        QueueSettings(
            status=EntityStatus.SEND_DISABLED,
            default_message_time_to_live=77.5,
            auto_delete_on_idle=400.0,
            user_metadata="naïve \u0001 'quoted'",
            lock_duration=7.0,
            max_delivery_count=3,
            forward_dead_lettered_messages_to="target",
            max_size_in_megabytes=2048,
            requires_duplicate_detection=True,
            duplicate_detection_history_time_window=33.0,
            authorization_rules="[]",
        ),
        START,
    )
    space.create_topic("news", TopicSettings(support_ordering=False), START + 1)
    space.create_subscription("news", "s", SubscriptionSettings(requires_session=True), START + 2)
    settings_before = space.get_queue("target").settings
    assert isinstance(settings_before, QueueSettings)
    space.update_queue("target", replace(settings_before, max_delivery_count=9), START + 3)
    again = kept(path, space)
    assert again.get_queue("orders/new").path == "Orders/New"
    assert again.get_queue("target").updated_at == START + 3


def test_an_entity_that_goes_takes_everything_with_it(path: Path) -> None:
    space = namespace()
    once = QueueSettings(requires_duplicate_detection=True, requires_session=True)
    for name in ("orders", "orders2"):
        space.create_queue(name, once, START)
        space.send(name, [message(message_id="a", session_id="s")], START)
        queue = space.get_queue(name)
        queue.set_session_state("s", b"state", START)
        lock = queue.accept_session("s", START)
        (delivery,) = queue.receive(1, START, session=lock)
        assert delivery.lock_token is not None
        queue.dead_letter(delivery.lock_token, START)
    write(path, space.take_events())
    space.delete_queue("orders", START)
    write(path, space.take_events())
    for table in ("entity", "message", "session_state", "duplicate"):
        assert query(path, f"SELECT count(*) FROM {table}") == [(1,)], table
    assert query(path, "SELECT path FROM place ORDER BY path") == [
        ("orders2",),
        ("orders2/$DeadLetterQueue",),
    ]
    kept(path, space)


def test_an_entity_may_go_and_come_again_in_one_turn(path: Path) -> None:
    space = namespace()
    for body in (b"first", b"second", b"third"):
        space.create_queue("orders", None, START)
        space.send("orders", [message(body)], START)
        if body != b"third":
            space.delete_queue("orders", START)
    again = kept(path, space)
    assert bodies(queue_of(again, "orders").peek(0, 9, START)) == [b"third"]


def test_rules_in_their_order_whatever_a_turn_does_to_them(path: Path) -> None:
    space = namespace()
    space.create_topic("news", None, START)
    space.create_subscription("news", "s", None, START, Rule("Zulu", FalseFilter(), created_at=START))
    space.create_rule("news", "s", Rule("alpha", SqlFilter("n > 3"), SqlAction("SET n = 1")), START)
    space.create_rule("news", "s", Rule("gone", FalseFilter()), START)
    space.delete_rule("news", "s", "gone", START)
    space.delete_rule("news", "s", "alpha", START)
    space.create_rule("news", "s", Rule("alpha", CorrelationFilter(subject="x")), START)
    again = kept(path, space)
    assert [rule.name for rule in again.get_subscription("news", "s").rules] == ["alpha", "Zulu"]


def test_a_rule_that_was_spelled_differently_does_not_come_back(path: Path) -> None:
    space = namespace()
    space.create_topic("news", None, START)
    space.create_subscription("news", "s", None, START, Rule("Straße", FalseFilter()))
    write(path, space.take_events())
    space.update_rule("news", "s", Rule("STRAßE", SqlFilter("n = 1")), START)
    write(path, space.take_events())
    space.delete_rule("news", "s", "straße", START)
    assert kept(path, space).get_subscription("news", "s").rules == []


def test_messages_in_every_state(path: Path) -> None:
    space = namespace()
    space.create_queue("orders", QueueSettings(max_delivery_count=5), START)
    orders = space.get_queue("orders")
    given = [b"active", b"completed", b"abandoned", b"deferred", b"dead", b"locked"]
    space.send("orders", [message(body, properties={"n": 1}) for body in given], START)
    space.schedule("orders", [message(b"scheduled", at=START + 50)], START)
    write(path, space.take_events())
    tokens: dict[bytes, Any] = {}
    for body, delivery in zip(given[1:], orders.receive(6, START)[1:], strict=True):
        tokens[body] = delivery.lock_token
    orders.complete(tokens[b"completed"], START)
    orders.abandon(tokens[b"abandoned"], START, properties={"note": "again"})
    orders.defer(tokens[b"deferred"], START, properties={"note": "later"})
    orders.dead_letter(tokens[b"dead"], START, reason="bad", description="very", properties={"note": "x"})
    again = queue_of(kept(path, space), "orders")
    states = {bodies([each])[0]: (each.state, each.delivery_count) for each in again.peek(0, 9, START)}
    assert states == {
        b"active": (MessageState.ACTIVE, 0),
        b"abandoned": (MessageState.ACTIVE, 1),
        b"deferred": (MessageState.DEFERRED, 1),
        b"locked": (MessageState.ACTIVE, 0),
        b"scheduled": (MessageState.SCHEDULED, 0),
    }
    assert again.dead_letters is not None
    (dead,) = again.dead_letters.peek(0, 9, START)
    assert dead.dead_letter_source == "orders"
    assert bodies(again.receive(9, START)) == [b"active", b"abandoned", b"locked"], "in order, unlocked"
    again.tick(START + 50)
    assert bodies(again.receive(9, START + 50)) == [b"scheduled"]


def test_every_field_of_a_message(path: Path) -> None:
    space = namespace()
    space.create_topic("news", None, START)
    space.create_subscription("news", "s", SubscriptionSettings(requires_session=True), START)
    rich = message(
        bytes(range(256)) * 40,
        message_id="ünï\0code",
        session_id="",
        ttl=500.0,
        subject="s",
        properties={"text": "ä", "number": UInt(7), "null": None},
        annotations={"x-opt-partition-key": "p", "x-own": Timestamp(5), "x-list": [1, Symbol("a")]},
    )
    space.send("news", [rich, message(b"", session_id="plain")], START)
    space.schedule("news", [message(b"later", session_id="s", at=START + 9)], START)
    kept(path, space)


def test_a_message_that_came_and_went_in_one_turn_is_not_written(path: Path) -> None:
    space = namespace()
    space.create_queue("orders", None, START)
    space.send("orders", [message(), message()], START)
    space.get_queue("orders").receive(2, START, delete=True)
    again = kept(path, space)
    assert query(path, "SELECT count(*) FROM message") == [(0,)]
    space = again
    space.send("orders", [message()], START)
    assert queue_of(space, "orders").peek(0, 1, START)[0].sequence_number == 3, "numbers go on"


def test_numbers_go_on_whichever_turn_took_the_newest_message(path: Path) -> None:
    space = namespace()
    space.create_queue("orders", None, START)
    for count in (2, 1):
        space.send("orders", [message()] * count, START)
        space = kept(path, space)
        assert queue_of(space, "orders").receive(1, START, delete=True)
        space = kept(path, space)
    assert queue_of(space, "orders").receive(1, START, delete=True)
    space = kept(path, space)
    assert queue_of(space, "orders").last_sequence == 3
    assert query(path, "SELECT sequence_number FROM place") == [(3,)]


def test_duplicates_are_known_again(path: Path) -> None:
    space = namespace()
    window = {"requires_duplicate_detection": True, "duplicate_detection_history_time_window": 60.0}
    space.create_queue("orders", QueueSettings(**window), START)  # type: ignore[arg-type]
    space.send("orders", [message(b"1", message_id="same")], START)
    space.send("orders", [message(b"2", message_id="other")], START + 30)
    space.get_queue("orders").receive(2, START + 30, delete=True)
    again = kept(path, space)
    again.send("orders", [message(b"dropped", message_id="same")], START + 59)
    assert queue_of(again, "orders").stored_count == 0
    again.tick(START + 62)
    again.send("orders", [message(b"taken", message_id="same")], START + 62)
    assert bodies(queue_of(again, "orders").peek(0, 9, START + 62)) == [b"taken"]
    write(path, again.take_events())
    assert query(path, "SELECT message_id FROM duplicate ORDER BY until") == [("other",), ("same",)]


def test_sessions_and_their_state(path: Path) -> None:
    space = namespace()
    space.create_queue("orders", QueueSettings(requires_session=True), START)
    orders = space.get_queue("orders")
    space.send("orders", [message(b"1", session_id="a"), message(b"2", session_id="b")], START)
    orders.set_session_state("a", b"state of a", START)
    orders.set_session_state("gone", b"x", START)
    orders.set_session_state("gone", None, START)
    orders.set_session_state("alone", b"", START + 5)
    lock = orders.accept_session("a", START)
    assert lock is not None
    again = queue_of(kept(path, space), "orders")
    assert again.get_session_state("a") == b"state of a"
    assert again.get_session_state("alone") == b""
    assert again.list_sessions() == ["a", "alone", "b"]
    assert again.list_sessions(updated_after=START + 1) == ["alone"]
    lock = again.accept_session("a", START)
    assert bodies(again.receive(9, START, session=lock)) == [b"1"], "the session's lock has ended"


def test_a_failed_commit_leaves_file_and_store_as_they_were(path: Path) -> None:
    space = namespace()
    space.create_queue("orders", None, START)
    with closing(SqliteStore(path)) as store:
        store.commit(space.take_events())
        space.create_queue("more", None, START)
        space.send("orders", [message(b"lost")], START)
        space.send("more", [message(b"lost")], START)
        pages = store._database.execute("PRAGMA page_count").fetchone()[0]
        store._database.execute(f"PRAGMA max_page_count = {pages}")
        space.send("more", [message(b"x" * 60_000)], START)
        with pytest.raises(Exception, match="full"):
            store.commit(space.take_events())
        store._database.execute("PRAGMA max_page_count = 1000000")
        assert store.commits == 1
        space = namespace()
        space.replay(store.load())
        assert [queue.path for queue in space.list_queues()] == ["orders"]
        assert queue_of(space, "orders").counts().total == 0
        space.create_queue("more", None, START)
        space.send("more", [message(b"kept")], START)
        store.commit(space.take_events())
    assert bodies(queue_of(load(path), "more").peek(0, 9, START)) == [b"kept"]


def test_a_namespace_that_refuses_says_nothing_to_the_store(path: Path) -> None:
    space = namespace()
    space.create_queue("orders", QueueSettings(requires_session=True), START)
    space.take_events()
    with pytest.raises(Refused):
        space.send("orders", [message(session_id=None)], START)
    assert space.take_events() == []
