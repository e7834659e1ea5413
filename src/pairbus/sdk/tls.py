"""One TLS context for every connection of the SDK.

The SDK makes a new one each time that it connects, also where there is no TLS, and reads all root
certificates for it on the event loop: tens of milliseconds in which nothing else is sent. In an outage, when
every link of every entity connects again and again, that alone can starve those that are healthy. The context
here trusts what the SDK's own would trust.
"""

import ssl
from collections.abc import Mapping
from functools import cache
from typing import Any

import certifi

from pairbus.errors import ConfigurationError

# Keywords by which the application has chosen another way, or other certificates.
_OWN_WAY = (
    "ssl_context",
    "connection_verify",
    "transport_type",
    "http_proxy",
    "custom_endpoint_address",
    "uamqp_transport",
)


def with_shared_context(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords of an SDK client, with the shared context unless they speak of TLS themselves."""
    if any(keywords.get(name) is not None for name in _OWN_WAY):
        return dict(keywords)
    return {**keywords, "ssl_context": _shared_context()}


def context_for(keywords: Mapping[str, Any]) -> ssl.SSLContext:
    """What an SDK client with these keywords trusts, for connections that are not the SDK's."""
    given = keywords.get("ssl_context")
    if isinstance(given, ssl.SSLContext):
        return given
    bundle = keywords.get("connection_verify")
    if not isinstance(bundle, str):
        return _shared_context()
    try:
        return ssl.create_default_context(cafile=bundle)
    except OSError as error:  # also what the file holds is no certificate
        raise ConfigurationError(
            f"There is no certificate in {bundle}: give the PEM file of the CA as connection_verify ({error})"
        ) from error


@cache
def _shared_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(certifi.where())
    return context
