"""Group commit: all who have something to keep at the same time share one write, and so one fsync.

1. `append` queues its items and waits. A job on the thread takes all that is queued and writes it with one
   call. What comes while that runs is queued for the next job.
2. Always: every append ends. It returns after the call that wrote its items has returned, and it raises what
   that call raised, whatever that is; so does every append of the same call. Nothing else makes it return.
3. A failure ends with its call. The next append begins anew.
4. The items of one append are written by one call, and appends in their order.
5. Items of a caller that is cancelled are written all the same: the call may have begun, and others share it.
6. Nothing here belongs to an event loop. Each caller is told on its own; one that has been closed meanwhile
   has nobody on it who waits.
7. `ended` hears of the items of every call before those who wait do, on their loop: also of the items of a
   caller that is gone. Whatever it raises, all are told.
8. Who waits goes on in the turn of its loop that hears of the end (`promises`), in the order of the appends.
9. A write may be begun *here*, on the loop, while the thread has nothing to do. It is one that waits for
   nothing, and tells its end later; until then the thread is lent to it, and what comes is queued as in rule
   1. What it has not kept is written by the thread, before all that came meanwhile: here nothing fails. Its
   loop may be closed before it ends: then the next append has the thread wait for it.
10. What was queued before other work of the thread was posted is written before that is done, also while a
   write is under way here: who closes the files, say, comes after all that is to be written to those.
11. An interruption (Ctrl-C, or what another thread raises in ours, of any class) is raised in whatever code
   of the loop it meets. No append waits for ever then.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from .promises import Promise, wake_all
from .serial_thread import SerialThread

log = logging.getLogger(__name__)
T = TypeVar("T")


class WriteHere(NamedTuple, Generic[T]):
    """How a write is begun on the loop: rule 9."""

    #: Begins to write these, and tells later whether they are safe. False: nothing has begun.
    begin: Callable[[list[T], Callable[[bool], None]], bool]
    #: Waits, on another thread, for what is under way, if anything is, and tells its end there. When it
    #: returns, that has been told.
    wait: Callable[[], None]


class _Waiter(Promise, Generic[T]):
    __slots__ = ("_error", "_is_kept", "items")

    def __init__(self, items: Sequence[T], loop: asyncio.AbstractEventLoop) -> None:
        Promise.__init__(self, loop)
        self.items = items
        self._is_kept = False
        self._error: BaseException | None = None

    def end(self, error: BaseException | None) -> None:
        if not self._is_done:  # or its caller was cancelled
            self._is_done, self._is_kept, self._error = True, error is None, error

    def result(self) -> None:
        if not self._is_kept:
            raise self._error or asyncio.CancelledError


class GroupCommit(Generic[T]):
    """Has items written in groups, on a thread that may do other work too."""

    def __init__(
        self,
        write: Callable[[list[T]], None],
        *,
        thread: SerialThread,
        gather: Callable[[], None] = lambda: None,
        ended: Callable[[list[T], BaseException | None], None] | None = None,
        here: WriteHere[T] | None = None,
    ) -> None:
        """`write` returns when the items are safe, and raises if that cannot be said of them. `gather` may
        wait before each write, so that more come to share it. `ended` is told of items that a write has
        kept, or of the error that it met. `here` may begin a write without the thread.
        """
        self._write = write
        self._here = here
        self._gather = gather
        self._ended = ended
        self._thread = thread
        self._lock = threading.Lock()
        self._waiting: list[_Waiter[T]] = []
        #: How many items wait for the next write, also of callers that are gone.
        self.waiting = 0
        # What is being written here, and the loop that began it.
        self._begun: list[_Waiter[T]] | None = None
        self._away: asyncio.AbstractEventLoop | None = None
        self._is_taken_over = False

    async def append(self, items: Sequence[T]) -> None:
        """Keep these; they are safe when this returns."""
        loop = asyncio.get_running_loop()
        waiter = _Waiter(items, loop)
        try:
            with self._lock:
                is_first = not self._waiting
                self._waiting.append(waiter)
                self.waiting += len(items)
                away = self._away
            if away is None:
                if is_first:
                    self._set_out(loop)
            elif away is not loop:  # that may have been closed
                self._post()
        except BaseException:  # rule 11: others may be queued behind it
            self._post()
            raise
        await waiter

    def _set_out(self, loop: asyncio.AbstractEventLoop) -> None:
        here, has_begun = self._here, False
        try:
            has_begun = here is not None and self._thread.lend(
                partial(self._begin_here, here, loop), partial(self._take_over, here)
            )
        except Exception as error:  # noqa: BLE001 - the thread meets it too, and tells
            log.debug("cannot begin a write on the loop: %r", error)
        finally:
            if not has_begun:
                self._post()

    def _begin_here(self, here: WriteHere[T], loop: asyncio.AbstractEventLoop) -> bool:
        """Called while the thread has nothing to do, and takes on nothing."""
        with self._lock:
            taken, self._waiting, self.waiting = self._waiting, [], 0
            self._begun, self._away = taken, loop
        items = [item for waiter in taken for item in waiter.items]
        if here.begin(items, partial(self._end_here, taken, loop)):
            return True
        self._put_back(taken)
        return False

    def _take_over(self, here: WriteHere[T]) -> None:
        """Rule 10. On the thread, before the first work that was posted while it was lent."""
        self._is_taken_over = True
        here.wait()
        self._is_taken_over = False
        if self._begun is not None:  # to begin it has failed, or was interrupted
            self._put_back(self._begun)
            self._thread.give_back()
        self._write_waiting()

    def _put_back(self, taken: list[_Waiter[T]]) -> None:
        with self._lock:
            self._waiting[:0] = taken
            self.waiting += sum([len(waiter.items) for waiter in taken])
            self._begun = self._away = None

    def _end_here(self, taken: list[_Waiter[T]], loop: asyncio.AbstractEventLoop, is_kept: bool) -> None:
        """What was begun on the loop has ended; told there, or on the thread."""
        if self._begun is not taken:
            return  # whoever began it was interrupted, and they are the thread's
        is_here = asyncio._get_running_loop() is loop
        try:
            if is_kept:
                with self._lock:
                    self._begun = self._away = None
            else:
                self._put_back(taken)
            self._thread.give_back()
            if not self._waiting or self._is_taken_over:
                pass  # the thread writes them now
            elif is_kept and is_here:  # first: the disk works while those who go on do
                self._set_out(loop)
            else:
                self._post()
        except BaseException:  # rule 11
            self._post()
            raise
        finally:
            if is_kept:
                try:
                    self._tell(taken, None, here=loop if is_here else None)
                except BaseException:  # rule 11: once more, in another turn; who has heard does not mind
                    self._tell(taken, None)
                    raise

    def _post(self) -> None:
        try:
            self._thread.post(self._write_waiting)
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            self._tell(self._take(), error)

    def _take(self) -> list[_Waiter[T]]:
        with self._lock:
            taken, self._waiting, self.waiting = self._waiting, [], 0
        return taken

    def _write_waiting(self) -> None:
        error: BaseException | None = None
        try:
            self._gather()
        except BaseException as raised:  # noqa: BLE001 - it is raised where it is waited for
            error = raised
        taken = self._take()
        try:
            if taken and error is None:
                self._write([item for waiter in taken for item in waiter.items])
        except BaseException as raised:  # noqa: BLE001 - the same
            error = raised
        self._tell(taken, error)

    def _tell(
        self,
        waiters: list[_Waiter[T]],
        error: BaseException | None,
        *,
        here: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """This is how it ended; from any thread, or from a callback of the loop that is `here`."""
        if isinstance(error, StopIteration):  # no task takes one, and whoever waits must be told
            error = RuntimeError(f"the write ended with {error!r}")
        for loop in {waiter.loop for waiter in waiters}:
            told = deque(waiter for waiter in waiters if waiter.loop is loop)
            if loop is here:
                self._end(told, error)
                continue
            with suppress(RuntimeError):  # rule 6: it has been closed
                loop.call_soon_threadsafe(self._end, told, error)

    def _end(self, waiters: deque[_Waiter[T]], error: BaseException | None) -> None:
        try:
            if self._ended is not None:
                self._ended([item for waiter in waiters for item in waiter.items], error)
        finally:
            self._release(waiters, error, waiters[0].loop)

    def _release(
        self,
        waiters: deque[_Waiter[T]],
        error: BaseException | None,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        try:
            for waiter in waiters:
                waiter.end(error)
            wake_all(waiters, loop)
        finally:
            if waiters:  # rule 11: else all have been woken, or will be
                loop.call_soon(self._release, waiters, error, loop)
