"""One namespace of a pair, reached by our own AMQP. Receivers and administration stay the SDK's."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from azure.servicebus import ServiceBusMessageBatch, TransportType

from pairbus.client.sending.message import PairedMessageBatch
from pairbus.client.tokens import tokens_of
from pairbus.errors import ConfigurationError
from pairbus.sdk.side import EntitySender, SdkSide
from pairbus.sdk.tls import context_for
from pairbus.wire.line import Place

from .batch import AmqpMessageBatch, EncodedBatch
from .encoding import was_tracing
from .sender import AmqpSender, WayIn

B = TypeVar("B", bound=ServiceBusMessageBatch)
# Where an address of one's own names no port.
_PORT = 5671
# As many as the service gives credit for at once; more would only wait behind them.
_WIDTH = 1000
# Ways to a namespace that only the SDK knows.
_SDK_ONLY = ("http_proxy", "uamqp_transport")
# Batches by what the SDK's are called.
_BATCHES: dict[type[ServiceBusMessageBatch], type[EncodedBatch]] = {
    PairedMessageBatch: AmqpMessageBatch,
    ServiceBusMessageBatch: EncodedBatch,
}


class AmqpSide(SdkSide):
    """How to reach one namespace without the SDK."""

    width = _WIDTH
    is_tracing = staticmethod(was_tracing)

    def __init__(self, address: str, credential: Any = None, *, keywords: Mapping[str, Any]) -> None:
        super().__init__(address, credential, keywords=keywords)
        _check(self.keywords)
        self._tokens = tokens_of(self)

    def open_sender(
        self, path: str, *, is_topic: bool = False, keywords: Mapping[str, Any] | None = None
    ) -> EntitySender:
        """A new sender; it connects with its first call."""
        name = (keywords or {}).get("client_identifier") or f"pairbus-{path}"
        agent = f"{self.keywords.get('user_agent') or ''} pairbus".strip()
        return AmqpSender(WayIn(self._place, self._tokens, name, agent), path)

    @property
    def takes_written(self) -> bool:
        """All of its senders do."""
        return True

    def batch_kind(self, kind: type[B]) -> type[B]:
        """Batches that hold their messages as bytes."""
        return cast(type[B], _BATCHES[kind])

    def make_batch(self, kind: type[B], size: int) -> B:
        """An empty batch that the senders of this side take as it is."""
        return self.batch_kind(kind)(size)

    @cached_property
    def _place(self) -> Place:
        is_plain = self.parsed is not None and self.parsed.emulator
        tls = None if is_plain else context_for(self.keywords)
        custom = self.keywords.get("custom_endpoint_address")
        if not custom:
            return Place(*self.endpoint, tls)
        parts = urlsplit(custom if "//" in custom else f"//{custom}")
        return Place(*self.endpoint, tls, (parts.hostname or "", parts.port or _PORT))


def _check(keywords: Mapping[str, Any]) -> None:
    said = [name for name in _SDK_ONLY if keywords.get(name)]
    if keywords.get("transport_type") is TransportType.AmqpOverWebsocket:
        said.append("transport_type=TransportType.AmqpOverWebsocket")
    if said:
        raise ConfigurationError(
            f'transport="amqp" has no way through {" and ".join(said)}: proxies and WebSocket are the SDK\'s '
            'alone. Leave that out, or use transport="sdk"'
        )
