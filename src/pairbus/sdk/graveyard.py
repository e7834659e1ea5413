"""Where SDK senders end that nobody uses any more.

1. Closing takes the SDK up to a second, and longer against a peer that is silent. It is done in the
   background, within a limit.
2. A call that still runs on the sender is cancelled first. The SDK cleans up in its own time.
3. What the SDK leaves open is cut: its close does nothing about a connection on which no session has begun,
   which is just where a silent peer holds it up, and whatever the limit ends midway stays open as well. A
   client that fails over for hours would run out of sockets.
"""

import asyncio
import logging
from typing import Any, Protocol

from azure.core.exceptions import AzureError

from .privates import connection_of, sever

log = logging.getLogger(__name__)
# How long an SDK sender may take to close.
CLOSE_LIMIT = 5.0


class Closable(Protocol):
    """What can be closed."""

    async def close(self) -> None: ...


class Graveyard:
    """Closes senders in the background."""

    def __init__(self) -> None:
        self._burials: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._burials)

    def bury(self, sender: Closable, *, after: asyncio.Task[Any] | None = None) -> None:
        """Close a sender, once the call that still runs on it has been cancelled."""
        # Looked up now: the SDK's own clean-up forgets the connection that it could not close.
        connection = connection_of(sender)
        burial = asyncio.get_running_loop().create_task(_close(sender, connection, after))
        self._burials.add(burial)
        burial.add_done_callback(self._burials.discard)

    async def wait(self, seconds: float) -> None:
        """Wait until all is closed, or the time is over; then the rest is cut off."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + seconds
        while self._burials and loop.time() < ends:
            # Again, for whoever is called away by the closing may bring another one.
            await asyncio.wait(self._burials, timeout=ends - loop.time())
        late = set(self._burials)
        for burial in late:
            burial.cancel()
        if late:
            await asyncio.wait(late)


async def _close(sender: Closable, connection: Any, call: asyncio.Task[Any] | None) -> None:
    try:
        async with asyncio.timeout(CLOSE_LIMIT):
            if call is not None:
                await _cancel(call)
            await sender.close()
    except TimeoutError:
        log.info("a link did not close within %g s and was cut", CLOSE_LIMIT)
    except (OSError, AzureError, ValueError, AttributeError) as error:
        # It was given up because it did not work; that it does not close either is no news. The SDK trips
        # over its own attributes when a connection goes away while it closes.
        log.info("a link that was given up did not close: %s", error)
    finally:
        sever(connection or connection_of(sender))
        if call is not None:
            call.cancel()


async def _cancel(call: asyncio.Task[Any]) -> None:
    call.cancel()
    await asyncio.wait({call})
