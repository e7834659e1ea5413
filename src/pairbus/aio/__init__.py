"""The paired client for asyncio."""

from pairbus.client.aio import PairedServiceBusClient
from pairbus.client.sender import PairedSender

__all__ = ["PairedSender", "PairedServiceBusClient"]
