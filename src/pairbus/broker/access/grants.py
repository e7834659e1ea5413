"""What a token or a key has proved: claims on a resource, until a time.

A resource is a path inside the namespace. Scheme, host and port of a token's resource are left aside: a key
belongs to one namespace, which is reached as 127.0.0.1, as localhost or by any name that leads here, and
clients write the name that they used. The empty path covers the namespace. Any other covers itself and what
belongs to the same entity below it, compared segment by segment and without regard to case: `orders` covers
`orders/$DeadLetterQueue` and `orders/Subscriptions/eu`, but neither `orders2` nor `orders/eu`, which is an
entity of its own.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from pairbus import conditions
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


class Access:
    """The grants of one connection, by what they were shown for.

    A token counts for its audience and no further, however much else it would be good for, so that the next
    one for the same audience says anew what may be done there. `next_expiry` is when the first grant ends:
    at times too early, never too late.
    """

    __slots__ = ("_grants", "known_as", "next_expiry")

    def __init__(self, known_as: str = "") -> None:
        """`known_as` is the host, and perhaps port, by which the client calls this namespace."""
        self._grants: dict[str, Grant] = {}
        self.known_as = known_as
        self.next_expiry = math.inf

    def meet(self, address: str) -> str:
        """Find out from an address what the client calls this namespace."""
        if "://" in address:
            self.known_as = address.partition("://")[2].partition("/")[0] or self.known_as
        return self.known_as

    def add(self, grant: Grant, audience: str) -> bool:
        """Take in what a token, or SASL PLAIN, gives on a path. Whether that is less than it was."""
        key = fold(audience)
        before = self._grants.get(key)
        self._grants[key] = replace(grant, resource=key)
        self.next_expiry = min(self.next_expiry, grant.expires_at)
        return before is not None and not before.claims <= grant.claims

    def allows(self, path: str, claims: Iterable[str], *, now: float) -> bool:
        """Whether a grant that still holds gives one of `claims` on `path`.

        A grant covers no more than what lies below it, so that it is enough to look for those above the path:
        a pump shows a thousand tokens on one connection.
        """
        wanted = set(claims)
        resource = path = fold(path)
        while True:
            grant = self._grants.get(resource)
            if (
                grant is not None
                and grant.expires_at > now
                and not wanted.isdisjoint(grant.claims)
                and grant.covers(path)
            ):
                return True
            if not resource:
                return False
            resource = resource.rpartition("/")[0]

    def require(self, path: str, claims: Iterable[str], *, now: float) -> None:
        """Refuse unless one of `claims` is granted on `path`."""
        wanted = list(claims)
        if not self.allows(path, wanted, now=now):
            raise Refused(
                conditions.UNAUTHORIZED,
                f"Unauthorized access. '{','.join(wanted)}' claim(s) are required to perform this operation. "
                f"Resource: 'sb://{self.known_as}/{path}'. Use a policy or a token that carries the claim.",
            )

    def expire(self, now: float) -> None:
        """Forget the grants that have ended."""
        self._grants = {key: grant for key, grant in self._grants.items() if grant.expires_at > now}
        self.next_expiry = min((grant.expires_at for grant in self._grants.values()), default=math.inf)
