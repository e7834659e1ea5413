"""An event loop without a machine below it: time is a number, and nothing happens but what was asked for.

Theory of operation
1. Callbacks run in the order in which they became ready, as on every asyncio loop. When none is ready, time
   jumps to the next timer. So hours pass in milliseconds, and a run depends on its seed alone.
2. Whoever asks for something belongs to a *process*, which travels in the context of tasks, timers and
   callbacks. A process that is killed never gets another step: its tasks are not cancelled and no `finally`
   of theirs runs, as if by `kill -9`. It may be told beforehand with which step that happens.
3. What is handed to an executor is run inline, a little later.
4. There is an end: of virtual time, and of steps. Where nothing can ever happen again before that, or the
   steps run out, somebody waits for ever or runs in circles: `Stuck`.
"""

import asyncio
import contextlib
import heapq
import random
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from math import inf
from typing import Any, TypeVar, TypeVarTuple

from pairbus.errors import PairbusError

__all__ = ["EPOCH", "Process", "SimulatedClock", "SimulatedLoop", "Stuck", "current_process", "outside"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
# When virtual time begins, in Unix seconds: a recognisable instant.
EPOCH = 1_700_000_000.0


class Stuck(PairbusError):
    """Nothing happens any more, or too much."""


class Process:
    """Everything that lives and dies together."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_alive = True
        self.steps = 0
        #: With this step it is ended, which is by killing it unless somebody knows better.
        self.ends_at: float = inf
        self.end: Callable[[], None] = self.kill
        #: Until then it stands still, as if by SIGSTOP: what happens to it waits.
        self.stands_until = -inf
        #: Called when it has been killed.
        self.on_death: list[Callable[[], None]] = []

    def kill(self) -> None:
        """End it, without another step."""
        if self.is_alive:
            self.is_alive = False
            for tell in self.on_death:
                tell()


_process: ContextVar[Process | None] = ContextVar("process", default=None)


def current_process() -> Process | None:
    """Whose step this is."""
    return _process.get()


def outside() -> Context:
    """A context that belongs to no process: what is called in it happens whoever is dead by then."""
    context = copy_context()
    context.run(_process.set, None)
    return context


class SimulatedLoop(asyncio.BaseEventLoop):
    """The loop of one history."""

    def __init__(self, seed: object) -> None:
        self._is_playing = self._is_over = False
        super().__init__()
        self.chance = random.Random(f"loop {seed}")
        self.steps = 0
        self.max_steps = 2_000_000
        self.errors: list[str] = []
        self._now = 0.0
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.Handle]] = []
        self._count = 0
        self._tasks: list[asyncio.Task[Any]] = []
        self._interruptions: list[tuple[int, int, Callable[[], object]]] = []

    # -- running

    def run(self, main: Coroutine[Any, Any, T], *, limit: float) -> T:
        """Run until `main` has ended; Stuck if that is not before `limit` seconds."""
        asyncio._set_running_loop(self)
        self._is_playing = True
        try:
            task: asyncio.Task[T] = self.create_task(main)
            self._play(task.done, limit)
            return task.result()
        finally:
            self._end()
            asyncio._set_running_loop(None)

    def _play(self, is_done: Callable[[], bool], limit: float) -> None:
        # In one piece: there are thousands of steps in a history, and most of them are short.
        ready, interruptions = self._ready, self._interruptions
        while not is_done():
            if not ready:
                self._jump(limit)
            self.steps += 1
            while interruptions and interruptions[0][0] <= self.steps:
                heapq.heappop(interruptions)[2]()
            if self.steps > self.max_steps:
                raise Stuck(f"{self.max_steps} steps and no end")
            handle = ready.popleft()
            if handle.cancelled():
                continue
            process = handle._context.get(_process)  # type: ignore[attr-defined]
            if process is None or self._may_step(process, handle):
                handle._run()

    def _may_step(self, process: Process, handle: asyncio.Handle) -> bool:
        if not process.is_alive:
            return False
        if process.stands_until > self._now:
            self._count += 1
            heapq.heappush(self._timers, (process.stands_until, self._count, handle))
            return False
        process.steps += 1
        if process.steps >= process.ends_at:
            process.ends_at = inf
            process.end()
        return process.is_alive

    def interrupt(self, steps: int, act: Callable[[], object]) -> None:
        """Do something so many steps from now, between two of them: no timer comes at such a moment."""
        self._count += 1
        heapq.heappush(self._interruptions, (self.steps + steps, self._count, act))

    def _jump(self, limit: float) -> None:
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not timers:
            raise Stuck("somebody waits, and nothing will ever happen")
        self._now = max(self._now, timers[0][0])
        if self._now > limit:
            raise Stuck(f"no end within {limit:g} s")
        while timers and timers[0][0] <= self._now:
            self._ready.append(heapq.heappop(timers)[2])

    def _end(self) -> None:
        """Let go of what was left behind; whatever that does concerns nobody any more."""
        self._is_playing, self._is_over = False, True
        for task in self._tasks:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with contextlib.suppress(BaseException):
                    task.get_coro().close()
        self._tasks.clear()
        self._ready.clear()
        self._timers.clear()

    # -- processes

    def spawn(self, process: Process, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run something in a process."""
        context = copy_context()
        context.run(_process.set, process)
        task: asyncio.Task[T] = self.create_task(work, context=context)
        return task

    # -- what asyncio asks of a loop

    def time(self) -> float:
        return self._now

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self._is_over:
            self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        if not self._is_over:
            self._count += 1
            heapq.heappush(self._timers, (when, self._count, timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is passed over when its time comes."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: object = None, context: Context | None = None) -> Any:
        task = asyncio.Task(coro, loop=self, name=None if name is None else str(name), context=context)
        self._tasks.append(task)
        if len(self._tasks) > 4096:
            self._tasks = [one for one in self._tasks if not one.done()]
        return task

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future = self.create_future()

        def work() -> None:
            if future.cancelled():
                return
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001 - it belongs to whoever waits for it
                future.set_exception(error)
            else:
                future.set_result(result)

        self.call_later(self.chance.uniform(0.0001, 0.003), work)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if "handle" in context:  # others are told when something is collected, which is no fixed moment
            self.errors.append(f"{context.get('message')}: {context.get('exception')!r}")

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._is_playing

    def is_closed(self) -> bool:
        return self._is_over


class SimulatedClock:
    """The clock of a process; `skew` is how much it is ahead of the others."""

    def __init__(self, loop: events.AbstractEventLoop, skew: float = 0.0) -> None:
        self._loop = loop
        self._skew = skew

    def now(self) -> float:
        return EPOCH + self._loop.time() + self._skew

    def monotonic(self) -> float:
        return self._loop.time()
