"""Shipping: what a client has recorded on its own disk is brought to the place that a fleet shares.

1. No send waits for it. Records and ledger are written to segments of the `state_dir` as ever. A thread puts
   those that are closed, each as one object with the name that it has, and removes them here.
2. Heads are read first and put last: what a head tells of is then there. Before the first segment of a writer
   it is told that there is one. Where a segment is just being closed that its head tells of already, or could
   not be adopted of a dead one, all of that writer is left to the next round. Of one that runs, the head is
   told anew now and then, though nothing was written, so that its silence says that it has died; see
   `ledger.silence`.
3. Whoever has the state directory next adopts what a dead process left open, ships it, and tells the end of
   its chain in its place. That a writer runs is known by a lock, which ends with it.
4. A put that fails is made again with the next round, from the same segment. Nothing is removed before that.
   One that was left behind without an answer is waited for first: it would empty what is there by then.
5. A pump is *introduced*: a round is made before it moves anything. Whoever judges by what is in the place
   then knows that there may be receipts which are not there yet.
6. A file, `.shipped`, says where the records have gone to: beside it, those that are here are not all.
7. The processes of a host share a directory. Each ships what it has written itself, what the dead have left,
   and the ledger, which names no writer; rounds are made one after the other. Else as many would tell of each
   writer as there are processes, one of them perhaps that it runs when another has told its end; and two
   would put the same object, which is empty for a moment while it is put.
8. A disk may have been set back to an earlier state. So nothing takes the place of what tells more: neither a
   segment that begins like the one that is there, nor the head of a chain that has come further since.
9. A writer of whom anything was put has a lock that is not empty. If the place has nothing of it later, its
   last word was put before, and all of it is in a table by now; else it has lost what its head tells of.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from pairbus.client.status import ShippingStatus
from pairbus.clock import Clock
from pairbus.errors import UnreachableError
from pairbus.ledger.chain import (
    ChainHead,
    HeadFile,
    is_head,
    is_of_head,
    is_told_by,
    parse_head,
    read_heads,
    writer_of,
)
from pairbus.ledger.operations import KIND as OPERATIONS
from pairbus.ledger.receipts import KIND as RECEIPTS
from pairbus.ledger.segment import (
    adopt_segments,
    closed_segments,
    lives_elsewhere,
    lock_of_writer,
    open_segments,
)
from pairbus.ledger.shipped import mark_shipped
from pairbus.plumbing.files import hold_alone, set_aside
from pairbus.stores.places import RecordPlace, StoreUri
from pairbus.stores.store import open_store, put_anew

from .records import KIND as REDIRECTS

log = logging.getLogger(__name__)
#: So often there is a round; segments are closed as often.
SHIP_EVERY = 10.0
#: The ledger's are larger and wanted less soon.
LEDGER_AGE = 60.0
# The place knows of a client soon after it has begun: nobody would miss what one had that died before that.
_FIRST_ROUND = 1.0
_BEAT = 60.0
_IDLE_BEAT = 120.0
# A chain of a process that had no lock, and was not heard of for so long, has ended.
_FORGOTTEN = 900.0
# What has been written at the end is put within so long, or by whoever comes next.
_LAST_ROUND = 10.0
# Rule 7: held by the process that makes a round, for which others wait so long. In an outage a round is a few
# puts, and a host may have dozens of processes.
_LOCK = ".shipping.lock"
_TURN = 60.0


class _Told(NamedTuple):
    """A head that was put, and under which name."""

    head: ChainHead
    object_name: str


class RecordShipper:
    """Ships the records of a directory, on a thread."""

    def __init__(
        self,
        directory: Path,
        place: RecordPlace,
        *,
        clock: Clock,
        on_round: Callable[[ShippingStatus], None] = lambda status: None,
    ) -> None:
        """Does no I/O. `on_round` is called on the thread."""
        self._directory = directory
        self._place = place
        self._clock = clock
        self._on_round = on_round
        self._ending = threading.Event()
        self._round = threading.Lock()
        self._thread: threading.Thread | None = None
        # By the name of each head.
        self._told: dict[str, _Told] = {}
        self._up_to = clock.now()
        self._waiting = 0
        self._shipped = 0
        self._last_error: str | None = None

    def start(self) -> None:
        """Begin, in the background."""
        if self._thread is None and not self._ending.is_set():
            self._thread = threading.Thread(target=self._run, name="pairbus-shipping", daemon=True)
            self._thread.start()

    def status(self) -> ShippingStatus:
        """A picture of this moment."""
        return ShippingStatus(
            to=str(self._place),
            lag=max(0.0, self._clock.now() - self._up_to),
            waiting=self._waiting,
            shipped=self._shipped,
            last_error=self._last_error,
        )

    def close(self) -> None:
        """Ship what there is, and end. Waits, but not for ever: what is left is shipped after a restart."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(_LAST_ROUND)

    def introduce(self) -> bool:
        """Rule 5: make a round here and now; whether the place knows of all who write."""
        self.ship()
        return self._last_error is None

    # -- on the thread

    def _run(self) -> None:
        pause = _FIRST_ROUND
        while not self._ending.wait(pause):
            self.ship()
            pause = SHIP_EVERY
        self.ship()

    def ship(self) -> None:
        """One round."""
        with self._round:
            self._make_round()

    def _make_round(self) -> None:
        began = self._clock.now()
        try:
            self._ship(began)
        except Exception as error:  # noqa: BLE001 - whatever it is, the next round tries again
            if self._last_error is None:
                log.warning("records cannot be shipped to %s: %s", self._place, error)
            self._last_error = f"{type(error).__name__}: {error}"
        else:
            if self._last_error is not None:
                log.info("records are shipped to %s again", self._place)
            self._last_error, self._up_to = None, began
        self._on_round(self.status())

    def _ship(self, now: float) -> None:
        if self._directory.is_dir():
            with self._alone():
                self._ship_all(now)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with hold_alone(self._directory / _LOCK, patience=_TURN) as lock:
            if lock is None:
                raise UnreachableError(f"another process ships the records of {self._directory} for too long")
            yield

    def _ship_all(self, now: float) -> None:
        mark_shipped(self._directory, self._place)
        for kind in (REDIRECTS, RECEIPTS, OPERATIONS):
            adopt_segments(self._directory, kind)
        dead = {one.path for kind, one in self._heads() if one.head and self._is_dead(kind, one.head, now)}
        heads = self._heads()  # only now: who has just ended has said more with its end
        opened = [name for kind in (REDIRECTS, RECEIPTS) for name in open_segments(self._directory, kind)]
        elsewhere = {
            one.head.writer for kind, one in heads if one.head and self._is_elsewhere(kind, one.head)
        }
        here = [(one.path, one.head) for _, one in heads if one.head and one.head.writer not in elsewhere]
        # Just being closed, or nothing of it can be adopted now.
        unfinished = {
            name
            for name in opened
            for path, head in here
            if is_told_by(name, head) or (path in dead and head.writer == writer_of(name))
        }
        passed_over = elsewhere | set(map(writer_of, unfinished))
        closed = [
            path
            for kind in (REDIRECTS, RECEIPTS, OPERATIONS)
            for path in closed_segments(self._directory, kind)
            if writer_of(path.name) not in elsewhere
        ]
        segments = [path for path in closed if writer_of(path.name) not in passed_over]
        self._waiting = len(closed) + len(unfinished)
        self._introduce(heads, {writer_of(path.name) for path in segments})
        for path in segments:
            self._put_segment(path)
            self._waiting -= 1
            self._shipped += 1
        for kind, (path, head) in heads:
            if head is not None and head.writer not in passed_over:
                told = self._end(kind, head) if path in dead else head
                self._tell(kind, path, told, now, is_idle=head.is_idle)

    def _put_segment(self, path: Path) -> None:
        store, data = open_store(self._place), path.read_bytes()
        try:
            there = store.read(path.name)
        except FileNotFoundError:
            there = b""
        if data.startswith(there):
            put_anew(store, path.name, data)  # rule 4
        elif not there.startswith(data):  # either of them is damaged
            set_aside(path)
            return
        path.unlink()

    def _end(self, kind: str, head: ChainHead) -> ChainHead:
        """What a dead writer would have said at its end: anchors of who has adopted it are told before."""
        store = open_store(self._place)
        names = [one for one in store.list(kind) if is_head(one) and f"-{head.writer}-" in one]
        told = [one for name in names if (one := parse_head(name, store.read(name))) and one.is_adopted]
        last = max((head, *told), key=lambda one: one.commits)
        return replace(head, is_open=False, commits=last.commits, hash=last.hash)

    def _heads(self) -> list[tuple[str, HeadFile]]:
        return [(kind, one) for kind in (REDIRECTS, RECEIPTS) for one in read_heads(self._directory, kind)]

    def _is_dead(self, kind: str, head: ChainHead, now: float) -> bool:
        """Rule 3. Asked before segments are listed: what it had written is among them then."""
        if not head.is_open or head.is_adopted:
            return False
        lock = lock_of_writer(self._directory, kind, head.writer)
        if lock.exists():
            with hold_alone(lock, create=False) as held:
                return held is not None
        return now - head.at > _FORGOTTEN

    def _is_elsewhere(self, kind: str, head: ChainHead) -> bool:
        """Rule 7."""
        lock = lock_of_writer(self._directory, kind, head.writer)
        return head.is_open and not head.is_adopted and lock.exists() and lives_elsewhere(lock)

    def _introduce(self, heads: Sequence[tuple[str, HeadFile]], writers: set[str | None]) -> None:
        """Tell that there are these writers, of whom nothing was told yet."""
        for kind, (_, head) in heads:
            if head is None or head.is_adopted or head.writer not in writers or head.name(kind) in self._told:
                continue
            if isinstance(self._place, StoreUri) or head.name(kind) not in open_store(self._place).list(kind):
                # The same writer, before its first commit.
                self._put(kind, ChainHead(writer=head.writer, since=head.since, at=head.since))

    def _tell(self, kind: str, path: Path, head: ChainHead, now: float, *, is_idle: bool) -> None:
        known = self._told.get(head.name(kind))
        if known is not None and replace(known.head, at=head.at) == replace(head, is_shipped=True):
            beat = _BEAT if head.commits else _IDLE_BEAT
            if not head.is_open or now - known.head.at < beat:
                return
        is_last = head.is_adopted or not head.is_open
        if known is not None or self._is_news(kind, head, is_last=is_last):
            self._put(kind, replace(head, at=max(head.at, now)) if head.is_open else head, is_idle=is_idle)
        if is_last:  # nothing more will be said of it
            path.unlink(missing_ok=True)
        if not head.is_open:
            lock_of_writer(self._directory, kind, head.writer).unlink(missing_ok=True)

    def _is_news(self, kind: str, head: ChainHead, *, is_last: bool) -> bool:
        """Whether the place does not know it from an earlier process; rule 9."""
        store, name = open_store(self._place), head.name(kind)
        of_writer = [one for one in store.list(kind) if f"-{head.writer}" in one]
        if is_last and head.commits and not of_writer:
            return _was_never_put(lock_of_writer(self._directory, kind, head.writer))
        told = [parse_head(one, store.read(one)) for one in of_writer if one == name or is_of_head(one, name)]
        return all(one is None or one.commits <= head.commits for one in told)

    def _put(self, kind: str, head: ChainHead, *, is_idle: bool = False) -> None:
        """Put a head in the place of what was told before, by earlier processes too if it is the last word.
        Those who end and have written nothing leave one sign together.
        """
        store, name = open_store(self._place), head.name(kind)
        known = self._told.get(name)
        head = replace(head, is_shipped=True)
        told = head.as_nobody() if is_idle else head
        object_name = told.object_name(kind) if isinstance(self._place, StoreUri) else told.name(kind)
        put_anew(store, object_name, told.to_bytes())
        lock = lock_of_writer(self._directory, kind, head.writer)
        if _was_never_put(lock):
            os.truncate(lock, 1)  # a hole, which needs no room: on a full disk shipping makes some
        before = {known.object_name} if known is not None else set()
        if not head.is_open and (is_idle or known is None):
            before = {one for one in store.list(kind) if is_of_head(one, name)}
        for one in before - {object_name}:
            store.delete(one)
        self._told[name] = _Told(head, object_name)


def _was_never_put(lock: Path) -> bool:
    """Whether that is known of the writer with this lock: rule 9."""
    return lock.exists() and not lock.stat().st_size
