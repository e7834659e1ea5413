"""A side of the pair as a pump reaches it: the namespace, credential and certificates of the SDK's client.

Our own AMQP is used, unless the application has told the SDK to take another way to the namespaces, which
only the SDK knows: web sockets, a proxy, an address of its own.
"""

from azure.servicebus import TransportType

from pairbus.client.tokens import tokens_of
from pairbus.pump.amqp_transport import AmqpTransport
from pairbus.pump.pair import Side
from pairbus.pump.transport import Transport
from pairbus.sdk.side import SdkSide

# Keywords of the SDK that change how it reaches a namespace.
_SDK_ONLY = ("http_proxy", "custom_endpoint_address", "ssl_context")


def open_transport(side: SdkSide, *, timeout: float) -> Transport:
    """A new transport; `timeout` is the deadline of one answer. Does no I/O."""
    resolved = pump_side(side).resolve()
    if not _needs_sdk(side):
        return AmqpTransport(resolved.place(), resolved.tokens(), timeout=timeout)
    from pairbus.pump.sdk_transport import SdkTransport  # needed by few

    return SdkTransport(resolved, timeout=timeout, make_client=lambda: side.make_client(retry_total=0))


def pump_side(side: SdkSide) -> Side:
    """The namespace in a pump's words."""
    verify = side.keywords.get("connection_verify")
    ca_file = verify if isinstance(verify, str) else None
    if side.credential is None:
        return Side(connection_string=side.address, ca_file=ca_file)
    return Side(host=side.address, token_source=tokens_of(side), ca_file=ca_file)


def _needs_sdk(side: SdkSide) -> bool:
    keywords = side.keywords
    return keywords.get("transport_type") is TransportType.AmqpOverWebsocket or any(
        keywords.get(name) is not None for name in _SDK_ONLY
    )
