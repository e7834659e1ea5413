"""How the drill's own clients of the SDK reach the embedded namespaces.

The SDK makes a new TLS context with every connection, also for one without TLS, and reads all root
certificates for it on the event loop. In an outage, when everybody connects again and again, that alone
keeps a core busy. One context that is never used is enough.
"""

from __future__ import annotations

import ssl

from azure.servicebus.aio import ServiceBusClient

__all__ = ["open_client"]

_TLS_CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def open_client(connection_string: str) -> ServiceBusClient:
    """A plain client of the SDK that does not retry: whoever has it sees what happens."""
    return ServiceBusClient.from_connection_string(connection_string, retry_total=0, ssl_context=_TLS_CONTEXT)
