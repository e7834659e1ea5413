"""What a token or a key has proved: claims on a resource, until a time.

A resource is a path inside the namespace. Scheme, host and port of a token's resource are left aside: a key
belongs to one namespace, which is reached as 127.0.0.1, as localhost or by any name that leads here, and
clients write the name that they used. Paths are compared without regard to case and segment by segment:
`orders` covers `orders` and `orders/$DeadLetterQueue` but not `orders2`; the empty path covers the
namespace.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from pairbus.broker.engine.errors import Refused
from pairbus.conditions import UNAUTHORIZED

from .policies import Claim

_SCHEME_AND_HOST: Final = re.compile(r"\A[a-z][a-z0-9+.-]*://[^/?#]*", re.IGNORECASE)
# Without a scheme only what can be no entity is taken for a host: a limited token must not grow by a mistake.
_BARE_HOST: Final = re.compile(
    r"\A(?:(?:localhost|[0-9.]+|\[[0-9a-f:.]+\]|[a-z0-9.-]+\.servicebus\.windows\.net)(?::[0-9]+)?"
    r"|[a-z0-9.-]+:[0-9]+)(?=/|\Z)",
    re.IGNORECASE,
)


class TokenRejected(Refused):
    """A token or a key that gives no grant. Its text quotes no secret; HTTP and $cbs answer `status`."""

    def __init__(self, description: str) -> None:
        super().__init__(UNAUTHORIZED, description)
        self.status = 401


@dataclass(frozen=True, slots=True)
class Grant:
    """Claims on a resource until a time (Unix seconds; infinity is for ever). `subject` says whose."""

    claims: frozenset[Claim]
    expires_at: float
    resource: str
    subject: str

    def covers(self, path: str) -> bool:
        """Whether the resource is the entity at this path, or holds it."""
        wanted = entity_path(path)
        return not self.resource or wanted == self.resource or wanted.startswith(f"{self.resource}/")

    def allows(self, claim: Claim, path: str, *, now: float) -> bool:
        """Whether the claim is granted on the path now."""
        return claim in self.claims and now < self.expires_at and self.covers(path)


def entity_path(address: str) -> str:
    """Give the path of an entity, named by a path or a URI, in the form in which paths are compared."""
    return _normal(_SCHEME_AND_HOST.sub("", address.strip(), count=1))


def resource_path(uri: str) -> str:
    """Give the path of a token's resource, which is a URI, with or without its scheme."""
    text = uri.strip()
    path = _SCHEME_AND_HOST.sub("", text, count=1) if "://" in text else _BARE_HOST.sub("", text, count=1)
    return _normal(path)


def _normal(path: str) -> str:
    return path.split("?", 1)[0].split("#", 1)[0].strip("/").lower()
