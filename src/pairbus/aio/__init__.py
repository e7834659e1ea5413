"""The paired client for asyncio."""

from pairbus.client.aio import PairedSender, PairedServiceBusClient

__all__ = ["PairedSender", "PairedServiceBusClient"]
