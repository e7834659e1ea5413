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
5. The last sequence number of a place is written for its first message, and then only when no message shows
   it: the newest message does, as long as it is there. A turn that only adds messages so writes to one
   table, which is half the work of a small turn. (Sub-queues give out no numbers, and have none written.)
6. A commit that fails leaves the file, and this object, as they were; its traces in the WAL are written over.
7. Turns are numbered, and messages counted. Each message tells the number of the turn that brought it and how
   many there were after it; a turn that brings none, or removes an entity, writes both into a row of their
   own. So the last turn always tells how much there must be, and a turn that only brings messages still
   writes to one table. `counter` tells which turn was the last.
8. Damage is found before it does any: a store that holds less than was committed is refused when it is
   opened, one with a record that is not as it was written when it is loaded, and a content when it is read.
   From then on the store is refused as a whole.
9. `load` gives records of messages without their contents, which stay in the file: each record has the source
   that its content is read from. These reads have a connection of their own. They see what is committed, wait
   for no commit, and may come from any thread, one at a time.
"""

import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from pairbus.amqp.errors import DecodeError
from pairbus.amqp.serials import NumberPool
from pairbus.broker.engine.breath import slices
from pairbus.broker.engine.errors import Refused
from pairbus.broker.engine.events import (
    DuplicateForgotten,
    EngineEvent,
    EntityPut,
    EntityRemoved,
    MessageChanged,
    MessageRemoved,
    MessagesLoaded,
    MessageStored,
    RulePut,
    RuleRemoved,
    SessionStateSet,
)
from pairbus.broker.engine.message import Content, StoredMessage
from pairbus.broker.errors import StoreDamaged, StoreError
from pairbus.plumbing.ranges import ranges_of

from .batch import Batch
from .checkpoints import Checkpoints
from .checksums import row_checksum
from .counter import CommitCounter, Mark, counter_path
from .file import (
    PAGE_SIZE,
    FileIdentity,
    close_database,
    damage,
    identity_of,
    moved_away,
    open_all,
    read_error,
    set_wal_aside,
    size_of,
    store_error,
    wal_path,
)
from .rows import (
    LARGE_BODY,
    MOST_PLACES,
    PLACE_STEP,
    RowDamaged,
    change_row,
    entity_row,
    message_rows,
    read_content,
    read_duplicate,
    read_entity,
    read_place,
    read_record,
    read_rule,
    read_session_state,
    rule_row,
    sealed,
    unsealed,
)
from .statements import load_statements
from .wal_marks import WalMarks
from .wal_room import WalRoom

T = TypeVar("T")
# What a row that is not as it was written makes of the functions that read it.
UNREADABLE = (ValueError, TypeError, KeyError, DecodeError, Refused, RowDamaged)
_ROWS_AT_ONCE = 1000
# Bytes of messages, and rows, that are not written in a moment. Only messages of more than so many bytes are
# weighed: small ones are written a few at a time.
_HEAVY, _MANY = 1 << 20, 4096
_SMALL = 8192
_FEW = 4
# Bytes of a row beside those that its message counts.
_ROW = 200
_HIGHEST_KEY = (1 << 63) - 1
# The tables whose rows are not counted. SQLite looks whether their pages hang together, so that none is lost;
# the messages, whose pages are most of the file, are counted instead.
_UNCOUNTED = ("account", "even_wal", "odd_wal", "entity", "rule", "place", "session_state", "duplicate")


class SqliteStore:
    """The rows of one namespace. `commits` counts the turns that were written."""

    remembers = True

    def __init__(self, path: Path) -> None:
        """Open the file, or make it; raises StoreError if it is not for us."""
        self._path = path
        self._sql = load_statements()
        self._counter = CommitCounter(path)
        self._wal_marks = WalMarks(path)
        self._wal_room = WalRoom(path)
        known = self._counter.read()
        if known is not None and known.turn and not (path.exists() and path.stat().st_size):
            raise damage(path, f"it is empty or gone, and {known.turn} turns were committed to it")
        self._database, self._reader, mover = open_all(path)
        self._checkpoints = Checkpoints(mover, length=size_of(wal_path(path)))
        self._reading = threading.Lock()
        # Why nothing of the store can be trusted any more.
        self._damage: StoreError | None = None
        # Which files these are, whatever their names say; of the WAL it is known when it was written to.
        self._files: dict[str, FileIdentity | None] = {
            str(path): identity_of(str(path)),
            str(wal_path(path)): None,
        }
        self.commits = 0
        # How many messages there are in the turn that is being written, and about how many bytes it has.
        self._counted = self._written = 0
        # By path: the number of a place, to which a message's sequence number is added to get its key.
        self._places: dict[str, int] = {}
        self._paths: dict[int, str] = {}
        # Those of places that are gone are had again: there are half a million, and whoever makes and deletes
        # entities all day would come to their end.
        self._place_numbers = NumberPool()
        # Places that give out numbers, and their newest message's where that is above what was written.
        self._numbering: set[int] = set()
        self._newest: dict[int, int] = {}
        # The keys of large messages.
        self._large: set[int] = set()
        try:
            self._mark, self._total = self._take_account(known)
            self._read_places()
        except (sqlite3.Error, *UNREADABLE, StoreError) as error:
            failure = self._unreadable(error)
            if isinstance(failure, StoreDamaged):  # not by a disk that fails for a moment
                set_wal_aside(path, known.turn if known else 0)
            self.close()
            raise failure from error

    def close(self) -> None:
        """Let go of the file."""
        self._checkpoints.close()
        with self._reading:
            close_database(self._path, self._reader, self._database)
        self._counter.close()
        self._wal_marks.close()
        self._wal_room.close()

    def commit(self, events: Sequence[EngineEvent]) -> None:
        """Write a turn, or raise (what the file refuses is a StoreError) and write nothing."""
        self.write(events)
        self.finish()

    def write(self, events: Sequence[EngineEvent]) -> None:
        """The first half of a commit, which does not wait for the disk: it is nothing without the second."""
        self._counted, self._written = self._total, 2 * PAGE_SIZE
        try:
            self._database.execute(self._sql["begin"])
            self._write(events)
        except BaseException as error:
            self._undo(error)
            raise

    def finish(self) -> None:
        """The second half of a commit."""
        try:
            self._database.execute(self._sql["commit"])
        except BaseException as error:
            try:
                self._undo(error)
            except StoreError:
                self._bury()
                raise
            raise
        self._check_files()
        self._wal_marks.look()
        self.commits += 1
        self._mark, self._total = Mark(self._mark.identity, self._mark.turn + 1), self._counted
        self._counter.write(self._mark)
        self._checkpoints.follow(self._database, self._written)
        self._wal_room.follow()

    def is_heavy(self, events: Sequence[EngineEvent]) -> bool:
        """Whether to write these takes more than some milliseconds: many rows, as a batch to a topic makes,
        many bytes, another state or the end of a large message, whose pages are all touched, or the end of an
        entity with all that it holds. Small messages are none of this, however many bytes they have together:
        on the thread each row would pass Python's lock there and back.
        """
        if len(events) >= _MANY:
            return True
        if EntityRemoved in map(type, events):
            return True
        large, places = self._large, self._places
        if large and any(
            places.get(event.queue, 0) + event.sequence_number in large
            for event in events
            if isinstance(event, MessageRemoved | MessageChanged)
        ):
            return True
        sizes = [event.message.size for event in events if type(event) is MessageStored]
        return sum(sizes) >= _HEAVY and sum([size for size in sizes if size > _SMALL]) >= _HEAVY

    def _undo(self, error: BaseException) -> None:
        """Take back what was written of a turn that has failed; StoreError for what SQLite says of it."""
        self._roll_back()
        if isinstance(error, sqlite3.Error):
            # Clients are told of this too, and where the file lies is none of their business.
            raise store_error(self._path.name, error) from error

    def _roll_back(self) -> None:
        try:
            # SQLite may have rolled back by itself already, as it does when the disk is full.
            if self._database.in_transaction:
                self._database.execute(self._sql["roll_back"])
            self._read_places()  # some may have been numbered in vain
        except sqlite3.Error as error:
            raise read_error(self._path, error) from error

    def _check_files(self) -> None:
        """Raise StoreError if the files are not where they were: SQLite would write into what has no name."""
        for name, identity in self._files.items():
            found = identity_of(name)
            if found is None or found != (identity or found):
                self._damage = moved_away(Path(name))
                raise self._damage
            if identity is None:
                self._files[name] = found

    def _bury(self) -> None:
        """Write over what a commit has left in the WAL that failed in its very last step, the sync: whoever
        was killed now would find it there, though it was refused. A disk that goes on failing lets it be.
        """
        account = sealed(self._mark.identity, self._mark.turn, self._total)
        for _ in range(3):  # one sync that failed may not be the last
            with suppress(sqlite3.Error), self._database:
                self._database.execute(self._sql["begin"])
                # Twice, since SQLite writes nothing where nothing has changed.
                self._write_one("write_account", *account[1:-1], 0)
                self._write_one("write_account", *account[1:])
                return

    # -- writing

    def _write(self, events: Sequence[EngineEvent]) -> None:
        """Write the batches between removals of entities, and these."""
        begin = 0
        if EntityRemoved in map(type, events):
            for at in [at for at, event in enumerate(events) if type(event) is EntityRemoved]:
                self._write_batch(events[begin:at])
                removal = events[at]
                assert isinstance(removal, EntityRemoved)
                self._remove_entity(removal.path)
                begin = at + 1
        tells = self._write_batch(events[begin:] if begin else events)
        if not tells or begin:
            account = sealed(self._mark.identity, self._mark.turn + 1, self._counted)
            self._write_one("write_account", *account[1:])
        self._wal_marks.write(self._write_one)

    def _write_batch(self, events: Sequence[EngineEvent]) -> bool:
        """Write what came between two removals of entities; whether a message tells of the turn."""
        batch = Batch()
        batch.sort(events, self._first_key)
        for event in batch.others:
            _WRITERS[type(event)](self, event)
        gone, put, changed = batch.removed, batch.stored, batch.changed
        if gone:
            self._large.difference_update(gone)
            ranges = batch.removed_ranges()
            self._counted -= self._write_many("remove_messages", _rows(ranges, lambda row: row))
            self._written += len(ranges) * PAGE_SIZE
            put = {key: message for key, message in put.items() if key not in gone}
        if put:
            self._put(put)
        if changed:
            keys = [key for key in changed if key not in gone and key not in put]
            self._written += len(keys) * PAGE_SIZE
            self._write_many("change_message", _rows(keys, lambda key: change_row(key, changed[key])))
        if batch.duplicates:
            self._write_many("keep_duplicate", _rows(batch.duplicates, lambda row: sealed(*row)))
        if numbers := self._written_numbers(batch):
            self._write_many("advance_sequence", _rows(numbers, self._sequence_row))
        return bool(put)

    def _put(self, messages: dict[int, StoredMessage]) -> None:
        """Write messages that are new."""
        self._counted += len(messages)
        turn, total = self._mark.turn + 1, self._counted
        sizes = [message.size for message in messages.values()]
        self._written += sum(sizes) + len(sizes) * _ROW
        small, large = messages, dict[int, StoredMessage]()
        if max(sizes) > LARGE_BODY:
            large = {key: message for key, message in messages.items() if message.size > LARGE_BODY}
            small = {key: message for key, message in messages.items() if key not in large}
        self._write_many("put_message", message_rows(small, turn, total, no_session=0))
        for row in message_rows(large, turn, total, no_session=0):
            self._put_large(row)

    def _put_large(self, row: tuple[Any, ...]) -> None:
        """Write a message bit by bit: what is bound is copied, and Python stands still meanwhile."""
        key, body = row[0], memoryview(row[-1])
        self._large.add(key)
        self._write_one("put_large_message", *row[:-1], len(body))
        with self._database.blobopen("message", "body", key) as blob:
            for at in range(0, len(body), LARGE_BODY):
                blob.write(body[at : at + LARGE_BODY])

    def _sequence_row(self, written: tuple[int, int]) -> tuple[int, int, int]:
        number, place = written
        return number, row_checksum(place, self._paths[place], number), place

    def _written_numbers(self, batch: Batch) -> list[tuple[int, int]]:
        newest, gone, rows = self._newest, batch.removed, list[tuple[int, int]]()
        if not gone:
            shown = []
        elif len(newest) <= len(gone):
            shown = [place for place in newest if newest[place] + place in gone]
        else:  # a namespace may have many more places than messages that go in a turn
            shown = [place for key in gone if newest.get(place := key - key % PLACE_STEP) == key - place]
        for place in shown:
            number = newest.pop(place)
            if place not in batch.sequences:
                rows.append((number, place))
        for place, number in batch.sequences.items():
            key = place + number
            if place in self._numbering and key in batch.stored and key not in gone:
                newest[place] = number
            else:
                newest.pop(place, None)
                rows.append((number, place))
                self._numbering.add(place)
        return rows

    def _write_many(self, name: str, rows: Iterable[tuple[Any, ...]]) -> int:
        """Write rows; how many were written, or removed."""
        return max(0, self._database.executemany(self._sql[name], rows).rowcount)

    def _write_one(self, name: str, *row: object) -> int:
        return self._database.execute(self._sql[name], row).rowcount

    def _first_key(self, path: str) -> int:
        """The number of a place; a message's key is this and its sequence number."""
        number = self._places.get(path)
        if number is None:
            number = self._free_place()
            self._write_one("add_place", *sealed(number, path, 0))
            self._places[path], self._paths[number] = number, path
        return number

    def _free_place(self) -> int:
        number = self._place_numbers.take()
        if number >= MOST_PLACES:
            raise StoreError(
                f"{self._path.name}: there are {MOST_PLACES} places for messages. Delete a queue."
            )
        return (number + 1) * PLACE_STEP

    def _remove_entity(self, path: str) -> None:
        """The entity, its rules, its place, and those of its sub-queues, whose names begin with a dollar."""
        self._write_one("remove_entity", path)
        self._write_one("remove_rules", path)
        for place in [place for place in self._places if place == path or place.startswith(f"{path}/$")]:
            number = self._places.pop(place)
            self._large = {key for key in self._large if key // PLACE_STEP != number // PLACE_STEP}
            del self._paths[number]
            self._newest.pop(number, None)
            self._numbering.discard(number)
            self._place_numbers.give_back(number // PLACE_STEP - 1)
            self._counted -= self._write_one("remove_messages", number, number + PLACE_STEP - 1)
            for what in ("remove_session_states", "remove_duplicates", "remove_place"):
                self._write_one(what, number)

    def _set_session_state(self, event: SessionStateSet) -> None:
        place = self._first_key(event.queue)
        if event.state is None:
            self._write_one("clear_session_state", place, event.session_id)
        else:
            row = sealed(place, event.session_id, event.state, event.updated_at)
            self._write_one("set_session_state", *row)

    # -- reading

    def load(self) -> Iterator[EngineEvent]:
        """Every row as the event that would write it; what was not finished has not happened. StoreError."""
        if self._damage is not None:
            raise self._damage
        try:
            if self._database.in_transaction:
                self._roll_back()
            yield from self._load()
        except (sqlite3.Error, *UNREADABLE) as error:
            raise self._unreadable(error) from error

    def _load(self) -> Iterator[EngineEvent]:
        rows = self._rows
        yield from map(read_entity, rows("read_entities"))
        yield from map(read_rule, rows("read_rules"))
        for row in rows("read_places"):
            yield read_place(row)[1]
        paths = self._paths
        for row in rows("read_duplicates"):
            yield read_duplicate(row, paths)
        for row in rows("read_session_states"):
            yield read_session_state(row, paths)
        yield from self._load_messages()

    def _load_messages(self) -> Iterator[MessagesLoaded]:
        """All of them, so that it can be said how many can be saved."""
        cursor, damaged = self._rows("read_records"), list[str]()
        while rows := cursor.fetchmany(_ROWS_AT_ONCE):
            for place, group in groupby(rows, key=lambda row: row[0] // PLACE_STEP * PLACE_STEP):
                yield MessagesLoaded(self._paths[place], self._records(group, _Source(self, place), damaged))
        if damaged:
            raise self._damaged(damaged)

    def _records(
        self, rows: Iterable[tuple[Any, ...]], source: "_Source", damaged: list[str]
    ) -> list[StoredMessage]:
        """The records of rows. Equal numbers are one object: each would take 32 bytes of every message."""
        records, share = [], dict[float, float]().setdefault
        for row in rows:
            try:
                record = read_record(row, source)
            except RowDamaged as found:
                damaged.append(str(found))
                continue
            record.enqueued_at = share(record.enqueued_at, record.enqueued_at)
            record.size = int(share(record.size, record.size))
            if record.size > LARGE_BODY:
                self._large.add(row[0])
            records.append(record)
        return records

    def _damaged(self, messages: list[str]) -> StoreDamaged:
        whole = self._total - len(messages)
        return damage(
            self._path,
            f"{whole} of {self._total} messages are as they were written, and {', '.join(messages[:3])} "
            f"{'and others are' if messages[3:] else 'is' if messages[1:] == [] else 'are'} not",
        )

    def verify(self) -> None:
        """Read everything, and raise StoreError if it is not as it was written."""
        for _ in self.load():
            pass
        damaged = []
        try:
            for row in self._database.execute(self._sql["read_messages"], (0, _HIGHEST_KEY, LARGE_BODY)):
                try:
                    read_content(_with_body(self._database, row))
                except RowDamaged as found:
                    damaged.append(str(found))
        except (sqlite3.Error, *UNREADABLE) as error:
            raise self._unreadable(error) from error
        if damaged:
            raise self._damaged(damaged)

    # -- contents

    def source(self, queue: str) -> "_Source | None":
        """Where the contents of a queue's messages are, if it has any that are committed."""
        place = self._places.get(queue)
        return None if place is None else _Source(self, place)

    def read(self, place: int, sequence_numbers: Sequence[int]) -> list[Content | None]:
        """The contents of some messages of one place; None for one that is not there."""
        found: dict[int, Content] = {}
        try:
            with self._reading:
                for first, last in ranges_of(sequence_numbers):
                    keys = place + first, place + last, LARGE_BODY
                    for row in self._reader.execute(self._sql["read_messages"], keys):
                        found[row[0] - place] = read_content(_with_body(self._reader, row))
        except (sqlite3.Error, *UNREADABLE) as error:
            reason = self._unreadable(error)
            if isinstance(reason, StoreDamaged):
                self._damage = reason
            raise reason from error
        return [found.get(number) for number in sequence_numbers]

    def _unreadable(self, error: Exception) -> StoreError:
        if isinstance(error, StoreError):
            return error
        if isinstance(error, sqlite3.Error | UnicodeDecodeError):
            return read_error(self._path, error)
        what = f"{error} is not as it was written" if isinstance(error, RowDamaged) else repr(error)
        return damage(self._path, f"it holds what cannot be read: {what}")

    def _take_account(self, known: Mark | None) -> tuple[Mark, int]:
        """How far the store has come, and its messages; refused if that is less than was committed."""
        self._wal_marks.check(self._rows("read_wal_marks"))
        (row,) = self._rows("read_account")
        identity, turn, total = unsealed(row, "the account")
        count, last, total_then = next(self._rows("count_messages"))
        if count and last > turn:
            turn, total = last, total_then
        if known is not None and known.identity != identity:
            raise damage(self._path, f"{counter_path(self._path).name} beside it is that of another store")
        if known is not None and turn < known.turn:
            raise damage(
                self._path,
                f"it ends with turn {turn} of {known.turn} that were committed; {count} messages can be read",
            )
        if count != total:
            raise damage(self._path, f"it holds {count} of {total} messages")
        for table in _UNCOUNTED:
            for (finding,) in self._database.execute(f"PRAGMA quick_check({table})"):
                if finding != "ok":
                    raise damage(self._path, f"{table}: {finding}")
        return Mark(identity, turn), total

    def _rows(self, name: str) -> sqlite3.Cursor:
        return self._database.execute(self._sql[name])

    def _read_places(self) -> None:
        places = [(path, number, written) for number, path, written, _ in self._rows("read_places")]
        self._places = {path: place for path, place, _ in places}
        self._paths = {place: path for path, place, _ in places}
        self._place_numbers = NumberPool.without({place // PLACE_STEP - 1 for place in self._places.values()})
        self._numbering = {place for _, place, written in places if written}
        self._newest.clear()
        for _, place, written in places:
            (key,) = self._database.execute(
                self._sql["read_newest"], (place, place + PLACE_STEP - 1)
            ).fetchone()
            if written and key is not None and key - place > written:
                self._newest[place] = key - place


def _rows(given: Sequence[T], make_row: Callable[[T], tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    for few in slices(given, _FEW):
        yield from map(make_row, few)


class _Source:
    """Where the contents of the messages of one place are."""

    __slots__ = ("_place", "_store")

    def __init__(self, store: SqliteStore, place: int) -> None:
        self._store = store
        self._place = place

    def read(self, sequence_numbers: Sequence[int]) -> list[Content | None]:
        return self._store.read(self._place, sequence_numbers)


def _with_body(database: sqlite3.Connection, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row of `read_messages` with the body of a large message, which is read bit by bit."""
    if row[-1] is not None:
        return row
    body = bytearray()
    with database.blobopen("message", "body", row[0], readonly=True) as blob:
        while piece := blob.read(LARGE_BODY):
            body += piece
    return *row[:-1], memoryview(body).toreadonly()


_WRITERS: dict[type[Any], Callable[[SqliteStore, Any], object]] = {
    EntityPut: lambda store, event: store._write_one("put_entity", *entity_row(event)),
    RulePut: lambda store, event: store._write_one("put_rule", *rule_row(event)),
    RuleRemoved: lambda store, event: store._write_one("remove_rule", event.path, event.name.lower()),
    SessionStateSet: SqliteStore._set_session_state,
    DuplicateForgotten: lambda store, event: store._write_one(
        "forget_duplicates", store._first_key(event.queue), event.until
    ),
}
