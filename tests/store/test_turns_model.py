"""A namespace and its store against a model that is simple enough to be right, turn by turn, through failed
commits and kills.

The model is lists of what lies where. A turn that is committed becomes what is known; one that is not leaves
the list of the turn before. So after whatever happens what was acknowledged is there, once, and nothing else.
"""

from __future__ import annotations

import copy
import math
import shutil
import sqlite3
import tempfile
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pairbus.broker.engine.errors import Refused
from pairbus.broker.engine.message import MessageState
from pairbus.broker.engine.queue import MessageQueue
from pairbus.broker.engine.sessions import SessionLock
from pairbus.broker.engine.settings import QueueSettings
from pairbus.broker.engine.transaction import NotedSend, NotedSettlement, NotedStep, discharge
from pairbus.broker.errors import StoreError
from pairbus.broker.store.sqlite import SqliteStore
from tests.engine.observing import check_books
from tests.engine.samples import START, application_properties, body_of, message, namespace
from tests.store.files import contents_of, store_path

T = TypeVar("T")
LOCK, MOST, WINDOW = 5.0, 3, 8.0
DEAD = "/$DeadLetterQueue"
COUNTED: dict[str, Any] = {"max_delivery_count": MOST, "lock_duration": LOCK}
QUEUES = {
    "plain": QueueSettings(**COUNTED, dead_lettering_on_message_expiration=True),
    "sessions": QueueSettings(**COUNTED, requires_session=True),
    "once": QueueSettings(
        **COUNTED,
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window=WINDOW,
    ),
    "passes": QueueSettings(forward_to="plain"),
    "buries": QueueSettings(**COUNTED, forward_dead_lettered_messages_to="once"),
}
SENT_TO = tuple(QUEUES)
RECEIVED_FROM = ("plain", "once", "buries", f"plain{DEAD}")
SETTLEMENTS = ("complete", "abandon", "defer", "dead_letter", "release")
NAMES, SESSIONS = ("a", "b", "c"), ("s", "t")


@dataclass
class Known:
    """A message of the model. `token` tells that it is locked, and is not committed."""

    body: bytes
    name: str
    session: str | None = None
    state: MessageState = MessageState.ACTIVE
    count: int = 0
    note: int | None = None
    due: float = 0.0
    expires: float | None = None
    token: uuid.UUID | None = None
    until: float = 0.0


@dataclass
class Picture:
    """What there is: messages by queue in the order of their numbers, ids that were seen, session states."""

    rooms: dict[str, list[Known]] = field(default_factory=dict)
    seen: dict[str, float] = field(default_factory=dict)
    states: dict[str, bytes] = field(default_factory=dict)

    def arrive(self, path: str, each: Known, now: float) -> None:
        """A message is enqueued."""
        if path == "passes":
            path = "plain"
        if path == "once":
            if self.seen.get(each.name, now) > now:
                return
            self.seen[each.name] = now + WINDOW
        self.rooms[path].append(each)

    def bury(self, path: str, each: Known, now: float) -> None:
        self.rooms[path].remove(each)
        dead = Known(each.body, each.name, each.session, count=each.count, note=each.note)
        if path == "buries":
            self.arrive("once", dead, now)
        else:
            self.rooms[path + DEAD].append(dead)

    def give_back(self, path: str, each: Known, now: float, *, counted: bool) -> None:
        each.token = None
        if counted and not path.endswith(DEAD):
            each.count += 1
            if each.count >= MOST:
                self.bury(path, each, now)
                return
        if each.state is MessageState.ACTIVE and each.expires is not None and each.expires <= now:
            self.bury(path, each, now)

    def settle(self, path: str, each: Known, how: str, note: int | None, now: float) -> None:
        if note is not None:
            each.note = note
        if how == "complete":
            self.rooms[path].remove(each)
        elif how == "dead_letter":
            self.bury(path, each, now)
        else:
            if how == "defer":
                each.state = MessageState.DEFERRED
            self.give_back(path, each, now, counted=how != "release")

    def let_pass(self, now: float) -> None:
        """All that is due by now."""
        for path, room in self.rooms.items():
            for each in sorted(room, key=lambda each: each.until):
                if each.token is not None and each.until <= now:
                    self.give_back(path, each, now, counted=True)
            for each in list(room):
                if each.expires is not None and each.expires <= now and _waits(each):
                    self.bury(path, each, now)
        for path, room in self.rooms.items():
            for each in sorted(room, key=lambda each: each.due):
                if each.state is MessageState.SCHEDULED and each.due <= now:
                    room.remove(each)
                    each.state = MessageState.ACTIVE
                    self.rooms["plain" if path == "passes" else path].append(each)

    def unlocked(self) -> Picture:
        """As it is after a restart."""
        picture = copy.deepcopy(self)
        for room in picture.rooms.values():
            for each in room:
                each.token = None
        return picture


class FragileStore(SqliteStore):
    """Fails where it is told to: after so many groups of rows, or in the last step. `killed` is called then
    instead, to see what a kill would leave.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._database.execute("PRAGMA synchronous = OFF")  # hundreds of turns, and no power cut
        self.rows_left: int | None = None
        self.fails_last = False
        self.killed: Callable[[], None] | None = None

    def _write_many(self, name: str, rows: Iterable[tuple[Any, ...]]) -> int:
        if self.rows_left is not None:
            self.rows_left -= 1
            if self.rows_left < 0:
                self._fail()
        return super()._write_many(name, rows)

    def finish(self) -> None:
        if self.fails_last:
            try:
                self._fail()
            except sqlite3.Error as error:
                self._undo(error)
        super().finish()

    def _fail(self) -> None:
        if self.killed is not None:
            self.killed()
        raise sqlite3.OperationalError("the disk fails")


class Turns(RuleBasedStateMachine):
    """Does the same to a namespace with a store and to the model, and compares."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="pairbus-test-"))
        self.now = START
        self.sent = self.kills = 0
        self.locks: dict[str, SessionLock] = {}
        # What was acknowledged under which number: none is ever another message's.
        self.numbers: dict[tuple[str, int], bytes] = {}
        self.store = FragileStore(store_path(self.directory / "0"))
        self.space = namespace()
        for name, given in QUEUES.items():
            self.space.create_queue(name, given, self.now)
        self.committed = Picture({path: [] for name in QUEUES for path in (name, name + DEAD)})
        self.pending = copy.deepcopy(self.committed)
        self.contents = contents_of(self.store)
        self._commit()

    def teardown(self) -> None:
        try:
            self.restart()
            self.the_same_is_there()
            for path in SENT_TO:
                self.send(path, ["new"], SESSIONS[0], None, in_a_run=False)
            self._commit()
        finally:
            self.store.close()
            shutil.rmtree(self.directory)

    # -- turns

    def _commit(self) -> None:
        events = self.space.take_events()
        self.contents.note(events)
        self.store.commit(events)
        self.contents.settle()
        self.committed = copy.deepcopy(self.pending)
        for path in self.pending.rooms:
            for each in self._queue(path).table.since(0):
                assert self.numbers.setdefault((path, each.sequence_number), body_of(each)) == body_of(each)

    def _rebuild(self) -> None:
        """Everything that is not committed is forgotten, and no lock holds any more."""
        self.space = namespace()
        self.space.replay(self.store.load(), now=self.now)
        self.pending = self.committed.unlocked()
        self.locks.clear()
        self.contents = contents_of(self.store)
        self.wait(0.0)  # what was due meanwhile happens now

    def _leave_behind(self) -> Path:
        """What a kill would leave right now."""
        self.kills += 1
        path = store_path(self.directory / str(self.kills))
        for file in self.store._path.parent.iterdir():
            if not file.name.endswith("-shm"):
                shutil.copy(file, path.parent / file.name)
        return path

    def _restart(self, path: Path) -> None:
        self.store.close()
        self.store = FragileStore(path)
        self._rebuild()

    @rule()
    def end_turn(self) -> None:
        self._commit()

    @rule(rows=st.none() | st.integers(0, 3), kills=st.booleans(), is_begun=st.booleans())
    def fail_to_commit(self, rows: int | None, kills: bool, is_begun: bool) -> None:
        """The disk fails, or the process is killed, before the commit has come to its end, or has begun."""
        if not is_begun:
            self._restart(self._leave_behind())
            return
        events, left = self.space.take_events(), list[Path]()
        self.store.rows_left, self.store.fails_last = rows, True
        if kills:
            self.store.killed = lambda: left.append(self._leave_behind())
        try:
            self.store.commit(events)
        except StoreError:
            pass
        else:
            raise AssertionError("it was to fail")
        if kills:
            self._restart(left[0])
        else:
            self.store.rows_left, self.store.fails_last = None, False
            self._rebuild()

    @rule()
    def restart(self) -> None:
        """It is killed, after a commit of which nobody was told."""
        self._commit()
        self._restart(self._leave_behind())

    @rule(seconds=st.sampled_from([0.5, 2.0, 3.0, 6.0]))
    def wait(self, seconds: float) -> None:
        """Not in the midst of a second of any deadline: whole and half ones would tell on the order."""
        self.now += seconds
        self.space.tick(self.now)
        self._pass()

    def _pass(self) -> None:
        for session_id, lock in list(self.locks.items()):
            if lock.locked_until <= self.now:
                del self.locks[session_id]
        self.pending.let_pass(self.now)

    # -- messages that come

    def _make(self, path: str, name: str, session: str, **fields: Any) -> tuple[Any, Known]:
        self.sent += 1
        body = b"%d" % self.sent
        session_id = session if path == "sessions" else None
        incoming = message(body, message_id=name, session_id=session_id, **fields)
        return incoming, Known(body, name, session_id)

    @rule(
        path=st.sampled_from(SENT_TO),
        names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=3),
        session=st.sampled_from(SESSIONS),
        life=st.sampled_from([None, None, 4.0]),
        in_a_run=st.booleans(),
    )
    def send(self, path: str, names: list[str], session: str, life: float | None, in_a_run: bool) -> None:
        life = life if path == "plain" else None
        made = [self._make(path, name, session, ttl=life) for name in names]
        incoming = [each for each, _ in made]
        if not (in_a_run and self.space.send_run(path, incoming, self.now)):
            self.space.send(path, incoming, self.now)
        for _, known in made:
            known.expires = None if life is None else self.now + life
            self.pending.arrive(path, known, self.now)

    @rule(
        path=st.sampled_from(SENT_TO), name=st.sampled_from(NAMES), session=st.sampled_from(SESSIONS),
        delay=st.sampled_from([2.0, 3.0]),
    )  # fmt: skip
    def schedule(self, path: str, name: str, session: str, delay: float) -> None:
        incoming, known = self._make(path, name, session, at=self.now + delay)
        known.state, known.due = MessageState.SCHEDULED, self.now + delay
        self.space.schedule(path, [incoming], self.now)
        if path == "once":
            if self.pending.seen.get(name, self.now) > self.now:
                return
            self.pending.seen[name] = self.now + WINDOW
        self.pending.rooms[path].append(known)

    @precondition(lambda self: self.some(_is_scheduled))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        path, each = data.draw(st.sampled_from(self.some(_is_scheduled)))
        self.space.cancel_scheduled(path, [self._number(path, each)], self.now)
        self.pending.rooms[path].remove(each)

    # -- messages that go

    @precondition(lambda self: self.sources())
    @rule(
        data=st.data(),
        limit=st.integers(1, 3),
        delete=st.sampled_from([False, False, False, True]),
        how=st.none() | st.sampled_from(SETTLEMENTS),
    )
    def receive(self, data: st.DataObject, limit: int, delete: bool, how: str | None) -> None:
        """And settle what comes, at once or later."""
        path = data.draw(st.sampled_from(self.sources()))
        found = self._queue(path).receive(limit, self.now, delete=delete)
        waiting = {each.body: each for each in self.pending.rooms[path] if _waits(each)}
        assert len(found) == min(limit, len(waiting))
        for handout in found:
            each = waiting.pop(body_of(handout.message))
            if delete:
                self.pending.rooms[path].remove(each)
            else:
                each.token, each.until = handout.lock_token, handout.locked_until
                if how is not None:
                    self._settle(path, each, how, self.sent)

    @rule(session=st.sampled_from(SESSIONS), state=st.none() | st.binary(min_size=1, max_size=3))
    def read_session(self, session: str, state: bytes | None) -> None:
        queue = self._queue("sessions")
        if session not in self.locks:
            lock = queue.accept_session(session, self.now)
            assert lock is not None
            self.locks[session] = lock
        room = [each for each in self.pending.rooms["sessions"] if each.session == session and _waits(each)]
        found = queue.receive(2, self.now, session=self.locks[session])
        assert [body_of(each.message) for each in found] == [each.body for each in room[:2]]
        for each, handout in zip(room, found, strict=False):
            each.token, each.until = handout.lock_token, self.locks[session].locked_until
        queue.set_session_state(session, state, self.now)
        self.pending.states.pop(session, None)
        if state is not None:
            self.pending.states[session] = state

    @precondition(lambda self: self.locks)
    @rule(data=st.data())
    def leave_session(self, data: st.DataObject) -> None:
        session = data.draw(st.sampled_from(sorted(self.locks)))
        self._queue("sessions").release_session(self.locks.pop(session), self.now)
        for each in self.pending.rooms["sessions"]:
            if each.session == session:
                each.token = None

    @precondition(lambda self: self.some(_is_locked))
    @rule(data=st.data(), how=st.sampled_from(SETTLEMENTS), note=st.none() | st.integers(0, 9))
    def settle(self, data: st.DataObject, how: str, note: int | None) -> None:
        path, each = data.draw(st.sampled_from(self.some(_is_locked)))
        self._settle(path, each, how, note)

    def _settle(self, path: str, each: Known, how: str, note: int | None) -> None:
        how = "complete" if path.endswith(DEAD) else how
        assert each.token is not None
        note = note if how in ("abandon", "defer", "dead_letter") else None
        self._settling(path, each.token, how, note)(self.now)
        self.pending.settle(path, each, how, note, self.now)

    @precondition(lambda self: self.some(_is_put_aside))
    @rule(data=st.data())
    def receive_deferred(self, data: st.DataObject) -> None:
        path, each = data.draw(st.sampled_from(self.some(_is_put_aside)))
        session = self.locks.get(each.session or "")
        if (path == "sessions" and session is None) or (each.expires or math.inf) <= self.now:
            return
        session = session if path == "sessions" else None
        number = self._number(path, each)
        (handout,) = self._queue(path).receive_deferred([number], self.now, session=session)
        assert body_of(handout.message) == each.body
        each.token, each.until = handout.lock_token, handout.locked_until

    @rule(data=st.data(), paths=st.lists(st.sampled_from(SENT_TO), max_size=2), is_lost=st.booleans())
    def transact(self, data: st.DataObject, paths: list[str], is_lost: bool) -> None:
        """Some sends and some settlements, in one; if one of the locks is lost, nothing of it."""
        locked = self.some(_is_locked)
        chosen = data.draw(st.permutations(locked))[: data.draw(st.integers(0, 3))]
        steps, acts = list[NotedStep](), list[Callable[[], None]]()
        for path in paths:
            incoming, known = self._make(path, data.draw(st.sampled_from(NAMES)), SESSIONS[0])
            steps.append(NotedSend(path, [incoming]))
            acts.append(lambda path=path, known=known: self.pending.arrive(path, known, self.now))  # type: ignore[misc]
        for path, each in chosen:
            assert each.token is not None
            how = data.draw(st.sampled_from(SETTLEMENTS))
            how = "complete" if path.endswith(DEAD) else how
            steps.append(self._step(path, each.token, how))
            acts.append(
                lambda path=path, each=each, how=how: self.pending.settle(path, each, how, None, self.now)  # type: ignore[misc]
            )
        if is_lost:
            steps.append(self._step("plain", uuid.uuid4(), "complete"))
        try:
            discharge(self.space, steps, self.now)
        except Refused:
            assert is_lost
            return
        assert not is_lost
        for act in acts:
            act()

    # -- inside

    def _queue(self, path: str) -> MessageQueue:
        node = self.space.node(path)
        assert isinstance(node, MessageQueue)
        return node

    def _settling(self, path: str, token: uuid.UUID, how: str, note: int | None) -> Callable[[float], object]:
        settle = getattr(self._queue(path), how)
        changes = {} if note is None else {"properties": {"note": note}}
        return lambda now: settle(token, now, **changes)

    def _step(self, path: str, token: uuid.UUID, how: str) -> NotedSettlement:
        return NotedSettlement(
            queue=self._queue(path),
            token=token,
            settle=self._settling(path, token, how, None),
            properties=lambda: None,
            size=0,
            buries=how == "dead_letter",
        )

    def some(self, is_meant: Callable[[Known], bool]) -> list[tuple[str, Known]]:
        return [(path, each) for path, room in self.pending.rooms.items() for each in room if is_meant(each)]

    def sources(self) -> list[str]:
        return [path for path in RECEIVED_FROM if any(map(_waits, self.pending.rooms[path]))]

    def _number(self, path: str, each: Known) -> int:
        found = (one for one in self._queue(path).table.since(0) if body_of(one) == each.body)
        return next(one.sequence_number for one in found)

    # -- what must hold

    @invariant()
    def the_same_is_there(self) -> None:
        for path, room in self.pending.rooms.items():
            found = [
                (body_of(one), one.state, one.delivery_count, application_properties(one).get("note"))
                for one in self._queue(path).table.since(0)
            ]
            known = [(each.body, each.state, each.count, each.note) for each in room]
            assert sorted(found) == sorted(known), path
        states = {one: self._queue("sessions").get_session_state(one) for one in SESSIONS}
        assert states == {one: self.pending.states.get(one) for one in SESSIONS}
        history = self.space.get_queue("once").duplicates
        assert history is not None
        for name in NAMES:
            assert history.knows(name, self.now) is (self.pending.seen.get(name, self.now) > self.now)
        check_books(self.space)


def _waits(each: Known) -> bool:
    return each.state is MessageState.ACTIVE and each.token is None


def _is_locked(each: Known) -> bool:
    return each.token is not None


def _is_scheduled(each: Known) -> bool:
    return each.state is MessageState.SCHEDULED


def _is_put_aside(each: Known) -> bool:
    return each.state is MessageState.DEFERRED and each.token is None


Turns.TestCase.settings = settings(max_examples=20, stateful_step_count=30)
TestTurns = Turns.TestCase
