"""The keywords of the SDK's receivers, in types: the paired clients hand them on as they are."""

from __future__ import annotations

from typing import Literal, TypedDict

import azure.servicebus
import azure.servicebus.aio
from azure.servicebus import ServiceBusReceiveMode, ServiceBusSessionFilter, ServiceBusSubQueue

__all__ = ["AioReceiverOptions", "ReceiverOptions"]


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
