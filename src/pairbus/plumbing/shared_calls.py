"""A function that blocks, called on threads for all who want the same answer at the same time.

1. Whoever asks while the same is being asked waits for that answer. One that takes its time is not relied on:
   after `_PATIENCE` whoever comes asks anew, and then after twice as long each time. So a function that hung
   once is not waited for again, and one that hangs for hours holds a handful of threads.
2. A coroutine function is awaited instead, by each caller for itself. One behind a decorator may not look
   like one before it is called.
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, Generic, NamedTuple, TypeVar

from pairbus.threads import DaemonThreads

from .tasks import look_away

T = TypeVar("T")
_PATIENCE = 30.0


class _Question(NamedTuple, Generic[T]):
    asked_at: float
    answer: Future[T]


class SharedCalls(Generic[T]):
    """Calls one function. Lives on one event loop."""

    def __init__(self, function: Callable[..., T] | Callable[..., Awaitable[T]], *, name: str) -> None:
        """`name` is that of the threads."""
        self._function: Callable[..., Any] = function
        self._is_awaited = inspect.iscoroutinefunction(function)
        self._threads = DaemonThreads(name)
        # Those without an answer, by what was asked, the newest last.
        self._open: dict[str, list[_Question[T]]] = {}

    async def call(self, *args: Any, **kwargs: Any) -> T:
        """What the function gives or raises, to a call that begins now or has just begun."""
        if not self._is_awaited:
            answer: Any = await self._share(*args, **kwargs)
            if not inspect.isawaitable(answer):
                return answer  # type: ignore[no-any-return]
            self._is_awaited = True
            if inspect.iscoroutine(answer):
                answer.close()
        result: T = await self._function(*args, **kwargs)
        return result

    async def _share(self, *args: Any, **kwargs: Any) -> T:
        key = repr((args, sorted(kwargs.items())))
        found = [question for question in self._open.get(key, ()) if not question.answer.done()]
        now = time.monotonic()
        if not found or now - found[-1].asked_at >= _PATIENCE * 2 ** (len(found) - 1):
            found.append(_Question(now, self._threads.submit(self._function, *args, **kwargs)))
        self._open[key] = found
        answer = asyncio.wrap_future(found[-1].answer)
        answer.add_done_callback(look_away)  # whoever waits for it may be called away
        return await asyncio.shield(answer)
