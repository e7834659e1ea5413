"""Who may be connected to a port: strangers, who have shown no token yet, and members, who have.

1. A stranger has `token_timeout` from the moment it was accepted until its first token, whatever it does
   meanwhile: says nothing, begins TLS and waits, drips SASL byte by byte.
2. Strangers are few, because each may hold some memory. When all places are taken, the oldest has to go for
   whoever comes next, so that nobody is kept out by those who only sit there. One that has just come is given
   a moment first; until then the kernel keeps whoever knocks. A burst of honest clients then comes in one by
   one instead of pushing each other out. Those who have said nothing go first, and their moment is short,
   since clients speak as soon as they are connected: a thousand silent sockets keep nobody out for long.
3. Strangers of one address get three quarters of the places at most, so that there are some for others. Who
   comes beyond that is turned away at once, unless the oldest of its address has had its moment. All that
   comes from this machine itself has one address and is not counted so.
4. Members are counted apart, and one too many is refused with its token.
"""

import asyncio
import resource
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from pairbus.errors import ConfigurationError
from pairbus.plumbing.hosts import is_loopback

# How long a stranger may stay at least, when others wait: a handshake of the SDKs takes half a second.
GRACE = 2.0
# And one that has not said a single byte.
SILENT_GRACE = 0.25
# At the limit of descriptors so many make room at once.
_CUT_AT_ONCE = 16
# Descriptors that a broker needs beside those of connections.
_OWN_DESCRIPTORS = 256

CROWDED = "There are as many connections as there may be. Close some, or allow more."
_TOO_LATE = "No token was shown in time."
_CROWDED_OUT = "Too many connections have shown no token; this was the oldest of them."


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """How many may be connected to a namespace, and how long each may keep others waiting; in seconds."""

    connections: int = 5000
    """Connections that have shown a token; Azure's number."""

    strangers: int = 128
    """Connections that have not."""

    token_timeout: float = 60.0
    """From the accepted connection to the first token."""

    read_timeout: float = 30.0
    """How long a client may leave what is written to it unread."""

    def __post_init__(self) -> None:
        if self.connections < 1 or self.strangers < 1:
            raise ConfigurationError("the limits of connections are at least 1: nobody could connect")
        if not (self.token_timeout > 0 and self.read_timeout > 0):
            raise ConfigurationError("the time-outs of connections are more than 0 seconds")


class Visitor:
    """A connection, from its first moment to its last. Its present owner says how it is cut."""

    __slots__ = ("_gate", "address", "cut", "is_member", "since")

    def __init__(self, gate: "Gate", since: float, cut: Callable[[str], None], address: str) -> None:
        self._gate = gate
        self.address = address
        self.since = since
        self.cut = cut
        self.is_member = False

    @property
    def limits(self) -> ConnectionLimits:
        return self._gate.limits

    def admit(self) -> bool:
        """A token was shown. Whether there is room for another member."""
        return self.is_member or self._gate.admit(self)

    def speak(self) -> None:
        """Its first byte has come."""
        self._gate.silent.pop(self, None)

    def leave(self) -> None:
        """The connection is gone."""
        self._gate.leave(self)


class Gate:
    """Counts the connections of one port and ends those that stay strangers for too long."""

    def __init__(
        self, limits: ConnectionLimits, *, monotonic: Callable[[], float], is_held: Callable[[], bool]
    ) -> None:
        """While `is_held`, nothing that is said is heard, and nobody is to blame for being a stranger."""
        self.limits = limits
        self._monotonic = monotonic
        self._is_held = is_held
        # Oldest first. Not plain dictionaries: these are slow to find their first when many have gone before.
        self._strangers: OrderedDict[Visitor, None] = OrderedDict()
        self.silent: OrderedDict[Visitor, None] = OrderedDict()
        self._by_address: Counter[str] = Counter()
        self.members = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def strangers(self) -> int:
        return len(self._strangers)

    def make_room(self) -> bool:
        """Whether another stranger may come; the oldest is cut for it if that has had its moment."""
        if self.strangers < self.limits.strangers:
            return True
        now = self._monotonic()
        for waiting, grace in ((self.silent, SILENT_GRACE), (self._strangers, GRACE)):
            oldest = next(iter(waiting), None)
            if oldest is not None and now - oldest.since >= grace:
                self._expel(oldest, _CROWDED_OUT)
                return True
        return False

    def takes(self, address: str) -> bool:
        """Whether another stranger may come from there; the oldest of that address may be cut for it."""
        if self._by_address[address] < max(1, self.limits.strangers * 3 // 4) or is_loopback(address):
            return True
        oldest = next(each for each in self._strangers if each.address == address)
        if self._monotonic() - oldest.since < GRACE:
            return False
        self._expel(oldest, _CROWDED_OUT)
        return True

    def enter(self, cut: Callable[[str], None], address: str = "") -> Visitor:
        """A connection was accepted."""
        visitor = Visitor(self, self._monotonic(), cut, address)
        self._strangers[visitor] = self.silent[visitor] = None
        self._by_address[address] += 1
        self._arm()
        return visitor

    def admit(self, visitor: Visitor) -> bool:
        if self.members >= self.limits.connections:
            return False
        if visitor in self._strangers:  # it may have gone meanwhile
            self._forget(visitor)
            self.members += 1
            visitor.is_member = True
        return True

    def leave(self, visitor: Visitor) -> None:
        if visitor.is_member:
            visitor.is_member = False
            self.members -= 1
        else:
            self._forget(visitor)

    def _forget(self, visitor: Visitor) -> None:
        if visitor in self._strangers:
            del self._strangers[visitor]
            self._by_address[visitor.address] -= 1
            if not self._by_address[visitor.address]:
                del self._by_address[visitor.address]
        self.silent.pop(visitor, None)

    def relieve(self) -> bool:
        """There are no descriptors left: cut the oldest strangers. Whether there were any."""
        oldest = list(self._strangers)[:_CUT_AT_ONCE]
        for visitor in oldest:
            self._expel(visitor, _CROWDED_OUT)
        return bool(oldest)

    def restart(self) -> None:
        """Strangers are heard again: their time begins now."""
        now = self._monotonic()
        for visitor in self._strangers:
            visitor.since = now

    def tick(self) -> None:
        """End those whose time is over."""
        if not self._is_held():
            latest = self._monotonic() - self.limits.token_timeout
            for visitor in [visitor for visitor in self._strangers if visitor.since <= latest]:
                self._expel(visitor, _TOO_LATE)
        self._arm()

    def close(self) -> None:
        """Look at the clock no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expel(self, visitor: Visitor, reason: str) -> None:
        self._forget(visitor)
        visitor.cut(reason)

    def _arm(self) -> None:
        if self._timer is not None or not self._strangers:
            return
        left = next(iter(self._strangers)).since + self.limits.token_timeout - self._monotonic()
        # A clock that is turned by hand stands still meanwhile: it is looked at again, but not all the time.
        wait = max(left, min(1.0, self.limits.token_timeout))
        self._timer = asyncio.get_running_loop().call_later(wait, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self.tick()


def raise_descriptor_limit(connections: int) -> None:
    """Let this process have descriptors for so many connections, as far as its hard limit goes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OWN_DESCRIPTORS
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
