"""Links and connections that nobody uses end after a while, if that is wanted, as they do on Azure.

1. A link on which nothing was sent, received, settled or asked for during `link` seconds is detached. A
   receiver that has credit waits for messages, and is in use.
2. A connection without any link but those to `$cbs` during `connection` seconds is closed.
3. Nothing is noted while messages flow. The state of each link is looked at now and then: one that is the
   same as the last time was not used meanwhile. So an end may be late by the time between two looks.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pairbus import conditions
from pairbus.amqp.performatives import AmqpError
from pairbus.errors import ConfigurationError

from .endpoint import LinkEndpoint
from .receiving_endpoint import ReceivingEndpoint
from .sending_endpoint import SendingEndpoint

if TYPE_CHECKING:
    from pairbus.broker.host import NamespaceHost

    from .peer import Peer


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleTimeouts:
    """How long links and connections may be idle, in seconds; the defaults are Azure's."""

    link: float = 600.0
    """A link on which nothing happens."""

    connection: float = 300.0
    """A connection without links."""

    def __post_init__(self) -> None:
        if not (self.link > 0 and self.connection > 0):
            raise ConfigurationError("idle time-outs are more than 0 seconds")

    @property
    def interval(self) -> float:
        """Seconds between two looks."""
        return min(self.link, self.connection) / 10


class IdleWatch:
    """What was seen of the links and connections of one namespace, and since when it is so."""

    def __init__(self, timeouts: IdleTimeouts, host: "NamespaceHost") -> None:
        self.timeouts = timeouts
        self._host = host
        self._links: dict[LinkEndpoint, tuple[tuple[int, ...], float]] = {}
        self._peers: dict[Peer, float] = {}

    def start(self) -> None:
        """Look, and look again."""
        self._look(self._host.monotonic())
        self._host.later(self.timeouts.interval, self.start)

    def _look(self, now: float) -> None:
        """End what has been idle for too long by monotonic time `now`."""
        links: dict[LinkEndpoint, tuple[tuple[int, ...], float]] = {}
        bare: dict[Peer, float] = {}
        for peer in list(self._host.peers):
            for endpoint in list(peer.endpoints.values()):
                if isinstance(endpoint, ReceivingEndpoint | SendingEndpoint):
                    self._look_at_link(peer, endpoint, now, links)
            if not any(endpoint.path for endpoint in peer.endpoints.values()):
                bare[peer] = self._peers.get(peer, now)
        self._links, self._peers = links, bare
        for peer, since in list(bare.items()):
            if now - since >= self.timeouts.connection and peer.machine.remote_open is not None:
                del bare[peer]
                text = (
                    "The connection was closed because it did not have any active links in the past "
                    f"{int(self.timeouts.connection * 1000)} milliseconds."
                )
                peer.close(AmqpError(conditions.CONNECTION_FORCED, text, {}))

    def _look_at_link(
        self,
        peer: "Peer",
        endpoint: ReceivingEndpoint | SendingEndpoint,
        now: float,
        links: dict[LinkEndpoint, tuple[tuple[int, ...], float]],
    ) -> None:
        state: tuple[int, ...] = endpoint.state
        before, since = self._links.get(endpoint, (state, now))
        if state != before or endpoint.is_waiting:
            since = now
        if now - since >= self.timeouts.link:
            text = (
                f"The link '{endpoint.link.name}' is force detached by the broker because it was idle: Idle "
                f"timeout: {self.timeouts.link:g} s. Attach it again when it is needed."
            )
            peer.detach(endpoint, AmqpError(conditions.DETACH_FORCED, text, {}))
        else:
            links[endpoint] = state, since
