"""What one connection may do: the grants it has shown, and when they end."""

import math
from collections.abc import Iterable
from dataclasses import replace

from pairbus import conditions
from pairbus.broker.engine.errors import Refused
from pairbus.broker.engine.names import fold

from .grants import Grant


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
