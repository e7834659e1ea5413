"""The books of the engine and those of the store are the same: after each turn that is committed, what is
loaded is what is in memory, locks aside.

Messages come in batches and in runs, of many lives, to entities of all kinds, and expire many in a moment:
while they are locked or put aside, with their contents at hand or not, and wherever the clock jumps to.
"""

import os
import shutil
import tempfile
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from pairbus.broker.engine.actions import SqlAction
from pairbus.broker.engine.breath import PAUSE
from pairbus.broker.engine.errors import Refused
from pairbus.broker.engine.filters import SqlFilter
from pairbus.broker.engine.message import Incoming, MessageState
from pairbus.broker.engine.queue import MessageQueue
from pairbus.broker.engine.rules import Rule
from pairbus.broker.engine.sessions import SessionLock
from pairbus.broker.engine.settings import QueueSettings, SubscriptionSettings, TopicSettings
from pairbus.broker.store.sqlite import SqliteStore
from tests.engine.observing import check_books, observe
from tests.engine.samples import START, message, namespace
from tests.store.files import contents_of, store_path

COUNTED: dict[str, Any] = {"max_delivery_count": 3, "lock_duration": 5.0}
BURIES: dict[str, Any] = {**COUNTED, "dead_lettering_on_message_expiration": True}
QUEUES = {
    "lives": QueueSettings(**BURIES),
    "short": QueueSettings(**COUNTED, default_message_time_to_live=6.0),
    "buries": QueueSettings(**BURIES, default_message_time_to_live=6.0),
    "passes": QueueSettings(forward_to="buries", default_message_time_to_live=4.0),
    "passes-on": QueueSettings(
        **BURIES, default_message_time_to_live=3.0, forward_dead_lettered_messages_to="short"
    ),
    "sessions": QueueSettings(**BURIES, requires_session=True, default_message_time_to_live=6.0),
    "once": QueueSettings(
        **COUNTED,
        default_message_time_to_live=5.0,
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window=8.0,
    ),
    "idles": QueueSettings(**COUNTED, auto_delete_on_idle=40.0, default_message_time_to_live=60.0),
}
SUBSCRIPTIONS = {
    "all": SubscriptionSettings(**COUNTED, default_message_time_to_live=6.0),
    "some": SubscriptionSettings(**BURIES),
    "seats": SubscriptionSettings(**BURIES, requires_session=True),
    "onward": SubscriptionSettings(forward_to="lives"),
    "idles": SubscriptionSettings(**BURIES, auto_delete_on_idle=40.0),
}
SOME = Rule("some", SqlFilter("n > 1"), SqlAction("SET n = 0"))
DEAD = "/$DeadLetterQueue"
SENT_TO = (*QUEUES, "news")
OF_NEWS = tuple(f"news/Subscriptions/{name}" for name in SUBSCRIPTIONS)
RECEIVED_FROM = (
    *("lives", "short", "buries", "passes-on", "once", "idles", f"buries{DEAD}", f"passes-on{DEAD}"),
    *(OF_NEWS[0], OF_NEWS[1], OF_NEWS[4], OF_NEWS[1] + DEAD),
)
WITH_SESSIONS = ("sessions", OF_NEWS[2])
SETTLEMENTS = ("complete", "abandon", "defer", "dead_letter", "release")
# As many as expire, join a line or are written in a moment, and one more or fewer.
COUNTS = (1, 2, 3, 5, 63, 64, 65, 127, 128, 129, 200)
LIVES = (None, None, 1.0, 2.0, 2.25, 2.5, 6.0, 6.5, 30.0)
WAITS = (0.0, 0.25, 0.5, 0.75, 1.0, 2.0, 5.0, 6.0, 7.0, 41.0, 3600.0)


class Books(RuleBasedStateMachine):
    """Does much to a namespace with a store, and compares what both have."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="pairbus-test-"))
        self.store = SqliteStore(store_path(self.directory))
        self.store._database.execute("PRAGMA synchronous = OFF")  # hundreds of turns, and no power cut
        self.now = START
        self.sent = 0
        self.tokens: list[tuple[MessageQueue, uuid.UUID]] = []
        self.locks: list[tuple[MessageQueue, SessionLock]] = []
        self.space = namespace()
        self.contents = contents_of(self.store)
        self._make_entities()
        self.end_turn()

    def teardown(self) -> None:
        try:
            self.end_turn()
        finally:
            self.store.close()
            shutil.rmtree(self.directory)

    def _make_entities(self) -> None:
        """Those that are not there, be it for the first time."""
        queues = {queue.path for queue in self.space.list_queues()}
        for name, given in QUEUES.items():
            if name not in queues:
                self.space.create_queue(name, given, self.now)
        if not self.space.list_topics():
            self.space.create_topic("news", TopicSettings(default_message_time_to_live=9.0), self.now)
        news = self.space.get_topic("news")
        for name, of_subscription in SUBSCRIPTIONS.items():
            if news.find_subscription(name) is None:
                rule_ = SOME if name == "some" else None
                self.space.create_subscription("news", name, of_subscription, self.now, rule_)

    # -- turns

    @rule()
    def end_turn(self) -> None:
        """What is committed is what is there."""
        events = self.space.take_events()
        self.contents.note(events)
        self.store.commit(events)
        self.contents.settle()
        loaded = namespace()
        loaded.replay(self.store.load(), now=self.now)
        assert observe(loaded) == observe(self.space)
        check_books(self.space)
        check_books(loaded)

    @rule()
    def restart(self) -> None:
        """Go on with what was loaded."""
        self.end_turn()
        self.space = namespace()
        self.space.replay(self.store.load(), now=self.now)
        self.tokens.clear()
        self.locks.clear()
        self.contents = contents_of(self.store)

    def act(self, operation: Callable[[], object], *, in_pieces: bool) -> None:
        """Do something, whole or in pieces, between which contents are let go that the store has."""
        marker = PAUSE.set(self.contents._turn_over if in_pieces else None)
        try:
            operation()
        except Refused:
            pass  # and nothing of it is done
        finally:
            PAUSE.reset(marker)

    # -- time

    @rule(seconds=st.sampled_from(WAITS), in_pieces=st.booleans(), is_set=st.booleans(), ends=st.booleans())
    def wait(self, seconds: float, in_pieces: bool, is_set: bool, ends: bool) -> None:
        """Time passes, or somebody sets the clock: then locks last as long as they would have."""
        self.now += seconds
        if is_set:
            self.space.shift_durations(seconds)
        self.act(lambda: self.space.tick(self.now), in_pieces=in_pieces)
        deadline = self.space.next_deadline()
        assert deadline is None or deadline > self.now
        for entity in self.space._entities():
            for each in (entity, *(entity.sub_queues() if isinstance(entity, MessageQueue) else ())):
                assert not [one for one in each.table.since(0) if self._is_late(one)]
        if ends:
            self.end_turn()

    def _is_late(self, one: Any) -> bool:
        if one.state is MessageState.SCHEDULED:
            return bool(one.scheduled_for <= self.now)
        waits = one.state is MessageState.ACTIVE and one.lock_token is None
        return waits and one.expires_at is not None and one.expires_at <= self.now

    @rule(seconds=st.sampled_from(WAITS))
    def let_pass(self, seconds: float) -> None:
        """Time passes, and nobody sees it yet."""
        self.now += seconds

    # -- messages that come

    @rule(
        path=st.sampled_from(SENT_TO),
        count=st.sampled_from(COUNTS),
        lives=st.lists(st.sampled_from(LIVES), min_size=1, max_size=3),
        delays=st.sampled_from([(None,), (None,), (None,), (None, 2.0), (3.0, 2.5)]),
        how=st.sampled_from(["batch", "batch", "run", "schedule"]),
        in_pieces=st.booleans(),
    )
    def send(
        self,
        path: str,
        count: int,
        lives: list[float | None],
        delays: tuple[float | None, ...],
        how: str,
        in_pieces: bool,
    ) -> None:
        made = [
            self._message(path, at, lives[at % len(lives)], delays[at % len(delays)]) for at in range(count)
        ]

        def operation() -> None:
            if how == "schedule":
                self.space.schedule(path, made, self.now)
            elif how == "batch" or not self.space.send_run(path, made, self.now):
                self.space.send(path, made, self.now)

        self.act(operation, in_pieces=in_pieces)

    def _message(self, path: str, at: int, life: float | None, delay: float | None) -> Incoming:
        self.sent += 1
        return message(
            b"%d" % self.sent,
            message_id=f"m{self.sent % 150}" if at % 5 else None,
            session_id=f"s{at % 3}" if path in ("sessions", "news") or at % 7 == 6 else None,
            ttl=life,
            at=None if delay is None else self.now + delay,
            properties={"n": at % 4} if at % 3 else None,  # without any it is kept as it came
        )

    @rule(path=st.sampled_from(SENT_TO), share=st.integers(1, 3))
    def cancel(self, path: str, share: int) -> None:
        table = self.space.node(path).table if self._is_there(path) else None
        found = [one for one in table.since(0) if one.state is MessageState.SCHEDULED] if table else []
        numbers = [one.sequence_number for one in found[::share]]
        self.act(lambda: self.space.cancel_scheduled(path, numbers, self.now), in_pieces=False)

    # -- messages that go

    @rule(
        path=st.sampled_from(RECEIVED_FROM),
        limit=st.sampled_from([1, 3, 64, 100]),
        delete=st.sampled_from([False, False, False, True]),
        at_hand=st.booleans(),
    )
    def receive(self, path: str, limit: int, delete: bool, at_hand: bool) -> None:
        if self._is_there(path):
            queue = self._queue(path)
            self.act(lambda: self._take(queue, limit, delete=delete, at_hand=at_hand), in_pieces=False)

    def _take(self, queue: MessageQueue, limit: int, **options: Any) -> None:
        found = queue.receive(limit, self.now, **options)
        assert not [one for one in found if (one.message.expires_at or self.now + 1) <= self.now]
        self.tokens += [(queue, one.lock_token) for one in found if one.lock_token is not None]

    @rule(path=st.sampled_from(WITH_SESSIONS), session=st.sampled_from([None, "s0", "s1", "s2"]))
    def accept(self, path: str, session: str | None) -> None:
        def operation() -> None:
            queue = self._queue(path)
            lock = queue.accept_session(session, self.now)
            if lock is not None:
                self.locks.append((queue, lock))

        if self._is_there(path):
            self.act(operation, in_pieces=False)

    @precondition(lambda self: self.locks)
    @rule(data=st.data(), limit=st.sampled_from([1, 3, 70]), state=st.none() | st.binary(max_size=3))
    def read_session(self, data: st.DataObject, limit: int, state: bytes | None) -> None:
        queue, lock = data.draw(st.sampled_from(self.locks))

        def operation() -> None:
            self._take(queue, limit, session=lock)
            queue.set_session_state(lock.session_id, state, self.now)

        self.act(operation, in_pieces=False)

    @precondition(lambda self: self.locks)
    @rule(data=st.data(), how=st.sampled_from(["renew_session", "release_session"]))
    def end_session(self, data: st.DataObject, how: str) -> None:
        queue, lock = data.draw(st.sampled_from(self.locks))
        self.act(lambda: getattr(queue, how)(lock, self.now), in_pieces=False)

    @precondition(lambda self: self.tokens)
    @rule(
        how=st.sampled_from([*SETTLEMENTS, "renew", "complete_all"]),
        count=st.sampled_from([1, 3, 64, 100]),
        is_last=st.booleans(),
        note=st.none() | st.integers(0, 9),
    )
    def settle(self, how: str, count: int, is_last: bool, note: int | None) -> None:
        """Some of those that are locked, or were."""
        chosen = self.tokens[-count:] if is_last else self.tokens[:count]
        if how == "complete_all":
            queue = chosen[0][0]
            named = [token for of, token in chosen if of is queue]
            self.act(lambda: queue.complete_all(named, self.now), in_pieces=False)
        options = (
            {"properties": {"note": note}} if note and how in ("abandon", "defer", "dead_letter") else {}
        )
        for queue, token in chosen if how != "complete_all" else ():
            self.act(lambda q=queue, t=token: getattr(q, how)(t, self.now, **options), in_pieces=False)  # type: ignore[misc]
        if how != "renew":
            gone = set(chosen)
            self.tokens = [one for one in self.tokens if one not in gone]

    @rule(path=st.sampled_from(RECEIVED_FROM), share=st.integers(1, 3), delete=st.booleans())
    def receive_deferred(self, path: str, share: int, delete: bool) -> None:
        if not self._is_there(path):
            return
        queue = self._queue(path)
        found = [one for one in queue.table.since(0) if one.state is MessageState.DEFERRED]
        numbers = [one.sequence_number for one in found[::share]]

        def operation() -> None:
            handed = queue.receive_deferred(numbers, self.now, delete=delete)
            self.tokens += [(queue, one.lock_token) for one in handed if one.lock_token is not None]

        self.act(operation, in_pieces=False)

    # -- entities

    @rule(name=st.sampled_from(("lives", "buries", "once", "idles")), life=st.sampled_from([None, 2.0, 6.0]))
    def change(self, name: str, life: float | None) -> None:
        if self._is_there(name):
            now = replace(QUEUES[name], default_message_time_to_live=life)
            self.act(lambda: self.space.update_queue(name, now, self.now), in_pieces=False)

    @rule(name=st.sampled_from(("short", "news", "all", "some")), is_back=st.booleans())
    def delete(self, name: str, is_back: bool) -> None:
        """And perhaps make it anew in the same turn."""

        def operation() -> None:
            if name == "news":
                self.space.delete_topic(name, self.now)
            elif name in QUEUES:
                self.space.delete_queue(name, self.now)
            else:
                self.space.delete_subscription("news", name, self.now)

        self.act(operation, in_pieces=True)
        if is_back:
            self._make_entities()

    @rule()
    def make_anew(self) -> None:
        self._make_entities()

    # -- inside

    def _is_there(self, path: str) -> bool:
        try:
            self.space.node(path)
        except Refused:
            return False
        return True

    def _queue(self, path: str) -> MessageQueue:
        node = self.space.node(path)
        assert isinstance(node, MessageQueue)
        return node


Books.TestCase.settings = settings(
    max_examples=int(os.environ.get("PAIRBUS_BOOKS", "10")), stateful_step_count=30
)
TestBooks = Books.TestCase


def test_ids_that_come_and_are_forgotten_in_one_turn_are_not_kept() -> None:
    """A turn may take longer than the ids count: a disk stands still, or somebody sets the clock."""
    books = Books()
    books.send("once", 2, [None], (None,), "batch", in_pieces=False)
    books.wait(3600.0, in_pieces=False, is_set=False, ends=False)
    books.send("once", 2, [None], (None,), "batch", in_pieces=False)
    books.teardown()
