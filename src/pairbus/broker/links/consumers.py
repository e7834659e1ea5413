"""Who waits for messages: the receivers of each queue, in rotation, and attaches that wait for a session.

Nothing here walks over all receivers or all waits of a namespace: a receiver of a session is found by its
lock, a wait by its queue or by its end.
"""

import time
from collections import OrderedDict, deque
from collections.abc import Set
from typing import TYPE_CHECKING

from pairbus.broker.engine.deadlines import Deadlines
from pairbus.broker.engine.names import entity_of, fold
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.queue import MessageQueue
from pairbus.broker.engine.sessions import SessionLock

from .pace import SERVING_SLICE

if TYPE_CHECKING:
    from .attach import SessionWait
    from .peer import Peer
    from .sending_endpoint import SendingEndpoint

# With several hungry receivers on a queue each gets this many before the next one's turn.
_SHARE = 4
_ALL = 1 << 30


class Consumers:
    """The receivers of one namespace."""

    def __init__(self) -> None:
        # Receivers without a session by queue, in the order of their turns; the others by their lock.
        self._outboxes: dict[MessageQueue, OrderedDict[SendingEndpoint, None]] = {}
        self._readers: dict[SessionLock, SendingEndpoint] = {}
        # Not a plain dictionary: that is slow to find its first entry when many were removed before it.
        self._waits: dict[MessageQueue, OrderedDict[int, SessionWait]] = {}
        self._wait_ends: Deadlines[int] = Deadlines()
        self._waiting: dict[int, SessionWait] = {}
        self._wanting: dict[SendingEndpoint, None] = {}
        # The time for one turn was over before these queues, and readers of sessions, had theirs: they are
        # the first in the next one, in this order. Then come queues of which some receivers had theirs.
        self._late: dict[MessageQueue | SendingEndpoint, None] = {}
        self._unserved: set[MessageQueue] = set()
        self._until = 0.0
        #: Something has been given out in this turn.
        self.has_served = False

    def enlist(self, outbox: "SendingEndpoint") -> None:
        """A receiver has attached."""
        if outbox.session is not None:
            self._readers[outbox.session] = outbox
        else:
            self._outboxes.setdefault(outbox.queue, OrderedDict())[outbox] = None

    def leave(self, outbox: "SendingEndpoint") -> None:
        """A receiver has gone."""
        self._wanting.pop(outbox, None)
        self._late.pop(outbox, None)
        if outbox.session is not None:
            self._readers.pop(outbox.session, None)
            return
        others = self._outboxes.get(outbox.queue)
        if others is not None:
            others.pop(outbox, None)
            if not others:
                del self._outboxes[outbox.queue]

    def reader_of(self, lock: SessionLock | None) -> "SendingEndpoint | None":
        """The receiver that holds a session by this lock."""
        return None if lock is None else self._readers.get(lock)

    def want(self, outbox: "SendingEndpoint") -> None:
        """A receiver's credit has changed: see to it at the end of the turn."""
        self._wanting[outbox] = None

    # -- attaches that wait for a session

    @property
    def patience_ends(self) -> float:
        """When the first wait ends, in monotonic time; at times too early, never too late."""
        return self._wait_ends.next()

    def await_session(self, wait: "SessionWait") -> None:
        """An attach waits for the next free session of its queue."""
        self._waits.setdefault(wait.queue, OrderedDict())[wait.number] = wait
        self._waiting[wait.number] = wait
        self._wait_ends.add(wait.until, wait.number)

    def stop_waiting(self, wait: "SessionWait") -> None:
        """An attach waits no longer."""
        if self._waiting.pop(wait.number, None) is None:
            return
        self._wait_ends.remove(wait.until, wait.number)
        waits = self._waits[wait.queue]
        del waits[wait.number]
        if not waits:
            del self._waits[wait.queue]

    def waits(self, entities: Set[str] | None = None) -> "list[SessionWait]":
        """All that wait at these entities, or anywhere; those of a queue in their order."""
        if entities is None:
            return list(self._waiting.values())
        queues = [queue for queue in self._waits if entity_of(fold(queue.path)) in entities]
        return [wait for queue in queues for wait in self._waits[queue].values()]

    def impatient(self, monotonic: float) -> "list[SessionWait]":
        """Those whose time is over."""
        return [self._waiting[number] for number in self._wait_ends.pop_due(monotonic)]

    # -- giving out

    def serve(self, engine: Namespace, now: float) -> "set[Peer]":
        """Give out to whoever has credit, as far as a turn's time goes; the peers that got something."""
        served: set[Peer] = set()
        wanting = list(self._wanting)
        self._wanting.clear()
        late, self._late = self._late, {}
        self._until, self.has_served = time.monotonic() + SERVING_SLICE, False
        queues, self._unserved = engine.take_ready() | self._unserved, set()
        queues.difference_update(late)
        is_over = False
        for one in late:
            if is_over or (is_over := self.is_over()):  # there may be many, and each turn has time for few
                self._late[one] = None
            elif isinstance(one, MessageQueue):
                self._serve_queue(one, now, served)
            else:
                self._serve_reader(one, now, served)
        for outbox in wanting:
            if outbox in late or outbox.queue in late:
                continue
            if outbox.session is None:
                queues.add(outbox.queue)
            else:
                self._serve_reader(outbox, now, served)
        while queues:
            for queue in queues:
                self._serve_queue(queue, now, served)
            # Giving out can make more ready: an expired message moves to the dead letters.
            queues = engine.take_ready()
        for outbox in (*wanting, *(one for one in late if not isinstance(one, MessageQueue))):
            if not outbox.draining or outbox in self._wanting or outbox in self._late:
                continue
            if outbox.queue in self._unserved or outbox.queue in self._late:
                self._wanting[outbox] = None  # it has not had its turn
            elif outbox.may_finish_drain:
                outbox.finish_drain()
        return served

    def is_over(self) -> bool:
        """Whether it is the others' turn; not before something was given out."""
        return self.has_served and time.monotonic() >= self._until

    @property
    def is_behind(self) -> bool:
        """Whether some were not served that could have been."""
        return bool(self._wanting or self._unserved or self._late)

    def _serve_queue(self, queue: MessageQueue, now: float, served: "set[Peer]") -> None:
        if queue.requires_session:
            self._serve_waits(queue, now)
            for lock in queue.take_ready_sessions():
                reader = self._readers.get(lock)
                if reader is not None:
                    self._serve_reader(reader, now, served)
            return
        if self.is_over():
            self._late[queue] = None
            return
        outboxes = self._outboxes.get(queue)
        if not outboxes:
            return
        hungry = deque(outbox for outbox in outboxes if outbox.is_hungry)
        if len(hungry) == 1:
            self._serve_reader(hungry[0], now, served)
            return
        outboxes.move_to_end(next(iter(outboxes)))
        while hungry:
            if self.is_over():
                self._unserved.add(queue)
                return
            outbox = hungry.popleft()
            if not outbox.is_hungry:  # another link of its connection has just had its share
                continue
            if outbox.deliver(_SHARE, now):
                served.add(outbox.peer)
                if outbox.is_hungry:
                    hungry.append(outbox)
            elif outbox in outboxes:
                return  # the queue is empty; otherwise it was this receiver that had to go

    def _serve_reader(self, outbox: "SendingEndpoint", now: float, served: "set[Peer]") -> None:
        """Let a receiver have all that it has credit for."""
        if self.is_over():
            self._late[outbox] = None
        elif outbox.is_hungry and outbox.deliver(_ALL, now):
            served.add(outbox.peer)

    def _serve_waits(self, queue: MessageQueue, now: float) -> None:
        while waits := self._waits.get(queue):
            first = next(iter(waits.values()))
            if not first.try_again(now):
                return
            self.stop_waiting(first)
