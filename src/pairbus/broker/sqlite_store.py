"""A namespace's store in one SQLite file.

Rules
1. WAL and `synchronous=FULL`: when `commit` returns, the turn is on the disk. One transaction a turn, for all
   that it brought.
2. The store holds rows, not a log: each event says the new value of one row, or that it is gone. `load` gives
   the rows back as the same kinds of events, for the engine to replay.
3. Messages of a turn are written together, whatever else came between them: sequence numbers are never used
   twice, so only removals have to come last, and a message that came and went in one turn is not written at
   all. So are duplicate ids. Everything else is written in the order in which it happened.
4. Only the removal of an entity is a border: what came before it is written before it, since the same name
   may be made anew in the same turn.
5. The last sequence number of a place is written only when no message shows it: the newest message does, as
   long as it is there. A turn that only adds messages so writes to one table, which is half the work of a
   small turn.
6. A commit that fails leaves the file, and this object, as they were before it.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pairbus.amqp.errors import DecodeError
from pairbus.broker.engine.errors import Refused
from pairbus.broker.engine.events import (
    DuplicateForgotten,
    DuplicateSeen,
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
from pairbus.broker.engine.message import StoredMessage
from pairbus.broker.errors import StoreError
from pairbus.broker.sqlite_file import open_database, store_error
from pairbus.broker.sqlite_rows import (
    SEQUENCE_BITS,
    change_row,
    entity_row,
    first_and_last_key,
    message_row,
    read_entity,
    read_message,
    read_rule,
    rule_row,
)
from pairbus.broker.statements import load_statements

__all__ = ["SqliteStore"]

# What a row that is not as it was written makes of the functions that read it.
_UNREADABLE = (ValueError, TypeError, KeyError, DecodeError, Refused)


class SqliteStore:
    """The rows of one namespace. `commits` counts the turns that were written."""

    def __init__(self, path: Path) -> None:
        """Open the file, or make it; raises StoreError if it is not for us."""
        self._path = path
        self._sql = load_statements()
        self._database = open_database(path)
        self.commits = 0
        self._places: dict[str, int] = {}
        # The newest message of a place, if its number is higher than the one that was written for the place.
        self._newest: dict[str, int] = {}
        try:
            self._read_places()
        except sqlite3.Error as error:
            self.close()
            raise store_error(f"the store {path}", error) from error

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    def commit(self, events: Sequence[Event]) -> None:
        """Write a turn, or raise StoreError and write nothing."""
        execute = self._database.execute
        try:
            execute(self._sql["begin"])
            self._write(events)
            execute(self._sql["commit"])
        except sqlite3.Error as error:
            self._roll_back()
            # Clients are told of this too, and where the file lies is none of their business.
            raise store_error(self._path.name, error) from error
        self.commits += 1

    def _roll_back(self) -> None:
        try:
            # SQLite may have rolled back by itself already, as it does when the disk is full.
            if self._database.in_transaction:
                self._database.execute(self._sql["roll_back"])
            self._read_places()  # some may have been numbered in vain
        except sqlite3.Error as error:
            raise store_error(f"the store {self._path}", error) from error

    # -- writing ---------------------------------------------------------------------------------------------

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
        for event in batch.others:
            _WRITERS[type(event)](self, event)
        key = self._key
        gone, stored = batch.removed, batch.stored
        self._write_many(
            "put_message", [message_row(key(*at), stored[at]) for at in stored if at not in gone]
        )
        self._write_many(
            "change_message",
            [
                change_row(key(*at), event)
                for at, event in batch.changed.items()
                if at not in gone and at not in stored
            ],
        )
        self._write_many("remove_message", [(key(*at),) for at in gone if at not in stored])
        self._write_many(
            "keep_duplicate", [(self._place(queue), *seen) for (queue, *seen) in batch.duplicates]
        )
        self._write_many("advance_sequence", self._sequence_rows(batch))

    def _sequence_rows(self, batch: "_Batch") -> list[tuple[Any, ...]]:
        newest, gone, stored = self._newest, batch.removed, batch.stored
        rows: list[tuple[Any, ...]] = []
        for queue, number in newest.items() & gone.keys():
            del newest[queue]
            if queue not in batch.sequences:
                rows.append((number, self._place(queue)))
        for queue, number in batch.sequences.items():
            at = queue, number
            if at in stored and at not in gone:
                newest[queue] = number
            else:
                newest.pop(queue, None)
                rows.append((number, self._place(queue)))
        return rows

    def _write_many(self, name: str, rows: list[tuple[Any, ...]]) -> None:
        if rows:
            self._database.executemany(self._sql[name], rows)

    def _write_one(self, name: str, *row: object) -> None:
        self._database.execute(self._sql[name], row)

    def _key(self, queue: str, sequence_number: int) -> int:
        return self._place(queue) << SEQUENCE_BITS | sequence_number

    def _place(self, path: str) -> int:
        number = self._places.get(path)
        if number is None:
            added = self._database.execute(self._sql["add_place"], (path,)).lastrowid
            assert added is not None
            number = self._places[path] = added
        return number

    def _put_entity(self, event: EntityPut) -> None:
        self._write_one("put_entity", *entity_row(event))

    def _remove_entity(self, path: str) -> None:
        """The entity, its rules, and every place under it: itself and its sub-queues, whose names begin with
        a dollar.
        """
        self._write_one("remove_entity", path)
        self._write_one("remove_rules", path)
        for place in [place for place in self._places if place == path or place.startswith(f"{path}/$")]:
            number = self._places.pop(place)
            self._newest.pop(place, None)
            self._write_one("remove_messages", *first_and_last_key(number))
            for what in ("remove_session_states", "remove_duplicates", "remove_place"):
                self._write_one(what, number)

    def _put_rule(self, event: RulePut) -> None:
        self._write_one("put_rule", *rule_row(event))

    def _remove_rule(self, event: RuleRemoved) -> None:
        self._write_one("remove_rule", event.path, event.name.lower())

    def _set_session_state(self, event: SessionStateSet) -> None:
        place = self._place(event.queue)
        if event.state is None:
            self._write_one("clear_session_state", place, event.session_id)
        else:
            self._write_one("set_session_state", place, event.session_id, event.state, event.updated_at)

    def _forget_duplicates(self, event: DuplicateForgotten) -> None:
        self._write_one("forget_duplicates", self._place(event.queue), event.until)

    # -- reading ---------------------------------------------------------------------------------------------

    def load(self) -> Iterator[Event]:
        """Every row, as the event that would write it; raises StoreError."""
        try:
            yield from self._load()
        except sqlite3.Error as error:
            raise store_error(f"the store {self._path}", error) from error
        except _UNREADABLE as error:
            raise StoreError(
                f"the store {self._path} holds what cannot be read: {error!r}. Restore a copy, or move "
                "it away to start empty."
            ) from error

    def _load(self) -> Iterator[Event]:
        rows = self._rows
        yield from map(read_entity, rows("read_entities"))
        yield from map(read_rule, rows("read_rules"))
        for row in rows("read_sequences"):
            yield SequenceAdvanced(*row)
        for row in rows("read_duplicates"):
            yield DuplicateSeen(*row)
        for row in rows("read_session_states"):
            yield SessionStateSet(*row)
        paths = {number: path for path, number in self._places.items()}
        for row in rows("read_messages"):
            yield MessageStored(paths[row[0] >> SEQUENCE_BITS], read_message(row))

    def _rows(self, name: str) -> Iterator[Any]:
        return self._database.execute(self._sql[name])

    def _read_places(self) -> None:
        self._places.clear()
        self._newest.clear()
        newest = self._sql["read_newest"]
        for path, number, sequence_number in list(self._rows("read_places")):
            self._places[path] = number
            first, last = first_and_last_key(number)
            (key,) = self._database.execute(newest, (first, last)).fetchone()
            if key is not None and key - first > sequence_number:
                self._newest[path] = key - first


class _Batch:
    """The events of a turn, by how they are written."""

    __slots__ = ("changed", "duplicates", "others", "removed", "sequences", "stored")

    def __init__(self) -> None:
        self.stored: dict[tuple[str, int], StoredMessage] = {}
        self.changed: dict[tuple[str, int], MessageChanged] = {}
        self.removed: dict[tuple[str, int], None] = {}
        self.sequences: dict[str, int] = {}
        self.duplicates: list[DuplicateSeen] = []
        self.others: list[Event] = []

    def take(self, event: Event) -> None:
        match event:
            case MessageStored():
                self.stored[event.queue, event.message.sequence_number] = event.message
            case MessageRemoved():
                self.removed[event] = None  # a named tuple: queue and number
            case MessageChanged():
                self.changed[event.queue, event.sequence_number] = event
            case SequenceAdvanced():
                self.sequences[event.queue] = event.sequence_number
            case DuplicateSeen():
                self.duplicates.append(event)
            case _:
                self.others.append(event)


_WRITERS: dict[type[Any], Callable[[SqliteStore, Any], None]] = {
    EntityPut: SqliteStore._put_entity,
    RulePut: SqliteStore._put_rule,
    RuleRemoved: SqliteStore._remove_rule,
    SessionStateSet: SqliteStore._set_session_state,
    DuplicateForgotten: SqliteStore._forget_duplicates,
}
