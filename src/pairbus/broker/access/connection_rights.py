"""What one connection may do: the grants it has shown, and when they end."""

import math
from collections.abc import Iterable

from pairbus import conditions
from pairbus.broker.engine.errors import Refused

from .tokens import Grant, entity_path


class Access:
    """The grants of one connection. A new token for the same resource takes the place of the old one."""

    __slots__ = ("_grants",)

    def __init__(self) -> None:
        self._grants: dict[str, Grant] = {}

    def add(self, grant: Grant) -> None:
        """Take in a grant that a token, or SASL PLAIN, gave."""
        self._grants[grant.resource.lower()] = grant

    def allows(self, path: str, claims: Iterable[str], *, now: float) -> bool:
        """Whether a grant that still holds gives one of `claims` on `path`.

        A grant covers its resource and what lies below it, so that it is enough to look for those above the
        path: a pump shows a thousand tokens on one connection.
        """
        wanted = set(claims)
        resource = entity_path(path)
        while True:
            grant = self._grants.get(resource)
            if grant is not None and grant.expires_at > now and not wanted.isdisjoint(grant.claims):
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
                f"Unauthorized access. '{' or '.join(wanted)}' claim(s) are required for this operation. "
                f"Resource: '{path}'. Use a policy or a token that carries the claim.",
            )

    def expire(self, now: float) -> None:
        """Forget the grants that have ended."""
        self._grants = {key: grant for key, grant in self._grants.items() if grant.expires_at > now}

    def next_expiry(self) -> float:
        """When the next grant ends; infinity if none does."""
        return min((grant.expires_at for grant in self._grants.values()), default=math.inf)
