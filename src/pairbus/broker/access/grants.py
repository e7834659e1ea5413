"""What a token or a key has proved: claims on a resource, until a time.

A resource is a path inside the namespace. Scheme, host and port of a token's resource are left aside: a key
belongs to one namespace, which is reached as 127.0.0.1, as localhost or by any name that leads here, and
clients write the name that they used. The empty path covers the namespace. Any other covers itself and what
belongs to the same entity below it, compared segment by segment and without regard to case: `orders` covers
`orders/$DeadLetterQueue` and `orders/Subscriptions/eu`, but neither `orders2` nor `orders/eu`, which is an
entity of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pairbus.broker.engine.errors import Refused
from pairbus.broker.engine.names import entity_of, fold
from pairbus.conditions import UNAUTHORIZED

from .policies import Claim

_SCHEME_AND_HOST: Final = re.compile(r"\A[a-z][a-z0-9+.-]*://[^/?#]*", re.IGNORECASE)
# Without a scheme only what can be no entity is taken for a host: what has a colon, and a host of Azure. A
# queue may be called `2024` or `localhost`, and a limited token must not grow by a mistake.
_BARE_HOST: Final = re.compile(
    r"\A(?:\[[0-9a-f:.]+\](?::[0-9]+)?|[a-z0-9.-]+:[0-9]+|[a-z0-9.-]+\.servicebus\.windows\.net)(?=/|\Z)",
    re.IGNORECASE,
)


class TokenRejected(Refused):
    """A token or a key that gives no grant. Its text quotes no secret; HTTP and $cbs answer `status`."""

    def __init__(self, description: str) -> None:
        super().__init__(UNAUTHORIZED, description)
        self.status = 401


class ClaimMissing(TokenRejected):
    """A token that is good, but not for this."""


def expired(at: float) -> TokenRejected:
    """Clients look for this very text."""
    moment = datetime.fromtimestamp(at, UTC)
    return TokenRejected(
        f"ExpiredToken: The token is expired. Expiration time: {moment:%m/%d/%Y %H:%M:%S} UTC. Renew it."
    )


@dataclass(frozen=True, slots=True)
class Grant:
    """Claims on a resource until a time (Unix seconds; infinity is for ever). `subject` says whose."""

    claims: frozenset[Claim]
    expires_at: float
    resource: str
    subject: str

    def covers(self, path: str) -> bool:
        """Whether the resource is what is at this path, or the part of its entity that holds it."""
        wanted, held = fold(path), self.resource
        if not held or wanted == held:
            return True
        return wanted.startswith(f"{held}/") and len(held) >= len(entity_of(wanted))


def resource_path(uri: str) -> str:
    """Give the path of a token's resource, which is a URI, with or without its scheme."""
    text = uri.strip()
    path = _SCHEME_AND_HOST.sub("", text, count=1) if "://" in text else _BARE_HOST.sub("", text, count=1)
    return fold(path.split("?", 1)[0].split("#", 1)[0])
