"""SASL: which mechanisms there are, and what their one message holds.

All of them are over after the client's first message, so there is no challenge to answer. MSSBCBS is Service
Bus's own: like ANONYMOUS it says nothing, and each link is then authorised by a token over `$cbs`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

ANONYMOUS: Final = "ANONYMOUS"
PLAIN: Final = "PLAIN"
EXTERNAL: Final = "EXTERNAL"
MSSBCBS: Final = "MSSBCBS"

SERVER_MECHANISMS: Final = (MSSBCBS, PLAIN, ANONYMOUS, EXTERNAL)
"""What a server offers. The .NET client refuses a server without MSSBCBS."""

OK, AUTHENTICATION_FAILED = 0, 1


@dataclass(frozen=True, slots=True)
class SaslClient:
    """The mechanism that a client uses and its message, which may hold a password and stays out of repr."""

    mechanism: str = ANONYMOUS
    initial_response: bytes | None = field(default=None, repr=False)

    @classmethod
    def anonymous(cls) -> SaslClient:
        return cls(ANONYMOUS, b"anonymous")

    @classmethod
    def plain(cls, user: str, password: str) -> SaslClient:
        return cls(PLAIN, f"\0{user}\0{password}".encode())
