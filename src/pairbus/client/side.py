"""One namespace of a pair, as the client reaches it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from azure.servicebus.aio import ServiceBusClient

from ..pairing.names import ConnectionString, Endpoint, endpoint_of, parse_connection_string
from .credentials import for_event_loop
from .link import SdkSender

__all__ = ["Side"]


class Side:
    """How to reach one namespace: by connection string, or by host name and credential. The repr shows no
    secret.
    """

    def __init__(
        self,
        address: str,
        credential: Any = None,
        *,
        keywords: Mapping[str, Any],
    ) -> None:
        """`address` is a connection string if no credential is given, else a host name; `keywords` go to the
        SDK's client.
        """
        self._address = address
        self._credential = credential
        self._keywords = dict(keywords)
        self.parsed: ConnectionString | None = None
        if credential is None:
            self.parsed = parse_connection_string(address)
            self.endpoint: Endpoint = self.parsed.endpoint
        else:
            self.endpoint = endpoint_of(address)
        self._client: ServiceBusClient | None = None

    def __repr__(self) -> str:
        return f"<Side {self.endpoint}>"

    def make_client(self, **keywords: Any) -> ServiceBusClient:
        """A new SDK client, with these keywords above those of the pair."""
        chosen = {**self._keywords, **keywords}
        if self._credential is None:
            return ServiceBusClient.from_connection_string(self._address, **chosen)
        return ServiceBusClient(self._address, for_event_loop(self._credential), **chosen)

    def open_sender(
        self, path: str, *, is_topic: bool = False, keywords: Mapping[str, Any] | None = None
    ) -> SdkSender:
        """A new SDK sender that does not retry by itself; it connects with its first call."""
        if self._client is None:
            self._client = self.make_client(retry_total=0)
        make = self._client.get_topic_sender if is_topic else self._client.get_queue_sender
        return cast(SdkSender, make(path, **(keywords or {})))

    async def close(self) -> None:
        """Close the SDK client."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()
