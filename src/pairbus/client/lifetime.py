"""The event loop behind one synchronous client: when it begins, and the ways in which it ends.

1. Each client has a loop of its own. A shared one would save a thread for each further client of a process,
   but an observer of one client that blocks would then stop the deadlines of all others.
2. The loop begins with the first call that needs it: making a client starts no thread. It is lent to those
   who call, unless the client hosts a syphon, which would stand still between two calls.
3. It ends with `close`; with the client, when nobody refers to it any more; and with the process, where all
   that are left end together, within one limit. Threads that are no daemons are waited for first, as Python
   does, so that they can send to their end.
4. A loop does not survive a fork, and its connections belong to the parent. In a child every call is refused,
   and closing does nothing.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar

from pairbus.pairing.errors import ForkedClientError
from pairbus.plumbing.this_process import ThisProcess
from pairbus.portal import Portal, PortalClosed, PortalReentered

from .errors import ClientClosedError

T = TypeVar("T")
P = ParamSpec("P")
log = logging.getLogger(__name__)
# How long closing may take. The client has limits of its own, which come first; this one is for a loop that
# something blocks.
_CLOSE_LIMIT = 20.0
# How long all clients that were never closed may take together when the process ends.
_EXIT_LIMIT = 5.0
# How long a loop may take to cancel what is left on it.
_CANCEL_LIMIT = 1.0

_running: set[Lifetime] = set()


class Lifetime:
    """Gives a client its loop, and takes it away."""

    def __init__(
        self, farewell: Callable[[], Coroutine[Any, Any, object]], *, lends_loop: bool = True
    ) -> None:
        """`farewell` is run on the loop before it ends. `lends_loop`: callers may run it, see `portal`."""
        self._farewell = farewell
        self._lends_loop = lends_loop
        self._made_in = ThisProcess.pid
        self._lock = threading.Lock()
        self._portal: Portal | None = None
        self._is_over = False

    # -- calls

    def run(self, function: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Have a coroutine function run on the loop, and wait for its result."""
        return self.portal.run(function, *args, **kwargs)

    def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Have a plain function called on the loop, and wait for its result."""
        return self.portal.call(lambda: function(*args, **kwargs))

    def ask(self, function: Callable[[], T]) -> T:
        """The same of a function that tells something also when all is over; of a client that has begun."""
        try:
            return self.call(function)
        except (ClientClosedError, PortalClosed):
            if self._portal is None:
                raise
        with suppress(PortalClosed):  # the loop may be on its way to its end
            return self._portal.call(function)
        return function()

    def run_if_open(self, function: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Have a coroutine function run on the loop, unless that has ended or is not ours."""
        if self.is_ours and not self._is_over:
            self.portal.run(function)

    @property
    def portal(self) -> Portal:
        """The loop; begun if it has not."""
        self.check()
        return self._portal or self._begin()

    def check(self) -> None:
        """Refuse a client that is closed, or that another process made."""
        if ThisProcess.pid != self._made_in:
            raise ForkedClientError(self._made_in, ThisProcess.pid)
        if self._is_over:
            raise ClientClosedError("The client has been closed. Make a new one to send again.")

    @property
    def is_ours(self) -> bool:
        """Whether this process made it."""
        return ThisProcess.pid == self._made_in

    def _begin(self) -> Portal:
        with self._lock:
            self.check()
            if self._portal is None:
                self._portal = Portal("pairbus-client", lends=self._lends_loop)
                _running.add(self)
            return self._portal

    # -- the end

    def close(self) -> bool:
        """Say farewell, end the loop and wait for it. False if that was done before or is not ours to do."""
        if self._portal is not None and self._portal.is_here:
            raise PortalReentered
        if not self._claim_end():
            return False
        if self._portal is not None:
            self._part_from(self._portal)
        return True

    def _part_from(self, portal: Portal) -> None:
        try:
            portal.run_within(_CLOSE_LIMIT, self._farewell)
        except PortalClosed as error:
            log.warning("the client did not close in time, its connections are dropped: %s", error)
        finally:
            portal.close(timeout=_CANCEL_LIMIT)
            _running.discard(self)

    def leave(self) -> None:
        """Say farewell and end the loop in the background."""
        if self._claim_end() and self._portal is not None:
            self._portal.leave(self._part)

    def join(self, timeout: float) -> None:
        """Wait for the end of the loop; what is left on it when the time is over is cancelled."""
        if self._portal is not None and not self._portal.join(timeout):
            self._portal.close(timeout=_CANCEL_LIMIT)

    def _claim_end(self) -> bool:
        """Whether the caller is the first to end it. From now on the client is closed."""
        if not self.is_ours:
            return False
        with self._lock:
            was_over, self._is_over = self._is_over, True
        return not was_over

    async def _part(self) -> None:
        try:
            await self._farewell()
        except Exception:
            log.exception("a client that nobody closed could not be closed")
        finally:
            _running.discard(self)


def _end_all() -> None:
    """Close what was never closed, all at once."""
    left = [lifetime for lifetime in list(_running) if lifetime.is_ours]
    ends = time.monotonic() + _EXIT_LIMIT
    for lifetime in left:
        lifetime.leave()
    for lifetime in left:
        lifetime.join(max(0.0, ends - time.monotonic()))


atexit.register(_end_all)
