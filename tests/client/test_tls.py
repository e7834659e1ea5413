"""One TLS context for all connections of a client, as strict as those that the SDK would make."""

import ssl
from importlib import import_module

import pytest
from azure.servicebus import TransportType

from pairbus.sdk.side import SdkSide
from pairbus.sdk.tls import _shared_context, with_shared_context

HOST = "contoso.servicebus.windows.net"
STRING = f"Endpoint=sb://{HOST}/;SharedAccessKeyName=all;SharedAccessKey=c2VjcmV0"


async def test_clients_share_a_context_that_verifies_names_and_certificates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Tests know one authority else (`tests/conftest.py`), and one of them may have made the context by now.
    monkeypatch.setattr("certifi.where", import_module("certifi.core").where)
    _shared_context.cache_clear()
    side = SdkSide(STRING, keywords={})
    async with side.make_client() as one, side.make_client() as other:
        context = one._ssl_context
        assert context is other._ssl_context
    assert isinstance(context, ssl.SSLContext)
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.cert_store_stats()["x509_ca"] > 50  # the roots of certifi, which the SDK takes too


@pytest.mark.parametrize(
    "keywords",
    [
        {"connection_verify": "/etc/ssl/own.pem"},
        {"transport_type": TransportType.AmqpOverWebsocket},
        {"http_proxy": {"proxy_hostname": "proxy", "proxy_port": 3128}},
        {"ssl_context": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)},
    ],
    ids=lambda keywords: next(iter(keywords)),
)
def test_whoever_speaks_of_tls_is_left_alone(keywords: dict[str, object]) -> None:
    assert with_shared_context({"user_agent": "shop", **keywords}) == {"user_agent": "shop", **keywords}
