"""What `pairbus send` has sent, by the way that it went; drawn meanwhile where there is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pairbus.client.observers.observer import Observer, Undertaking

from .progress import DrawnLine
from .tables import per_second

# How often the progress is drawn.
_PAUSE = 0.2


class SendTally(Observer):
    """Counts the messages that were taken, each once: not again when the spool sends it on."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._counts = {"primary": 0, "backlog": 0, "spool": 0}
        self._clock = clock
        self._line = DrawnLine()
        self._began = clock()
        self._draws_at = self._began + _PAUSE

    @contextmanager
    def around(self, undertaking: Undertaking) -> Iterator[None]:
        taken = 0
        try:
            yield
            taken = undertaking.messages
        except Exception as error:
            taken = getattr(error, "taken", 0)
            raise
        finally:
            if undertaking.route is not None and not undertaking.is_replay:
                self._add(undertaking.route, taken)

    def _add(self, route: str, messages: int) -> None:
        self._counts[route] += messages
        now = self._clock()
        if now >= self._draws_at:
            self._draws_at = now + _PAUSE
            self._line.draw(str(self))

    def finish(self) -> None:
        """Nothing more is sent."""
        self._line.take_away()

    def described(self) -> dict[str, Any]:
        """The counts for programs."""
        seconds = round(self._clock() - self._began, 3)
        return {"sent": sum(self._counts.values()), **self._counts, "seconds": seconds}

    def __str__(self) -> str:
        total = sum(self._counts.values())
        ways = ", ".join(f"{count:,} to the {route}" for route, count in self._counts.items() if count)
        seconds = self._clock() - self._began
        rate = f"; {seconds:.1f} s, {per_second(total / seconds)} a second" if seconds > 0 else ""
        return f"{total:,} sent{f' ({ways})' if ways else ''}{rate}"
