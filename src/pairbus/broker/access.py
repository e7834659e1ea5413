"""What one connection may do: the grants it has shown, and when they end."""

import math
from collections.abc import Iterable

from pairbus.amqp import errors as conditions
from pairbus.broker.engine.errors import Refused
from pairbus.broker.tokens import Grant

__all__ = ["Access"]


class Access:
    """The grants of one connection. A new token for the same resource takes the place of the old one."""

    __slots__ = ("_grants",)

    def __init__(self) -> None:
        self._grants: dict[str, Grant] = {}

    def add(self, grant: Grant) -> None:
        """Take in a grant that a token, or SASL PLAIN, gave."""
        self._grants[grant.resource.lower()] = grant

    def allows(self, path: str, claims: Iterable[str], *, now: float) -> bool:
        """Whether a grant that still holds gives one of `claims` on `path`."""
        wanted = set(claims)
        return any(
            grant.expires_at > now and grant.covers(path) and not wanted.isdisjoint(grant.claims)
            for grant in self._grants.values()
        )

    def require(self, path: str, claims: Iterable[str], *, now: float) -> None:
        """Refuse unless one of `claims` is granted on `path`."""
        wanted = list(claims)
        if not self.allows(path, wanted, now=now):
            raise Refused(
                conditions.UNAUTHORIZED,
                f"Unauthorized access. '{' or '.join(wanted)}' claim(s) are required for this operation. "
                f"Resource: '{path}'. Use a policy or a token that carries the claim.",
            )

    def expire(self, now: float) -> None:
        """Forget the grants that have ended."""
        self._grants = {key: grant for key, grant in self._grants.items() if grant.expires_at > now}

    def next_expiry(self) -> float:
        """When the next grant ends; infinity if none does."""
        return min((grant.expires_at for grant in self._grants.values()), default=math.inf)
