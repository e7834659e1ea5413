"""What is in memory of the messages of a namespace whose store has them: the contents of a few.

Theory
1. Of every message the record is in memory, and of those that nobody has committed yet the content too. Once
   the store has it, a content is only kept so that it need not be read back: what was stored a moment ago is
   mostly delivered in the next. `MOST_KEPT` bytes of them are kept.
2. Two generations are kept. What is committed, or read, joins the younger one. When that has half of the
   budget, the older one is let go and the younger takes its place. So nothing has to be noted when a message
   is delivered or leaves, and what a sender in a hurry pays is one entry of a list, a turn's in one go.
3. A content is let go only if the message still has that one: another, which a settlement has made of it, may
   not be committed. Contents never change, so whatever was committed or read is what the file has.
4. Receivers are given what is at hand. What is next in their line and is not at hand is read for them on a
   thread, many at a time, and they are served again when it has come. The same holds for whoever peeks. So
   nobody waits for the disk but who asked for what lies there.
5. What one request needs fits into a generation, or is a single message: otherwise one part of it would be
   let go for the other, over and over.
6. What moves by itself (an expired message that becomes a dead letter, a scheduled one that comes due) is
   read where it happens, since it has to be done before anything else is: many at a time.
"""

from collections.abc import Callable, Iterable, Sequence

from pairbus import conditions
from pairbus.errors import PairbusError

from .engine.breath import slices
from .engine.errors import Refused
from .engine.events import EngineEvent, MessageChanged, MessageStored
from .engine.message import Content, ContentSource, StoredMessage
from .engine.namespace import Namespace
from .engine.queue import MessageQueue
from .engine.sessions import SessionLock
from .errors import StoreError
from .flights import Flight, StoreThread
from .store.store import Store

#: Bytes of contents that are kept for a namespace, and those that one request may need.
MOST_KEPT, MOST_NEEDED = 64 << 20, 32 << 20
#: What a content takes beside the bytes that its message counts: objects, and what they are held by.
OVERHEAD = 700
_Kept = tuple[StoredMessage, Content]
# A message whose content is asked for, and what it had instead then.
_Asked = tuple[StoredMessage, Content | ContentSource]
# By queue: the contents that a turn brings.
_Noted = dict[str, list[_Kept]]
# Events that may bring a content.
_BRINGING = {MessageStored, MessageChanged}


class NotAtHand(PairbusError):
    """Contents have to be read first, of these numbers by queue. Nothing has been done yet."""

    def __init__(self, absent: dict[str, list[int]]) -> None:
        super().__init__(f"not all messages of {', '.join(absent)} are at hand that are needed")
        self.absent = absent


def check_at_hand(needed: Iterable[tuple[MessageQueue, StoredMessage]]) -> None:
    """Raise NotAtHand unless all of them are; Refused if they are too many to be in memory together."""
    absent: dict[str, list[int]] = {}
    count = size = 0
    for queue, message in needed:
        count, size = count + 1, size + message.size + OVERHEAD
        if not message.is_at_hand:
            absent.setdefault(queue.path, []).append(message.sequence_number)
    if count > 1 and size > MOST_NEEDED:
        raise Refused(
            conditions.RESOURCE_LIMIT,
            f"The {count} messages take {size} bytes, more than the {MOST_NEEDED} bytes that are handled at "
            "once. Name fewer of them.",
        )
    if absent:
        raise NotAtHand(absent)


class Contents:
    """Keeps the contents that were committed or read last, and has others read."""

    def __init__(
        self, store: Store, thread: StoreThread, *, fail: Callable[[Exception], None], budget: int = MOST_KEPT
    ) -> None:
        """`fail` is called if something cannot be read."""
        self._store = store
        self._thread = thread
        self._fail = fail
        self._half = budget // 2
        self._old: list[tuple[ContentSource, list[_Kept]]] = []
        self._young: list[tuple[ContentSource, list[_Kept]]] = []
        self._young_size = 0
        self._noted: _Noted = {}
        # What is being read, and which receivers wait for it.
        self._waiting: dict[tuple[MessageQueue, SessionLock | None], list[Callable[[], None]]] = {}
        self._is_closed = False

    def close(self) -> None:
        """Nobody is to be told of anything any more."""
        self._is_closed = True

    # -- keeping

    def note(self, events: Sequence[EngineEvent]) -> None:
        """A turn is about to be committed: these contents will be in the store with it."""
        noted: _Noted = {}
        path, kept = "", list[_Kept]()
        if _BRINGING.isdisjoint(map(type, events)):
            events = ()
        for few in slices(events):
            for event in few:
                if type(event) is MessageStored:
                    queue, message = event
                elif type(event) is MessageChanged and event.changed is not None:
                    queue, message = event.queue, event.changed
                else:
                    continue
                content = message.held
                if isinstance(content, Content):
                    if queue is not path:
                        path, kept = queue, noted.setdefault(queue, [])
                    kept.append((message, content))
        self._noted = noted

    def take_noted(self) -> _Noted:
        """What was noted of the turn that is committed: it is in the store now."""
        noted, self._noted = self._noted, {}
        return noted

    def settle(self) -> None:
        """The turn that was noted is committed."""
        self.keep(self.take_noted())

    def keep(self, noted: _Noted) -> None:
        """Keep for a while what the store has now; other turns may have been noted since."""
        for queue, kept in noted.items():
            source = self._store.source(queue)
            if source is not None:  # the queue is still there
                self._keep(source, kept)
        self._turn_over()

    def _take_in(self, asked: Sequence[_Asked], contents: Sequence[Content | None]) -> None:
        """These have been read. A message that got a content meanwhile keeps it: it may be another one."""
        before, kept = None, list[_Kept]()
        for (message, source), content in zip(asked, contents, strict=True):
            if content is None or message.held is not source or isinstance(source, Content):
                continue
            if source is not before:
                if before is not None:
                    self._keep(before, kept)
                before, kept = source, []
            message.held = content
            kept.append((message, content))
        if before is not None:
            self._keep(before, kept)
        self._turn_over()

    def _keep(self, source: ContentSource, kept: list[_Kept]) -> None:
        self._young.append((source, kept))
        self._young_size += sum([message.size for message, _ in kept]) + len(kept) * OVERHEAD

    def _turn_over(self) -> None:
        if self._young_size < self._half:
            return
        for source, kept in self._old:
            for message, content in kept:
                if message.held is content:
                    message.held = source
        self._old, self._young, self._young_size = self._young, [], 0

    # -- reading

    def bring_next(self, queue: MessageQueue, session: SessionLock | None, then: Callable[[], None]) -> bool:
        """Have what waits next at hand, and then go on; False if nothing has to be brought for that."""
        absent = queue.absent(session)
        if not absent:
            return False
        waiting = self._waiting.setdefault((queue, session), [])
        waiting.append(then)
        if len(waiting) == 1:
            self._bring(queue, absent, lambda: self._go_on(queue, session))
        return True

    def _go_on(self, queue: MessageQueue, session: SessionLock | None) -> None:
        for then in self._waiting.pop((queue, session)):
            then()

    def bring_absent(self, absent: NotAtHand, engine: Namespace, then: Callable[[], None]) -> None:
        """Have at hand what was asked for, queue by queue, and then go on."""
        left = [_find(engine, path, numbers) for path, numbers in absent.absent.items()]

        def bring_next() -> None:
            while left:
                queue, messages = left.pop()
                if away := [message for message in messages if not message.is_at_hand]:
                    self._bring(queue, away, bring_next)
                    return
            then()

        bring_next()

    def _bring(
        self, queue: MessageQueue, messages: Sequence[StoredMessage], then: Callable[[], None]
    ) -> None:
        asked = [(message, message.held) for message in messages]

        def land(flight: Flight) -> None:
            if self._is_closed:
                return
            if flight.error is not None:
                self._fail(flight.error)
            elif lost := _lost(queue, messages, flight.result):
                self._fail(StoreError(f"{lost!r} of {queue.path} is not where it was stored."))
            else:
                self._take_in(asked, flight.result)
            then()

        self._thread.read(messages, land)


def _find(engine: Namespace, path: str, numbers: Sequence[int]) -> tuple[MessageQueue, list[StoredMessage]]:
    queue = engine.node(path)
    assert isinstance(queue, MessageQueue)
    found = (queue.table.get(number) for number in numbers)
    return queue, [message for message in found if message is not None]


def _lost(
    queue: MessageQueue, messages: Sequence[StoredMessage], contents: Sequence[Content | None]
) -> StoredMessage | None:
    """A message that is still in its queue and whose content is not in the store."""
    for message, content in zip(messages, contents, strict=True):
        if content is None and queue.table.get(message.sequence_number) is message:
            return message
    return None
