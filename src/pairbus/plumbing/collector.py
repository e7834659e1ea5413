"""Python's collector of garbage, kept from walking over what is no garbage.

A message in a broker or a pump is some objects that stay for a while, and none of them refers to itself: they
go when the last reference does. The collector counts how many there are more than before, and with its usual
numbers looks a thousand times a second for circles among them, which is a tenth of a broker's time, and a
fifth of a pump's that has many queues; and now and then it walks over all of them, for which everything
stands still: a fifth of a second with 130,000 messages.

So it looks more rarely, and whatever has survived a walk that took long is left out of those to come
(`gc.freeze`). What is frozen and becomes a circle later, as connections do, would stay for ever: once an hour
all is looked at again.
"""

import gc
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

# Objects that have become more, and walks over these, before one goes over older ones: some ten milliseconds.
_MANY, _OFTEN = 20_000, 4
#: The same for a pump: what it has in hand, thousands of messages with some ten objects each, comes and goes.
IN_A_PUMP = 100_000
#: Seconds of processor time after which the survivors of a walk are left out.
LONG = 0.01
#: Seconds between two looks at everything.
THAW_AFTER = 3600.0


class CalmCollector:
    """For a process that is a broker or a pump and nothing else. What is there at first is left out."""

    def __init__(self, many: int = _MANY) -> None:
        """`many` objects may have become more before it looks."""
        self._many = many
        self._began = 0.0
        self._thawed_at = time.monotonic()
        self._usual = gc.get_threshold()

    def __enter__(self) -> None:
        gc.freeze()
        gc.set_threshold(self._many, _OFTEN, _OFTEN)
        gc.callbacks.append(self._watch)

    def __exit__(self, *exception: object) -> None:
        gc.callbacks.remove(self._watch)
        gc.set_threshold(*self._usual)
        gc.unfreeze()

    def _watch(self, phase: str, info: Mapping[str, int]) -> None:
        if not info["generation"]:
            return
        if phase == "stop":
            if time.thread_time() - self._began > LONG:
                gc.freeze()
            return
        if info["generation"] == 2 and time.monotonic() - self._thawed_at > THAW_AFTER:
            self._thawed_at = time.monotonic()
            gc.unfreeze()
        self._began = time.thread_time()


@contextmanager
def uncollected() -> Iterator[None]:
    """All that is made meanwhile stays: the collector of garbage would walk over it again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
