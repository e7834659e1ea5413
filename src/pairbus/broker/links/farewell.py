"""The end of a connection that the broker closes: its last word is said, and the client may say its own."""

import asyncio
from collections.abc import Callable

# Seconds that a client has to answer our close before the socket goes, and what its answer begins with.
CLOSE_WAIT = 1.0
_CLOSE_MARK = b"\x00\x53\x18"


class Farewell:
    """Waits for the client's close, for a moment. `is_due` if it is to be waited for at all."""

    __slots__ = ("_hang_up", "_heard", "has_begun", "is_due")

    def __init__(self, hang_up: Callable[[], None]) -> None:
        self._hang_up = hang_up
        self._heard = b""
        self.is_due = False
        self.has_begun = False

    def begin(self) -> None:
        """Our close has been said."""
        if not self.has_begun:
            self.has_begun = True
            asyncio.get_running_loop().call_later(CLOSE_WAIT, self._hang_up)

    def listen(self, data: bytes) -> None:
        """Bytes have come, of which only the close counts: what was on its way is passed over."""
        self._heard = self._heard[-2:] + data
        if _CLOSE_MARK in self._heard:
            self._hang_up()
