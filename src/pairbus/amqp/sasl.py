"""SASL: which mechanisms there are, and what their one message holds.

All of them are over after the client's first message, so there is no challenge to answer. MSSBCBS is Service
Bus's own: like ANONYMOUS it says nothing, and each link is then authorised by a token over `$cbs`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from .errors import DecodeError

ANONYMOUS: Final = "ANONYMOUS"
PLAIN: Final = "PLAIN"
EXTERNAL: Final = "EXTERNAL"
MSSBCBS: Final = "MSSBCBS"

SERVER_MECHANISMS: Final = (MSSBCBS, PLAIN, ANONYMOUS, EXTERNAL)
"""What a server offers. The .NET client refuses a server without MSSBCBS."""

OK, AUTHENTICATION_FAILED, SYSTEM_FAILED = 0, 1, 2


@dataclass(frozen=True, slots=True)
class SaslClient:
    """The mechanism that a client uses and its message, which may hold a password and stays out of repr."""

    mechanism: str = ANONYMOUS
    initial_response: bytes | None = field(default=None, repr=False)

    @classmethod
    def anonymous(cls) -> SaslClient:
        return cls(ANONYMOUS, b"anonymous")

    @classmethod
    def mssbcbs(cls) -> SaslClient:
        return cls(MSSBCBS)

    @classmethod
    def external(cls) -> SaslClient:
        return cls(EXTERNAL, b"")

    @classmethod
    def plain(cls, user: str, password: str) -> SaslClient:
        return cls(PLAIN, f"\0{user}\0{password}".encode())


@dataclass(frozen=True, slots=True)
class PlainCredentials:
    """What a PLAIN message says."""

    user: str
    password: str = field(repr=False)
    identity: str = ""

    @classmethod
    def parse(cls, initial_response: bytes | None) -> PlainCredentials:
        """RFC 4616: identity NUL user NUL password. The bytes stay out of the error."""
        try:
            identity, user, password = (initial_response or b"").decode().split("\0")
        except ValueError:
            raise DecodeError("a PLAIN message is identity, user and password, divided by NUL") from None
        return cls(user, password, identity)
