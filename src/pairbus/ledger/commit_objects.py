"""Commits as objects of a store: what a writer commits is one object, durable when its put returns.

1. An object is what a closed segment with a single commit would be, name included: rows, their link, and who
   has written it. So whoever reads segments reads these, and there is nothing that a dead writer leaves open.
2. Puts cost money and time. All who come while one is on its way share the next, and between the beginnings
   of two there are `GATHER` seconds at least, unless nobody can come before the next is made. That is said
   again and again while messages trickle in: it is heard once for `WORTH` rows.
3. A put that hangs may still be done, some time. So the same commit is put under another name, that of a
   later time; whoever reads both has the same commit twice.
4. A commit that failed uses its number up, see rule 5 of `chain`: it may be there or not.
5. Commits of a chain, in which each message has a row, are compressed. What is written now and then is not.
6. The head is put under a name with its time, then the one before is deleted. Of several the newest counts.
"""

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from pairbus.clock import Clock, SystemClock
from pairbus.stores.errors import CallHungError
from pairbus.stores.packing import MOST_PACKED, PACKED
from pairbus.stores.places import RecordPlace, StoreUri
from pairbus.stores.store import RecordStore, open_store

from .chain import ChainWriter
from .seal import seal_rows
from .segment import MAX_AGE, SegmentWriter, encode_row

log = logging.getLogger(__name__)
#: At full rate a few puts a second; a message waits no longer than that for its completion.
GATHER = 0.2
#: One put more for so many messages is a hundredth of what they cost by themselves.
WORTH = 100
_PUTS = 3


class CommitWriter:
    """Puts rows of one kind into a store. Not for several threads at once."""

    def __init__(
        self,
        store: RecordStore,
        kind: str,
        *,
        max_age: float = MAX_AGE,
        clock: Clock | None = None,
        encode: Callable[[Any], bytes] | None = None,
        is_chained: bool = False,
        gather: float = GATHER,
    ) -> None:
        """Does no I/O. `max_age`: how often the head is told anew while commits are made."""
        self._store = store
        self.kind = kind
        self.max_age = max_age
        self._clock = clock or SystemClock()
        self._encode = encode or encode_row
        self._chain = ChainWriter.begin(self._clock.now()) if is_chained else None
        self._gather = gather
        self._last_put = -gather
        self._is_urged = threading.Event()
        self._unurged = WORTH  # rows since it was last heard
        self._told: str | None = None
        self._anchored: int | None = None

    def begin(self) -> None:
        """Leave a sign that there is a writer, for the case that nothing is ever written."""
        if self._chain is not None and self._told is None:
            self._anchor(self._chain, is_open=True)

    def gather(self) -> None:
        """Rule 2."""
        wait = self._last_put + self._gather - time.monotonic()
        if wait > 0 and self._unurged < WORTH:
            time.sleep(wait)
        elif wait > 0 and self._is_urged.wait(wait):
            self._unurged = 0
        self._is_urged.clear()

    def urge(self) -> None:
        """Nobody comes until what waits is kept; from any thread."""
        self._is_urged.set()

    def append_if_ready(self, rows: Iterable[Any]) -> bool:
        """Nothing is kept by a mere write."""
        return False

    def append(self, rows: Iterable[Any], *, is_synced: bool = True) -> None:
        """Keep these rows, in order, as one object; they are durable when this returns, asked for or not."""
        lines = list(map(self._encode, rows))
        if not lines:
            return
        data = b"".join(lines)
        self.begin()
        rest = f"{uuid.uuid4().hex}.jsonl"
        if self._chain is not None:
            rest = f"{self._chain.segment_name}.jsonl"
            data += self._chain.link(data, len(lines))
            rest += PACKED if len(data) <= MOST_PACKED else ""
        else:
            data += seal_rows(data)
        self._last_put = time.monotonic()
        for left in reversed(range(_PUTS)):
            try:
                self._store.put(f"{self.kind}-{int(self._clock.now() * 1000):013d}-{rest}", data)
                break
            except CallHungError:  # rule 3
                if not left:
                    raise
        self._unurged += len(lines)
        if self._chain is not None:
            self._chain.keep()

    def sync(self) -> None:
        """There is nothing that is not durable."""

    def close(self, *, ends: bool = False) -> None:
        """Tell how far the chain goes; rows may still follow, even if the writer thinks that it `ends`."""
        if self._chain is None or not (ends or self._anchored != self._chain.commits):
            return
        try:
            self._anchor(self._chain, is_open=not ends)
        except OSError as error:  # the rows are safe, and linked to each other
            log.warning("cannot anchor the chain of %s: %s", self.kind, error)

    def _anchor(self, chain: ChainWriter, *, is_open: bool) -> None:
        head = chain.head(at=self._clock.now(), is_open=is_open, lost=0)
        if not is_open and chain.is_idle:
            head = head.as_nobody()
        name, before = head.object_name(self.kind), self._told
        self._store.put(name, head.to_bytes())
        self._told, self._anchored = (name, chain.commits) if is_open else (None, None)
        if before is not None and before != name:
            self._store.delete(before)


#: Writes rows of one kind somewhere; called by one thread at a time.
RowWriter = SegmentWriter | CommitWriter


def open_writer(
    place: RecordPlace,
    kind: str,
    *,
    max_age: float = MAX_AGE,
    clock: Clock | None = None,
    encode: Callable[[Any], bytes] | None = None,
    is_chained: bool = False,
    is_shipped: bool = False,
) -> RowWriter:
    """A writer of segments in a directory, which may be shipped from there, or of objects in a store."""
    make: Callable[..., RowWriter] = (
        partial(CommitWriter, open_store(place))
        if isinstance(place, StoreUri)
        else partial(SegmentWriter, place, is_shipped=is_shipped)
    )
    return make(kind, max_age=max_age, clock=clock, encode=encode, is_chained=is_chained)
