"""Connections to the dashboard: a limited number, and none that only waits.

uvicorn waits for ever for a request that does not come, or comes a byte at a time. A few hundred such
connections, for which nobody needs a token, would use up the files that this process may open, and with them
the sources could not be read either.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

# All listeners, and as many requests besides.
MOST_CONNECTIONS = 250
# For a whole head, from the connection or from the answer before; a browser's comes within a second.
_PATIENCE = 20.0


class BoundedConnection(H11Protocol):
    """Hangs up where no request comes in time, and at once where there are too many already."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        else:
            self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing():
            self._expect_request()

    def _expect_request(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        self._waiting = self.loop.call_later(_PATIENCE, self._hang_up, self.cycle)

    def _hang_up(self, answered: object) -> None:
        if self.cycle is answered:  # no request has come since
            self.transport.abort()
