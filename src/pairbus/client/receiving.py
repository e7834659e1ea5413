"""Receivers are the SDK's: their keywords, in types, and the SDK's synchronous client that hands them out."""

import logging
import threading
from collections.abc import Callable
from typing import Literal, TypedDict

import azure.servicebus
import azure.servicebus.aio
from azure.core.exceptions import AzureError
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusReceiveMode,
    ServiceBusSessionFilter,
    ServiceBusSubQueue,
)

from .errors import ClientClosedError

log = logging.getLogger(__name__)
# The SDK's synchronous client can wait for minutes for a peer that has gone silent.
_CLOSE_LIMIT = 5.0


class _Options(TypedDict, total=False):
    client_identifier: str | None
    socket_timeout: float | None
    session_id: str | Literal[ServiceBusSessionFilter.NEXT_AVAILABLE] | None
    sub_queue: ServiceBusSubQueue | str | None
    receive_mode: ServiceBusReceiveMode | str
    max_wait_time: float | None
    prefetch_count: int


class ReceiverOptions(_Options, total=False):
    """What the SDK's synchronous client takes for a receiver."""

    auto_lock_renewer: azure.servicebus.AutoLockRenewer | None


class AioReceiverOptions(_Options, total=False):
    """What the SDK's asynchronous client takes for a receiver."""

    auto_lock_renewer: azure.servicebus.aio.AutoLockRenewer | None


class Receiving:
    """The SDK's synchronous client for the primary, made with the first receiver; it retries by itself."""

    def __init__(self, make_client: Callable[[], ServiceBusClient]) -> None:
        self._make_client = make_client
        self._lock = threading.Lock()
        self._client: ServiceBusClient | None = None
        self._is_closed = False

    def client(self) -> ServiceBusClient:
        """The one client; made if there is none."""
        with self._lock:
            if self._is_closed:
                raise ClientClosedError(
                    "The primary side of the pair has been closed. Make a new client to receive again."
                )
            if self._client is None:
                self._client = self._make_client()
            return self._client

    def close(self) -> None:
        """Close the client, but do not wait for ever."""
        with self._lock:
            client, self._client = self._client, None
            self._is_closed = True
        if client is None:
            return
        closing = threading.Thread(target=_close, args=(client,), name="pairbus-receivers", daemon=True)
        closing.start()
        closing.join(_CLOSE_LIMIT)


def _close(client: ServiceBusClient) -> None:
    try:
        client.close()
    except (OSError, AzureError, ValueError) as error:
        log.warning("the receivers did not close: %s", error)
