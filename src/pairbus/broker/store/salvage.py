"""Saves what can be read of a damaged store into one that starts, and lists what is lost.

Rules
1. Only a damaged store is touched. One that is whole, in use, newer or another program's is left as it is.
2. Nothing is thrown away: the damaged files are moved into a directory beside the new ones.
3. A message is saved as it was written, or not at all. An entity whose settings are lost gets the usual
   ones, so that its messages have a place; a place whose name is lost gets a new one.
4. Sequence numbers go on behind those that may have been given out by what is lost.
5. The exchange goes name by name, and after a crash in between it can be begun again: the counter is first,
   so that the damaged store is refused as before, and the store after it, whole.
"""

import fcntl
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pairbus.broker.engine.events import (
    EngineEvent,
    EntityKind,
    EntityPut,
    MessageStored,
    RulePut,
    SequenceAdvanced,
)
from pairbus.broker.engine.rules import Rule
from pairbus.broker.engine.settings import QueueSettings, SubscriptionSettings, TopicSettings
from pairbus.broker.errors import StoreDamaged, StoreError
from pairbus.plumbing.files import make_directory, sync_directory

from .counter import CommitCounter, Mark, counter_path
from .file import aside_path, set_wal_aside, wal_path
from .pages import make_image, read_leaves
from .rows import (
    MESSAGE_COLUMNS,
    PLACE_STEP,
    RowDamaged,
    read_duplicate,
    read_entity,
    read_message,
    read_place,
    read_rule,
    read_session_state,
    unsealed,
)
from .sqlite import UNREADABLE, SqliteStore
from .statements import load_statements

T = TypeVar("T")
# Numbers that are passed over where some may have been given out that nobody knows of any more.
_LEAP = 1 << 20
_EVENTS_AT_ONCE = 5000
_SEGMENT = "/Subscriptions/"
# The bytes on which SQLite has its locks, whatever the size of the file.
_LOCKED_FROM, _LOCKED_BYTES = 0x40000000, 512


@dataclass
class Salvage:
    """What came of a store. `missing` counts messages that are known to have been there and are not."""

    saved: int = 0
    missing: int = 0
    lost: list[str] = field(default_factory=list)
    #: Where the damaged files are now.
    remains: Path = Path()

    @property
    def is_complete(self) -> bool:
        return not self.missing and not self.lost

    def summary(self) -> str:
        """One line for people."""
        missing = f", {self.missing} are missing" if self.missing else ""
        return f"{self.saved} messages are saved{missing}; the damaged files are in {self.remains}"

    def describe(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        facts = {"saved": self.saved, "missing": self.missing, "lost": self.lost}
        return {**facts, "remains": str(self.remains)}


def salvage_store(path: Path) -> Salvage | None:
    """Save what can be read of the store in `path`; None if there is nothing wrong with it."""
    if _is_sound(path):
        return None
    try:
        return _save(path)
    except OSError as error:
        what = f"{error.strerror or error}: {error.filename or path}"
        raise StoreError(f"the store {path} cannot be salvaged: {what}. Mend that, and try again.") from error


def _is_sound(path: Path) -> bool:
    try:
        with closing(SqliteStore(path)) as store:
            store.verify()
    except StoreDamaged:
        return False
    return True


def _save(path: Path) -> Salvage:
    with _alone(path), tempfile.TemporaryDirectory(prefix=".salvage-", dir=path.parent) as scratch:
        wreck = _Wreck(path, Path(scratch) / "image.db")
        events = list(wreck.events())
        if not events:
            raise StoreDamaged(
                f"nothing can be read of the store {path}, and it is left as it is. Put back a copy of the "
                f"whole directory {path.parent}, or move it away to start empty."
            )
        draft = Path(scratch) / "new" / path.name
        make_directory(draft.parent)
        with closing(SqliteStore(draft)) as store:
            for at in range(0, len(events), _EVENTS_AT_ONCE):
                store.commit(events[at : at + _EVENTS_AT_ONCE])
        wreck.result.remains = _exchange(path, draft)
    return wreck.result


def _exchange(path: Path, draft: Path) -> Path:
    """Move the damaged files away and the new ones to their place."""
    stamp = time.strftime("damaged-%Y%m%d-%H%M%S-", time.gmtime())
    remains = Path(tempfile.mkdtemp(prefix=stamp, dir=path.parent))
    # No new store may ever stand beside an old WAL under the name by which SQLite would find it.
    set_wal_aside(path, _turn(path))
    wal, alias = _wal_of(path), aside_path(path, _turn(draft))
    if wal is not None and not alias.exists():
        alias.hardlink_to(wal)  # to be found beside the new counter too, should this end before the store
    old = [path, counter_path(path), *path.parent.glob(f"{path.name}-wal*")]
    for found in old:
        if found.exists():
            (remains / found.name).hardlink_to(found)
    sync_directory(remains)
    counter_path(draft).replace(counter_path(path))
    sync_directory(path.parent)
    draft.replace(path)
    sync_directory(path.parent)
    for wal in old[2:]:
        wal.unlink()
    return remains


def _turn(path: Path) -> int:
    known = CommitCounter(path).read()
    return known.turn if known else 0


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Have the store for ourselves, as SQLite would if it could read the file."""
    if not path.exists():
        yield
        return
    with path.open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, _LOCKED_BYTES, _LOCKED_FROM)
        except BlockingIOError:
            raise StoreError(f"the store {path} is in use. Stop its broker first.") from None
        yield


class _Wreck:
    """A damaged store, from which everything that is whole is read."""

    def __init__(self, path: Path, image: Path) -> None:
        self._image = image
        self._sql = load_statements()
        self._known: Mark | None = CommitCounter(path).read()
        self._paths: dict[int, str] = {}
        self._now = time.time()
        self.result = Salvage()
        make_image(path, _wal_of(path), image)

    def events(self) -> Iterator[EngineEvent]:
        """All that is to be in the new store."""
        entities = list(self._read("read_entities", read_entity))
        rules = list(self._read("read_rules", read_rule))
        numbers: Counter[str] = Counter()
        for place, advanced in self._read("read_places", read_place):
            self._paths[place] = advanced.queue
            numbers[advanced.queue] = advanced.sequence_number
        messages = list(self._messages())
        for stored in messages:
            numbers[stored.queue] = max(numbers[stored.queue], stored.message.sequence_number)
        paths = self._paths
        duplicates = list(self._read("read_duplicates", lambda row: read_duplicate(row, paths)))
        states = list(self._read("read_session_states", lambda row: read_session_state(row, paths)))
        known, with_sessions = {entity.path for entity in entities}, {state.queue for state in states}
        owners = {path.partition("/$")[0] for path in numbers} | known
        topics = {path.partition(_SEGMENT)[0] for path in owners if _SEGMENT in path}
        for path in sorted((owners | topics) - known):
            entity = self._usual_entity(path, is_topic=path in topics, requires_session=path in with_sessions)
            entities.append(entity)
            if entity.kind is EntityKind.SUBSCRIPTION:
                rules.append(RulePut(path, Rule(created_at=self._now)))
        known |= owners | topics
        yield from entities
        yield from (rule for rule in rules if rule.path in known)
        yield from duplicates
        yield from states
        yield from messages
        leap = 0 if self.result.is_complete else _LEAP
        for path, number in numbers.items():
            if "/$" not in path:
                yield SequenceAdvanced(path, number + leap)

    def _read(self, name: str, read: Callable[[tuple[Any, ...]], T]) -> Iterator[T]:
        """The rows of a small table, as far as they can be read."""
        with closing(sqlite3.connect(f"file:{self._image}?mode=ro&immutable=1", uri=True)) as database:
            database.text_factory = lambda text: text.decode(errors="replace")
            try:
                for row in database.execute(self._sql[name]):
                    try:
                        yield read(row)
                    except RowDamaged as found:
                        self.result.lost.append(str(found))
                    except UNREADABLE as error:
                        self.result.lost.append(f"a row that cannot be read: {error!r}")
            except (sqlite3.Error, UnicodeDecodeError) as error:
                self.result.lost.append(f"{name.removeprefix('read_').replace('_', ' ')} ({error})")

    def _messages(self) -> Iterator[MessageStored]:
        turn, total = self._account()
        seen: set[int] = set()  # a page that stands where it does not belong may be there twice
        for row in read_leaves(self._image, MESSAGE_COLUMNS):
            place = row[0] // PLACE_STEP * PLACE_STEP
            try:
                message = read_message(tuple(row))
            except (RowDamaged, *UNREADABLE) as found:
                self.result.lost.append(f"{found} of {self._paths.get(place, 'an unknown queue')}")
                continue
            if row[0] in seen:
                continue
            seen.add(row[0])
            if row[1] > turn:
                turn, total = row[1], row[2]
            if place not in self._paths:
                self._paths[place] = f"salvaged-{place // PLACE_STEP}"
                self.result.lost.append(f"the name of the queue that is {self._paths[place]} now")
            self.result.saved += 1
            yield MessageStored(self._paths[place], message)
        self.result.missing = max(0, total - self.result.saved)
        if self._known is not None and turn < self._known.turn:
            self.result.lost.append(f"what was committed in the last {self._known.turn - turn} turns")

    def _account(self) -> tuple[int, int]:
        rows = list(self._read("read_account", lambda row: unsealed(row, "the account")))
        if not rows:
            return 0, 0
        if self._known is not None and rows[0][0] != self._known.identity:
            self.result.lost.append("the store that its counter belongs to: this is another one")
        return rows[0][1], rows[0][2]

    def _usual_entity(self, path: str, *, is_topic: bool, requires_session: bool) -> EntityPut:
        self.result.lost.append(f"the settings of {path}")
        times = (self._now,) * 3
        if is_topic:
            return EntityPut(EntityKind.TOPIC, path, TopicSettings(), *times)
        if _SEGMENT in path:
            kind, settings = EntityKind.SUBSCRIPTION, SubscriptionSettings(requires_session=requires_session)
            return EntityPut(kind, path, settings, *times)
        return EntityPut(EntityKind.QUEUE, path, QueueSettings(requires_session=requires_session), *times)


def _wal_of(path: Path) -> Path | None:
    """The WAL, or the one that was kept when the store was refused."""
    found = (wal_path(path), aside_path(path, _turn(path)))
    return next((wal for wal in found if wal.exists() and wal.stat().st_size), None)
