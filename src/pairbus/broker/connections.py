"""Who is or was connected to a namespace, and what they say of themselves.

Counters name connections by number; this tells which client it was: container id, user agent, address.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

# The official SDK for Python opens a connection for every sender and receiver: enough to find a client of a
# long test again, bounded for a broker that runs for months.
MOST_FORMER = 10_000
# Nobody's word on themselves needs more, and a stranger's must not fill our memory.
MOST_TEXT = 256
MOST_PROPERTIES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionInfo:
    """One connection. `client` is what it says of itself: `user-agent`, `product` and the like."""

    name: str
    protocol: str
    address: str
    opened_at: float
    container_id: str | None = None
    client: dict[str, str] = field(default_factory=dict)
    closed_at: float | None = None

    def describe(self) -> dict[str, Any]:
        """The connection as plain values, for JSON."""
        return asdict(self)


class Connections:
    """The connections of one namespace: those that are open, and the latest of those that were."""

    def __init__(self, *, forget: Callable[[str], None], most_former: int = MOST_FORMER) -> None:
        """`forget` is told the name of every connection that is no longer remembered."""
        self._forget = forget
        self._most_former = most_former
        self._made = 0
        self._open: dict[str, ConnectionInfo] = {}
        self._former: deque[ConnectionInfo] = deque()

    def __iter__(self) -> Iterator[ConnectionInfo]:
        yield from self._former
        yield from self._open.values()

    @property
    def open_count(self) -> int:
        """How many are open."""
        return len(self._open)

    @property
    def made(self) -> int:
        """How many there ever were."""
        return self._made

    def add(self, protocol: str, peername: Any, now: float) -> ConnectionInfo:
        """A connection has been made from the address that the socket tells."""
        self._made += 1
        address = ":".join(str(part) for part in peername[:2]) if isinstance(peername, tuple) else ""
        info = ConnectionInfo(name=str(self._made), protocol=protocol, address=address, opened_at=now)
        self._open[info.name] = info
        return info

    def introduce(
        self, name: str, *, container_id: str | None = None, client: Mapping[Any, Any] | None = None
    ) -> ConnectionInfo | None:
        """A client has said who it is; what is known of it now, if it is still there."""
        info = self._open.get(name)
        if info is None:
            return None
        said = {_cut(key): _cut(value) for key, value in list((client or {}).items())[:MOST_PROPERTIES]}
        identity = None if container_id is None else _cut(container_id)
        self._open[name] = info = replace(info, container_id=identity, client=said)
        return info

    def close(self, name: str, now: float, *, is_stranger: bool = False) -> ConnectionInfo | None:
        """A connection has gone; what is known of it, once. A stranger's words are not remembered."""
        info = self._open.pop(name, None)
        if info is None:
            return None
        info = replace(info, closed_at=now)
        self._former.append(replace(info, container_id=None, client={}) if is_stranger else info)
        while len(self._former) > self._most_former:
            self._forget(self._former.popleft().name)
        return info


def _cut(value: Any) -> str:
    return str(value)[:MOST_TEXT]
