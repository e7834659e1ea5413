"""The event loop behind one synchronous client: when it begins, and the ways in which it ends.

1. Each client has a loop of its own. A shared one would save a thread for each further client of a process,
   but an observer of one client that blocks would then stop the deadlines of all others.
2. The loop begins with the first call that needs it: making a client starts no thread.
3. It ends with `close`; with the client, when nobody refers to it any more; and with the process, where all
   that are left end together, within one limit. Threads that are no daemons are waited for first, as Python
   does, so that they can send to their end.
4. A loop does not survive a fork, and its connections belong to the parent. In a child every call is refused,
   and closing does nothing.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

from ..pairing.errors import ForkedClientError
from ..portal import Portal, PortalClosed, PortalReentered

__all__ = ["Lifetime"]

log = logging.getLogger("pairbus.client")
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

    def __init__(self, farewell: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """`farewell` is run on the loop before it ends."""
        self._farewell = farewell
        self._made_in = os.getpid()
        self._lock = threading.Lock()
        self._portal: Portal | None = None
        self._is_over = False

    @property
    def portal(self) -> Portal:
        """The loop; begun if it has not."""
        if os.getpid() != self._made_in:
            raise ForkedClientError(self._made_in, os.getpid())
        if self._portal is None or self._is_over:
            return self._begin()
        return self._portal

    def _begin(self) -> Portal:
        with self._lock:
            if self._is_over:
                raise ValueError("The client has been closed. Make a new one to send again.")
            if self._portal is None:
                self._portal = Portal("pairbus-client")
                _running.add(self)
            return self._portal

    def close(self) -> None:
        """Say farewell, end the loop, and wait for it."""
        if self._portal is not None and self._portal.is_here:
            raise PortalReentered
        if not self._claim_end() or self._portal is None:
            return
        try:
            self._portal.run_within(_CLOSE_LIMIT, self._farewell)
        except PortalClosed as error:
            log.warning("the client did not close in time, its connections are dropped: %s", error)
        finally:
            self._portal.close(timeout=_CANCEL_LIMIT)
            _running.discard(self)

    def leave(self) -> None:
        """Say farewell and end the loop in the background."""
        if self._claim_end() and self._portal is not None:
            self._portal.leave(self._part)

    def join(self, timeout: float) -> None:
        """Wait for the end of the loop; what is left on it when the time is over is cancelled."""
        if self._portal is not None and not self._portal.join(timeout):
            self._portal.close(timeout=_CANCEL_LIMIT)

    @property
    def is_ours(self) -> bool:
        """Whether this process began it."""
        return os.getpid() == self._made_in

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
