"""A namespace's store in one SQLite file.

Rules
1. WAL and `synchronous=FULL`: when `commit` returns, the turn is on the disk. One transaction a turn, for all
   that it brought.
2. The store holds rows, not a log: each event says the new value of one row, or that it is gone. `load` gives
   the rows back as the same kinds of events, for the engine to replay.
3. Sequence numbers are never used twice, so the order of messages' events within a turn does not matter but
   for removals, which come last; a message that came and went in one turn is not written at all. Only the
   removal of an entity is a border: what came before it is written before it.
4. One process has the file, for as long as it is open (`locking_mode=EXCLUSIVE`); a second one is refused.
5. The shape of the file has a version (`user_version`). Older files are brought up to date by the numbered
   files in `sql/`, in one transaction each; a newer file than this program knows is refused and left as it
   is.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Any

from pairbus.amqp.codec import decode, encode
from pairbus.broker.engine.events import (
    DuplicateForgotten,
    DuplicateSeen,
    EntityKind,
    EntityPut,
    EntityRemoved,
    Event,
    MessageChanged,
    MessageRemoved,
    MessageStored,
    RulePut,
    RuleRemoved,
    SequenceAdvanced,
    SessionStateSet,
)
from pairbus.broker.engine.message import MessageState, StoredMessage
from pairbus.broker.engine.rules import Rule
from pairbus.broker.engine.settings import EntityStatus, QueueSettings, SubscriptionSettings, TopicSettings
from pairbus.broker.errors import StoreError

__all__ = ["SqliteStore"]

# A message's key is its place's number above and its sequence number below this many bits: 17 million million
# messages a place, half a million places.
_SEQUENCE_BITS = 44
_SEQUENCE_MASK = (1 << _SEQUENCE_BITS) - 1
# Pages of WAL before they are moved into the database: 32 MB, so that a busy second does not pay for it more
# than once.
_CHECKPOINT_PAGES = 8000
_SETTINGS = {
    EntityKind.QUEUE: QueueSettings,
    EntityKind.TOPIC: TopicSettings,
    EntityKind.SUBSCRIPTION: SubscriptionSettings,
}
_INSERT = "INSERT OR REPLACE INTO message VALUES (" + ", ".join("?" * 20) + ")"
_UPDATE = (
    "UPDATE message SET state = ?, delivery_count = ?, application_properties = ?, size = ? WHERE key = ?"
)
_DELETE = "DELETE FROM message WHERE key = ?"


class SqliteStore:
    """The rows of one namespace."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._places: dict[str, int] = {}
        self.commits = 0
        try:
            self._db = sqlite3.connect(
                path, isolation_level=None, check_same_thread=False, cached_statements=64
            )
            self._prepare()
        except sqlite3.Error as error:
            raise StoreError(f"cannot open the store {path}: {error}. Is another broker using it?") from error

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def commit(self, events: Sequence[Event]) -> None:
        """Write a turn, or raise StoreError and write nothing."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._write(events)
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            self._places.clear()  # some may have been numbered in vain; `load` reads them again
            raise StoreError(f"{self._path.name}: {error}") from error
        self.commits += 1

    def _roll_back(self) -> None:
        # SQLite may have rolled back by itself already, as it does when the disk is full.
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    # -- the shape of the file
    # ---------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        migrations = _migrations()
        if version > len(migrations):
            self._db.close()
            raise StoreError(
                f"the store {self._path} was written by a newer Pairbus (its shape is number {version}, "
                f"this one knows {len(migrations)}). Use that Pairbus, or another data directory."
            )
        for number, script in enumerate(migrations[version:], start=version + 1):
            self._db.executescript(f"BEGIN EXCLUSIVE; {script} PRAGMA user_version = {number}; COMMIT;")

    # -- writing
    # -----------------------------------------------------------------------------------------------------

    def _write(self, events: Sequence[Event]) -> None:
        batch = _Batch()
        for event in events:
            if type(event) is EntityRemoved:
                self._write_batch(batch)
                batch = _Batch()
                self._remove_entity(event.path)
            else:
                batch.take(event)
        self._write_batch(batch)

    def _write_batch(self, batch: "_Batch") -> None:
        db, key = self._db, self._key
        for event in batch.others:
            _OTHER_WRITERS[type(event)](self, event)
        gone = batch.removed
        stored = [
            _row(key(queue, number), message)
            for (queue, number), message in batch.stored.items()
            if (queue, number) not in gone
        ]
        if stored:
            db.executemany(_INSERT, stored)
        changed = [
            (event.state, event.delivery_count, event.application_properties_bytes, event.size, key(*at))
            for at, event in batch.changed.items()
            if at not in gone and at not in batch.stored
        ]
        if changed:
            db.executemany(_UPDATE, changed)
        if gone:
            db.executemany(_DELETE, [(key(*at),) for at in gone if at not in batch.stored])
        if batch.sequences:
            rows = [(number, self._place(queue)) for queue, number in batch.sequences.items()]
            db.executemany("UPDATE place SET sequence_number = ? WHERE number = ?", rows)

    def _key(self, queue: str, sequence_number: int) -> int:
        return self._place(queue) << _SEQUENCE_BITS | sequence_number

    def _place(self, path: str) -> int:
        number = self._places.get(path)
        if number is None:
            added = self._db.execute("INSERT INTO place (path) VALUES (?)", (path,)).lastrowid
            assert added is not None
            number = self._places[path] = added
        return number

    def _put_entity(self, event: EntityPut) -> None:
        settings = asdict(event.settings) | {"status": event.settings.status.value}
        self._db.execute(
            "INSERT OR REPLACE INTO entity VALUES (?, ?, ?, ?, ?, ?)",
            (
                event.path,
                event.kind.value,
                json.dumps(settings),
                event.created_at,
                event.updated_at,
                event.accessed_at,
            ),
        )

    def _remove_entity(self, path: str) -> None:
        """The entity, its rules, and every place under it: itself and its sub-queues, whose names begin with
        a dollar.
        """
        self._db.execute("DELETE FROM entity WHERE path = ?", (path,))
        self._db.execute("DELETE FROM rule WHERE path = ?", (path,))
        for place in [place for place in self._places if place == path or place.startswith(f"{path}/$")]:
            number = self._places.pop(place)
            first, last = number << _SEQUENCE_BITS, number << _SEQUENCE_BITS | _SEQUENCE_MASK
            self._db.execute("DELETE FROM message WHERE key BETWEEN ? AND ?", (first, last))
            self._db.execute("DELETE FROM session_state WHERE place = ?", (number,))
            self._db.execute("DELETE FROM duplicate WHERE place = ?", (number,))
            self._db.execute("DELETE FROM place WHERE number = ?", (number,))

    def _put_rule(self, event: RulePut) -> None:
        row = (event.path, event.rule.name, json.dumps(event.rule.to_dict()))
        self._db.execute(
            "INSERT INTO rule VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET rule = excluded.rule", row
        )

    def _remove_rule(self, event: RuleRemoved) -> None:
        self._db.execute("DELETE FROM rule WHERE path = ? AND name = ?", (event.path, event.name))

    def _set_session_state(self, event: SessionStateSet) -> None:
        place = self._place(event.queue)
        if event.state is None:
            self._db.execute(
                "DELETE FROM session_state WHERE place = ? AND session_id = ?", (place, event.session_id)
            )
        else:
            row = (place, event.session_id, event.state)
            self._db.execute("INSERT OR REPLACE INTO session_state VALUES (?, ?, ?)", row)

    def _keep_duplicate(self, event: DuplicateSeen) -> None:
        row = (self._place(event.queue), event.message_id, event.until)
        self._db.execute("INSERT OR REPLACE INTO duplicate VALUES (?, ?, ?)", row)

    def _forget_duplicates(self, event: DuplicateForgotten) -> None:
        place = self._place(event.queue)
        self._db.execute("DELETE FROM duplicate WHERE place = ? AND until <= ?", (place, event.until))

    # -- reading
    # -----------------------------------------------------------------------------------------------------

    def load(self) -> Iterator[Event]:
        """Every row, as the event that would write it."""
        try:
            self._places = dict(self._db.execute("SELECT path, number FROM place"))
            yield from self._load_entities()
            yield from self._load_contents()
        except sqlite3.Error as error:
            raise StoreError(f"cannot read the store {self._path}: {error}") from error

    def _load_entities(self) -> Iterator[Event]:
        # A topic's path is shorter than its subscriptions', so that it comes before them.
        for path, kind, settings, *times in self._db.execute(
            "SELECT * FROM entity ORDER BY length(path), path"
        ):
            yield EntityPut(EntityKind(kind), path, _settings(EntityKind(kind), json.loads(settings)), *times)
        for path, rule in self._db.execute("SELECT path, rule FROM rule ORDER BY rowid"):
            yield RulePut(path, Rule.from_dict(json.loads(rule)))

    def _load_contents(self) -> Iterator[Event]:
        paths = {number: path for path, number in self._places.items()}
        for path, number in self._db.execute("SELECT path, sequence_number FROM place"):
            yield SequenceAdvanced(path, number)
        for place, message_id, until in self._db.execute("SELECT * FROM duplicate ORDER BY place, until"):
            yield DuplicateSeen(paths[place], message_id, until)
        for place, session_id, state in self._db.execute("SELECT * FROM session_state"):
            yield SessionStateSet(paths[place], session_id, state)
        for key, *row in self._db.execute("SELECT * FROM message ORDER BY key"):
            yield MessageStored(paths[key >> _SEQUENCE_BITS], _message(key & _SEQUENCE_MASK, row))


class _Batch:
    """The events of a turn, by what has to be written."""

    __slots__ = ("changed", "others", "removed", "sequences", "stored")

    def __init__(self) -> None:
        self.stored: dict[tuple[str, int], StoredMessage] = {}
        self.changed: dict[tuple[str, int], MessageChanged] = {}
        self.removed: set[tuple[str, int]] = set()
        self.sequences: dict[str, int] = {}
        self.others: list[Event] = []  # few, and in their order: a rule may come and go in one turn

    def take(self, event: Event) -> None:
        kind = type(event)
        if kind is MessageStored:
            self.stored[event.queue, event.message.sequence_number] = event.message  # type: ignore[union-attr]
        elif kind is SequenceAdvanced:
            self.sequences[event.queue] = event.sequence_number  # type: ignore[union-attr]
        elif kind is MessageRemoved:
            self.removed.add(event)  # type: ignore[arg-type]  # a named tuple: queue and number
        elif kind is MessageChanged:
            self.changed[event.queue, event.sequence_number] = event  # type: ignore[union-attr, assignment]
        else:
            self.others.append(event)


_OTHER_WRITERS: dict[type[Any], Callable[[SqliteStore, Any], None]] = {
    EntityPut: SqliteStore._put_entity,
    RuleRemoved: SqliteStore._remove_rule,
    RulePut: SqliteStore._put_rule,
    SessionStateSet: SqliteStore._set_session_state,
    DuplicateSeen: SqliteStore._keep_duplicate,
    DuplicateForgotten: SqliteStore._forget_duplicates,
}


def _migrations() -> list[str]:
    """The numbered scripts, oldest first."""
    files = resources.files("pairbus.broker").joinpath("sql").iterdir()
    scripts = sorted((file.name, file) for file in files if file.name.endswith(".sql"))
    return [file.read_text(encoding="utf-8") for _, file in scripts]


def _settings(
    kind: EntityKind, plain: dict[str, Any]
) -> QueueSettings | TopicSettings | SubscriptionSettings:
    settings: type[QueueSettings | TopicSettings | SubscriptionSettings] = _SETTINGS[kind]
    return settings(**{**plain, "status": EntityStatus(plain["status"])})


def _row(key: int, message: StoredMessage) -> tuple[Any, ...]:
    return (
        key,
        int(message.state),
        message.delivery_count,
        message.enqueued_sequence_number,
        message.enqueued_at,
        message.expires_at,
        message.scheduled_for,
        message.message_id,
        message.session_id,
        message.partition_key,
        message.durable,
        message.priority,
        message.ttl_ms,
        encode(message.annotations) if message.annotations else None,
        message.properties_bytes,
        message.application_properties_bytes,
        message.body_bytes,
        message.size,
        message.dead_letter_source,
        message.hops,
    )


def _message(sequence_number: int, row: list[Any]) -> StoredMessage:
    state, delivery_count, enqueued, enqueued_at, expires_at, scheduled_for, message_id, session_id, *rest = (
        row
    )
    partition_key, durable, priority, ttl_ms, annotations, properties, applied, body, size, source, hops = (
        rest
    )
    return StoredMessage(
        sequence_number,
        enqueued,
        enqueued_at,
        expires_at,
        scheduled_for,
        MessageState(state),
        delivery_count,
        message_id,
        session_id,
        partition_key,
        None if durable is None else bool(durable),
        priority,
        ttl_ms,
        {} if annotations is None else decode(annotations)[0],
        properties,
        applied,
        body,
        size,
        source,
        hops,
    )
