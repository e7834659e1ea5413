"""What a namespace decides at length: one thing at a time, a little in each turn of the event loop.

While something is under way, nothing else may be decided for the namespace, and its turn does not end: so
what takes long is still done whole, and committed whole. Whoever comes meanwhile waits here, in order. Other
namespaces notice nothing but a slice of time.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from .strand import Strand

T = TypeVar("T")
# Told how the work has ended: what it returned, or what it raised.
Then = Callable[[Callable[[], T]], None]


class Decisions:
    """The long work of one namespace, and who waits for its end."""

    def __init__(self, name: str) -> None:
        self._strand = Strand(f"pairbus-decides-{name}")
        #: Whether one is under way, so that everything else has to wait.
        self.are_made = False
        self._conclude: Callable[[BaseException | None], None] | None = None
        self._next: asyncio.Handle | None = None
        self._waiting: deque[Callable[[], None]] = deque()
        self._urgent: list[Callable[[], None]] = []
        self._is_closed = False
        self._is_letting_in = False

    def make(self, act: Callable[[], T], then: Then[T]) -> None:
        """Have `act` done when nothing else is under way, and then call `then` with its outcome: a function
        that returns what it returned, or raises what it raised. Both at once, if it does not take long.
        """
        self.when_free(lambda: self._make(act, then))

    def when_free(self, act: Callable[[], None]) -> None:
        """Call `act` when nothing is under way any more; at once if nothing is."""
        if self._is_closed:
            return
        if self.are_made:
            self._waiting.append(act)
        else:
            act()

    def before_others(self, act: Callable[[], None]) -> None:
        """Call `act` before anything else is decided: at once, unless something has stopped half-way."""
        if self.are_made and not self._strand.is_here:
            self._urgent.append(act)
        else:
            act()

    def finish(self) -> None:
        """Come to an end with all that is under way, and let nothing else happen."""
        while self.are_made:
            self._strand.finish()
            self._follow()

    def close(self) -> None:
        """Give up what is under way, and decide nothing more."""
        self._is_closed = True
        if self._next is not None:
            self._next.cancel()
        self._conclude, self.are_made = None, False
        self._waiting.clear()
        self._urgent.clear()
        self._strand.close()

    def _make(self, act: Callable[[], T], then: Then[T]) -> None:
        results: list[T] = []

        def conclude(error: BaseException | None) -> None:
            def outcome() -> T:
                if error is not None:
                    raise error
                return results[0]

            then(outcome)

        self._conclude, self.are_made = conclude, True
        self._strand.begin(lambda: results.append(act()))
        self._follow()

    def _follow(self) -> None:
        """The work has stopped, or ended."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        if self._conclude is None:
            return  # it was given up
        if self._strand.is_under_way:
            self._next = asyncio.get_running_loop().call_soon(self._go_on)
            return
        conclude, self._conclude, self.are_made = self._conclude, None, False
        urgent, self._urgent = self._urgent, []
        try:
            for act in urgent:
                act()
            conclude(self._strand.error)
        finally:
            self._let_in()

    def _go_on(self) -> None:
        self._strand.go_on()
        self._follow()

    def _let_in(self) -> None:
        if self._is_letting_in:
            return
        self._is_letting_in = True
        try:
            while self._waiting and not self.are_made:
                self._waiting.popleft()()
        finally:
            self._is_letting_in = False
            if self._waiting and not self.are_made:  # one of them has failed, which is no fault of the others
                asyncio.get_running_loop().call_soon(self._let_in)
