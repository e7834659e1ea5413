"""How a client reaches the others of its fleet: by locks and messages of sessions of one queue."""

from typing import Protocol


class FleetLock(Protocol):
    """A session, locked until then, by the clock of the secondary."""

    ends: float

    def release(self) -> None:
        """Let another have it. It ends by itself when the connection does."""


class FleetLine(Protocol):
    """One connection to the queue. Its methods raise TransportError."""

    async def lock(self, session: str) -> FleetLock | None:
        """Lock a session; None if another has it. Costs nothing."""

    async def post(self, text: bytes, *, copies: int, life: float) -> None:
        """Leave copies of a word, each for one who waits. Each is a message."""

    async def hear(self, wait: float) -> bytes | None:
        """Wait for a word. Waiting costs nothing; a word is a delivery."""

    async def close(self) -> None:
        """Close the connection."""
