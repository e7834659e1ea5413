"""What the client raises beyond the errors of the rules and of the SDK.

PairbusError
 ├── ClientClosedError      a call on a client or sender that has been closed; also a ValueError
 ├── WrongLoopError         a client used on another event loop than the one that it began on
 └── SpoolError             the local spool could not take a message
      └── SpoolFullError    it holds as much as it may
"""

from pairbus.errors import PairbusError


class ClientClosedError(PairbusError, ValueError):
    """The client, or the sender, has been closed. The SDK raises a ValueError for that, and so is this."""


class WrongLoopError(PairbusError):
    """A client lives on the event loop that it was first used on."""

    def __init__(self) -> None:
        super().__init__(
            "This client was begun on another event loop. Its connections live there: make one client for "
            "each loop, for instance inside the coroutine that is given to asyncio.run(). From another "
            "thread, as that of on_state_change, hand a call to the loop: loop.call_soon_threadsafe(...)."
        )


class SpoolError(PairbusError):
    """Both sides are down, and the local spool could not take the message either."""


class SpoolFullError(SpoolError):
    """The local spool holds as much as it may."""

    def __init__(self, directory: str, *, held: int, limit: int) -> None:
        self.directory = directory
        self.held = held
        self.limit = limit
        super().__init__(
            f"Both sides are down and the spool in {directory} is full: it holds {held} of {limit} bytes. "
            "It has taken nothing of this call. Raise spool_max_bytes, or send again when a side is back."
        )
