"""One namespace of a pair, as the client reaches it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, Protocol, TypeVar, cast
from urllib.parse import urlsplit

from azure.core.settings import settings
from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from pairbus.errors import ConfigurationError
from pairbus.pairing.names import (
    ConnectionString,
    Endpoint,
    check_host,
    endpoint_of,
    parse_connection_string,
    path_key,
)

from .administration import open_administration
from .credentials import for_event_loop
from .privates import batch_keywords, keep_open_when_refused, take_written, takes_written
from .tls import with_shared_context

log = logging.getLogger(__name__)
C = TypeVar("C", bound=ServiceBusClient)
B = TypeVar("B", bound=ServiceBusMessageBatch)
SideName = Literal["primary", "secondary"]


class SdkSender(Protocol):
    """What is used of the SDK's sender."""

    def send_messages(self, message: Any, *, timeout: float | None = None) -> Awaitable[Any]: ...
    async def schedule_messages(self, messages: Any, schedule_time_utc: Any) -> list[int]: ...
    async def cancel_scheduled_messages(self, sequence_numbers: Any) -> None: ...
    async def create_message_batch(self, max_size_in_bytes: int | None = None) -> Any: ...
    async def __aenter__(self) -> Any: ...
    async def close(self) -> None: ...


class WrittenSender(SdkSender, Protocol):
    """The sender of a side that `takes_written`: messages, or batches, that are encoded already."""

    def send_written(self, payload: bytes, *, is_batch: bool = False) -> Awaitable[Any]: ...


class EntitySender(SdkSender, Protocol):
    """A sender that tells what it sends to, as the SDK's and ours do."""

    entity_name: str

    async def __aexit__(self, *details: object) -> None: ...


class LinkSettings:
    """How the SDK senders of an entity are opened; the first sender that says something is heard."""

    def __init__(self, *, is_topic: bool) -> None:
        self.is_topic = is_topic
        self.keywords: dict[str, Any] = {}

    def take(self, *, client_identifier: str | None, socket_timeout: float | None) -> None:
        """Use these for links that are opened from now on, where nothing was said before."""
        given = {"client_identifier": client_identifier, "socket_timeout": socket_timeout}
        for name, value in given.items():
            if value is not None:
                self.keywords.setdefault(name, value)


class _SendingClient(ServiceBusClient):
    """The SDK's client behind our senders, which tells when it is closed."""

    on_close: Callable[[_SendingClient], object] | None = None

    async def close(self) -> None:
        """Tell of it first, so that a send that is cut off by this finds the cause."""
        if self.on_close is not None:
            self.on_close(self)
        await super().close()


# What a pair says of each side by itself.
_OURS = {"credential", "fully_qualified_namespace", "conn_str", "entity_name"}


def side_keywords(shared: Mapping[str, Any] | None, own: Mapping[str, Any] | None) -> dict[str, Any]:
    """The keywords of the SDK's client for one side: `own` above those that both sides share."""
    for given in (shared, own):
        if not isinstance(given, Mapping | None) or not all(isinstance(name, str) for name in given or ()):
            raise ConfigurationError(
                "sdk_options, primary_options and secondary_options are mappings of keywords of the SDK's "
                f"client, such as {{'logging_enable': True}}, and no {type(given).__name__}"
            )
        if said := sorted(_OURS & set(given or ())):
            raise ConfigurationError(
                f"{', '.join(said)} cannot be given among sdk_options, primary_options or secondary_options: "
                "name each side by the arguments of the paired client"
            )
    return {**(shared or {}), **(own or {})}


def is_tracing() -> bool:
    """Whether the SDK traces: asked for each message that is kept from it, whose span would be missing."""
    return settings.tracing_implementation() is not None


class SdkSide:
    """How to reach one namespace: by connection string, or by host name and credential; shows no secret."""

    #: How many calls at once a sender takes.
    width = 1
    #: Whether what is sent is to be written by the SDK, which has a span for it.
    is_tracing = staticmethod(is_tracing)

    def __init__(self, address: str, credential: Any = None, *, keywords: Mapping[str, Any]) -> None:
        """`address` is a connection string, or with a credential a host name; `keywords` are the SDK's."""
        self.address = address
        self.credential = credential
        self.keywords = dict(keywords)
        self.parsed: ConnectionString | None = None
        if credential is None:
            self.parsed = parse_connection_string(address)
            self.address = self.parsed.text
            self.endpoint: Endpoint = self.parsed.endpoint
        else:
            self.endpoint = endpoint_of(address)
        if custom := self.keywords.get("custom_endpoint_address"):
            check_host(urlsplit(custom if "//" in custom else f"//{custom}").hostname or "")
        self._client: _SendingClient | None = None
        #: Called when somebody else than this side has closed its SDK client.
        self.on_closed_under_us: Callable[[], object] | None = None

    def __repr__(self) -> str:
        return f"<Side {self.endpoint}>"

    def make_client(self, **keywords: Any) -> ServiceBusClient:
        """A new SDK client, with these keywords above those of the pair."""
        return self._make(ServiceBusClient, keywords)

    def _make(self, kind: type[C], keywords: Mapping[str, Any]) -> C:
        chosen = with_shared_context({**self.keywords, **keywords})
        if self.credential is None:
            return cast(C, kind.from_connection_string(self.address, **chosen))
        return kind(self.address, for_event_loop(self.credential), **chosen)

    def check_entity(self, path: str) -> None:
        """Refuse another entity than the one that the connection string is good for."""
        only = self.parsed.entity_path if self.parsed is not None else None
        if only is not None and path_key(only) != path_key(path):
            raise ValueError(
                f"The connection string of {self.endpoint} is good for the entity {only!r} alone, by its "
                f"EntityPath= field; {path!r} cannot be sent to with it."
            )

    def batch_kind(self, kind: type[B]) -> type[B]:
        """What batches of this kind are on this side."""
        return kind

    def make_batch(self, kind: type[B], size: int) -> B:
        """An empty batch that the senders of this side take as it is."""
        return kind(size, **batch_keywords(self._sdk_client()))

    @property
    def takes_written(self) -> bool:
        """Whether its senders take messages as bytes, by `send_written`."""
        return takes_written(self._sdk_client())

    def open_sender(
        self, path: str, *, is_topic: bool = False, keywords: Mapping[str, Any] | None = None
    ) -> EntitySender:
        """A new SDK sender that does not retry by itself; it connects with its first call."""
        client = self._sdk_client()
        make = client.get_topic_sender if is_topic else client.get_queue_sender
        sender = make(path, **(keywords or {}))
        keep_open_when_refused(sender)
        if self.takes_written:
            take_written(sender)
        return cast(EntitySender, sender)

    def _sdk_client(self) -> ServiceBusClient:
        if self._client is None:
            self._client = self._make(_SendingClient, {"retry_total": 0})
            self._client.on_close = self._sdk_closed
        return self._client

    def _sdk_closed(self, client: _SendingClient) -> None:
        if client is self._client and self.on_closed_under_us is not None:
            self.on_closed_under_us()

    def open_administration(self) -> ServiceBusAdministrationClient:
        """A new administration client of the SDK."""
        return open_administration(self.address, self.credential, keywords=self.keywords)

    async def close(self, limit: float) -> None:
        """Close the SDK client, and what it may still hold, within a limit."""
        client, self._client = self._client, None
        if client is None:
            return
        try:
            async with asyncio.timeout(limit):
                await client.close()
        except TimeoutError:
            log.info("the connections to %s did not close within %g s", self.endpoint, limit)
