"""Work of a store that is under way on a thread: a commit, or a load.

1. One at a time. What blocks for the disk, or computes for long, is done on the thread of the namespace's
   store; the event loop, which all namespaces of a process share, goes on meanwhile.
2. A flight *lands* on the event loop, once. Usually the loop is told; whoever cannot wait for that (the end
   of the broker, a call from the loop's own thread) blocks for it and lands it by hand.
3. Small turns are written by the loop and only finished by the thread: to write takes microseconds a message,
   and on the thread each row would pass Python's one lock from thread to thread and back. What is large is
   written by the thread, from records that the loop cannot change meanwhile.
4. Contents of messages are read on another thread, which waits for no commit.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from pairbus.broker.engine.breath import breathe
from pairbus.broker.engine.events import EngineEvent, MessageStored
from pairbus.broker.engine.message import Content, StoredMessage
from pairbus.plumbing.serial_thread import SerialThread

from .errors import StoreError
from .store.store import Store

T = TypeVar("T")
# No disk takes longer, or nothing can be hoped from it.
_DEADLINE = 300.0


class Flight:
    """A piece of work on the thread, and who waits for its end."""

    def __init__(self, *, is_load: bool) -> None:
        self.is_load = is_load
        self.result: Any = None
        #: What it ended with, when it has ended.
        self.error: Exception | None = None
        self._under_way = threading.Lock()
        self._under_way.acquire()
        self._waiting: list[asyncio.Future[None]] = []

    def fly(self, act: Callable[[], Any]) -> None:
        """Do the work, on the thread."""
        try:
            self.result = act()
        except BaseException as error:  # noqa: BLE001 - it is told where the flight lands
            self.error = error if isinstance(error, Exception) else StoreError(repr(error))
        finally:
            self._under_way.release()

    def block(self) -> None:
        """Wait for the end of the work where nothing else can be done."""
        if not self._under_way.acquire(timeout=_DEADLINE):
            raise StoreError(f"the store has not answered for {_DEADLINE:.0f} seconds.")
        self._under_way.release()

    async def landed(self) -> None:
        """Wait until the event loop has dealt with what came of it."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        await waiting

    def tell(self) -> None:
        """It has landed."""
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)


class HeldAnswers:
    """Answers that are given when the turn that they belong to is committed, or not at all."""

    def __init__(self) -> None:
        # Of the turn that goes on, and of the one that is being committed.
        self._held: list[tuple[asyncio.Future[Any], Callable[[Exception | None], Any]]] = []
        self._staged: list[tuple[asyncio.Future[Any], Callable[[Exception | None], Any]]] = []

    def hold(self, future: asyncio.Future[T], answer: Callable[[Exception | None], T]) -> None:
        """Answer in the end: `answer` is given None, or why the turn was refused."""
        self._held.append((future, answer))

    def stage(self) -> None:
        """The turn has ended, and is to be committed."""
        self._staged += self._held
        self._held = []

    def release(self) -> None:
        """It is committed."""
        self._tell(None)

    def refuse(self, error: Exception) -> None:
        """It is not, and what came after it is not either."""
        self.stage()
        self._tell(error)

    def _tell(self, error: Exception | None) -> None:
        staged, self._staged = self._staged, []
        for future, answer in staged:
            if not future.done():
                future.set_result(answer(error))


class StoreThread:
    """Has the work of one store done on a thread."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._thread = SerialThread(f"pairbus-store-{name}")
        self._reader = SerialThread(f"pairbus-reads-{name}")

    def prepare(self, events: Sequence[EngineEvent]) -> Callable[[], None]:
        """What is left to be done on the thread to commit a turn. What cannot even be written raises here."""
        if not self._store.is_heavy(events):
            self._store.write(events)
            return self._store.finish
        fixed = []
        for event in events:
            if type(event) is MessageStored:
                event = MessageStored(event.queue, event.message.copy(event.message.sequence_number))
            fixed.append(event)
            breathe()
        return lambda: self._store.commit(fixed)

    def commit(self, finish: Callable[[], None], land: Callable[[Flight], None]) -> Flight:
        """Commit a turn that is prepared."""
        return self._take_off(finish, land, is_load=False)

    def load(self, load: Callable[[], Any], land: Callable[[Flight], None]) -> Flight:
        """Read everything, after what was committed before."""
        return self._take_off(load, land, is_load=True)

    def read(self, messages: Sequence[StoredMessage], land: Callable[[Flight], None]) -> Flight:
        """Read the contents of messages of one queue, none of which is at hand."""
        source = messages[0].held
        assert not isinstance(source, Content)
        numbers = [message.sequence_number for message in messages]
        return self._take_off(lambda: source.read(numbers), land, is_load=False, thread=self._reader)

    def close(self) -> None:
        """Let go of the store, after all that is under way."""
        if not self._store.remembers:
            self._store.close()
            return
        self._reader.submit(lambda: None).result(_DEADLINE)
        self._reader.rest()
        self._thread.submit(self._store.close).result(_DEADLINE)
        self._thread.rest()

    def _take_off(
        self,
        act: Callable[[], Any],
        land: Callable[[Flight], None],
        *,
        is_load: bool,
        thread: SerialThread | None = None,
    ) -> Flight:
        loop, flight = asyncio.get_running_loop(), Flight(is_load=is_load)

        def perform() -> None:
            flight.fly(act)
            with suppress(RuntimeError):  # the loop has been closed, and whoever did so has not waited
                loop.call_soon_threadsafe(land, flight)

        (thread or self._thread).post(perform)
        return flight
