"""Threads for work that blocks: each piece has a daemon thread of its own.

The usual executor of an event loop is not for it. It has a few threads, which the application's own work may
fill for as long as it likes; it takes no more work once the main thread has ended, though other threads may
still be at work; and no process ends before all of its threads have, be it that one of them hangs.
"""

import concurrent.futures
import threading
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


def fulfil(future: concurrent.futures.Future[T], function: Callable[[], T]) -> None:
    """Call a function, here and now, for whoever waits for what comes of it."""
    try:
        result = function()
    except BaseException as error:  # noqa: BLE001 - it is raised where the future is awaited
        future.set_exception(error)
    else:
        future.set_result(result)


class DaemonThreads(concurrent.futures.ThreadPoolExecutor):
    """As an executor: asyncio takes no other kind for its usual one than this."""

    def __init__(self, name: str = "pairbus-work") -> None:
        """`name` is that of the threads."""
        super().__init__(1)
        self._name = name

    def submit(
        self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> concurrent.futures.Future[T]:
        """Have a function called, at once: whoever is called away takes it from nobody."""
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        future.set_running_or_notify_cancel()

        work = partial(fulfil, future, partial(fn, *args, **kwargs))
        try:
            threading.Thread(target=work, name=self._name, daemon=True).start()
        except RuntimeError:
            work()  # from Python 3.12 on no thread is started any more while the process ends
        return future


#: For whoever has something done now and then.
THREADS = DaemonThreads()
