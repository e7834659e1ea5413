"""Who waits for messages: the receivers of each queue, in rotation, and attaches that wait for a session."""

import math
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.queue import MessageQueue

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
        self._outboxes: dict[MessageQueue, deque[SendingEndpoint]] = {}
        self._waits: dict[MessageQueue, deque[SessionWait]] = {}
        self._wanting: dict[SendingEndpoint, None] = {}
        # When the first wait ends, in monotonic time; at times too early, never too late.
        self.patience_ends = math.inf

    def enlist(self, outbox: "SendingEndpoint") -> None:
        """A receiver has attached."""
        self._outboxes.setdefault(outbox.queue, deque()).append(outbox)

    def leave(self, outbox: "SendingEndpoint") -> None:
        """A receiver has gone."""
        self._wanting.pop(outbox, None)
        others = self._outboxes.get(outbox.queue)
        if others is not None and outbox in others:
            others.remove(outbox)
            if not others:
                del self._outboxes[outbox.queue]

    def touch(self, now: float) -> None:
        """A queue that somebody waits at is in use, however long nothing comes."""
        for queue in self._outboxes:
            queue.touch(now)

    def want(self, outbox: "SendingEndpoint") -> None:
        """A receiver's credit has changed: see to it at the end of the turn."""
        self._wanting[outbox] = None

    def await_session(self, wait: "SessionWait") -> None:
        """An attach waits for the next free session of its queue."""
        self._waits.setdefault(wait.queue, deque()).append(wait)
        self.patience_ends = min(self.patience_ends, wait.until)

    def take_waits(self, chosen: "Callable[[SessionWait], bool]") -> "list[SessionWait]":
        """Those attaches that wait for a session and are chosen; they do so no longer."""
        if not self._waits:
            return []
        everybody = [wait for waits in self._waits.values() for wait in waits]
        taken = {wait: None for wait in everybody if chosen(wait)}
        self._waits.clear()
        self.patience_ends = math.inf
        for wait in everybody:
            if wait not in taken:
                self.await_session(wait)
        return list(taken)

    def serve(self, engine: Namespace, now: float) -> "set[Peer]":
        """Give out what there is to whoever has credit; the peers that got something."""
        served: set[Peer] = set()
        wanting = list(self._wanting)
        self._wanting.clear()
        queues = engine.take_ready()
        queues.update(outbox.queue for outbox in wanting)
        while queues:
            for queue in queues:
                self._serve_queue(queue, now, served)
            # What was given out can make more ready: an expired message, found on the way, moved to the dead
            # letters.
            queues = engine.take_ready()
        for outbox in wanting:
            if outbox.draining:
                outbox.finish_drain()
        return served

    def _serve_queue(self, queue: MessageQueue, now: float, served: "set[Peer]") -> None:
        self._serve_waits(queue, now)
        outboxes = self._outboxes.get(queue)
        if not outboxes:
            return
        hungry = deque(outbox for outbox in outboxes if outbox.is_hungry)
        if queue.requires_session or len(hungry) == 1:
            for outbox in hungry:
                if outbox.deliver(_ALL, now):
                    served.add(outbox.peer)
            return
        outboxes.rotate(-1)
        while hungry:
            outbox = hungry.popleft()
            if outbox.deliver(_SHARE, now):
                served.add(outbox.peer)
                if outbox.is_hungry:
                    hungry.append(outbox)
            elif outbox in outboxes:
                return  # the queue is empty; otherwise it was this receiver that had to go

    def _serve_waits(self, queue: MessageQueue, now: float) -> None:
        waits = self._waits.get(queue)
        while waits and waits[0].try_again(now):
            waits.popleft()
        if waits is not None and not waits:
            self._waits.pop(queue, None)
