"""The SDK's administration client for one side of a pair, and what its failures mean.

The SDK's clients always ask for https. An embedded namespace on the loopback answers plain HTTP on the same
port, so that nobody has to trust its certificate first; every other one is asked over TLS.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from enum import Enum
from typing import Any, TypeVar, cast
from urllib.parse import quote

from azure.core.credentials import AccessToken, AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ServiceRequestError,
)
from azure.core.pipeline.transport import AioHttpTransport
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from pairbus.pairing.names import parse_connection_string
from pairbus.plumbing.hosts import is_loopback, os_reason
from pairbus.plumbing.wording import SIGN_IN, write_no_token

from .credentials import for_event_loop

OpenAdministration = Callable[[], AbstractAsyncContextManager[ServiceBusAdministrationClient]]

#: How long one administrative request may take; Azure answers within a second or two.
REQUEST_LIMIT = 15.0

#: What a request fails with for a reason of the service or of the connection; a TimeoutError is an OSError.
TROUBLES = (AzureError, OSError)
_FORBIDDEN = (401, 403)
_NO_TOKEN = "no token could be had"
_DETAIL = re.compile(r"<Detail>(?:SubCode=\d+\.\s*)?(.*?)\s*(?:TrackingId:.*?)?</Detail>", re.DOTALL)

T = TypeVar("T")


class Trouble(Enum):
    """What a failed administrative request tells."""

    UNREACHABLE = "unreachable"
    NOT_PERMITTED = "not_permitted"
    REFUSED = "refused"


def open_administration(
    address: str, credential: Any = None, *, keywords: Mapping[str, Any] | None = None
) -> ServiceBusAdministrationClient:
    """An administration client for a connection string, or for a host name and its credential.

    `keywords` are those of the SDK's messaging client, of which `connection_verify`, `http_proxy`,
    `logging_enable` and `user_agent` mean something here too. The client connects with its first request;
    close it, or use it with `async with`.
    """
    settings = _settings(keywords or {})
    if isinstance(credential, AzureNamedKeyCredential | AzureSasCredential):
        # The administration client knows keys and signatures in connection strings only.
        address, credential = _connection_string(address, credential), None
    if credential is not None:
        return ServiceBusAdministrationClient(address, cast(Any, _Credential(credential)), **settings)
    parsed = parse_connection_string(address)
    if parsed.emulator and is_loopback(parsed.endpoint.host):
        settings["transport"] = _PlainTransport(**_limits())
    return ServiceBusAdministrationClient.from_connection_string(parsed.text, **settings)


def _connection_string(host: str, credential: AzureNamedKeyCredential | AzureSasCredential) -> str:
    if isinstance(credential, AzureSasCredential):
        return f"Endpoint=sb://{host};SharedAccessSignature={credential.signature}"
    name, key = credential.named_key
    return f"Endpoint=sb://{host};SharedAccessKeyName={name};SharedAccessKey={key}"


def _settings(keywords: Mapping[str, Any]) -> dict[str, Any]:
    # The caller decides whether to ask again, and when.
    settings: dict[str, Any] = {"retry_total": 0, **_limits()}
    for name in ("connection_verify", "logging_enable", "user_agent"):
        if keywords.get(name) is not None:
            settings[name] = keywords[name]
    proxy = keywords.get("http_proxy")
    if proxy:
        settings["proxies"] = {"https": _proxy_address(proxy)}
    return settings


def _limits() -> dict[str, float]:
    """Without these the SDK waits for minutes where a peer takes the question and says nothing."""
    return {"connection_timeout": REQUEST_LIMIT, "read_timeout": REQUEST_LIMIT}


def _proxy_address(proxy: Mapping[str, Any]) -> str:
    user = ""
    if proxy.get("username"):
        user = f"{quote(proxy['username'], safe='')}:{quote(proxy.get('password') or '', safe='')}@"
    return f"http://{user}{proxy['proxy_hostname']}:{proxy['proxy_port']}"


class _Credential:
    """Tells a token that could not be had from one that the service refuses: the former may pass."""

    def __init__(self, credential: Any) -> None:
        self._credential = for_event_loop(credential)

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        """Ask for a token."""
        try:
            token: AccessToken = await self._credential.get_token(*scopes, **options)
        except Exception as error:
            raise ServiceRequestError(f"{_NO_TOKEN}: {write_no_token(error)}") from error
        return token


class _PlainTransport(AioHttpTransport):  # type: ignore[misc]  # the SDK loads it lazily, untyped
    """Sends without TLS what the client meant for TLS."""

    def __init__(self, **limits: float) -> None:
        # The loopback is never behind a proxy.
        super().__init__(use_env_settings=False, **limits)

    async def send(self, request: Any, **settings: Any) -> Any:
        request.url = request.url.replace("https://", "http://", 1)
        return await super().send(request, **settings)


async def ask(request: Awaitable[T], *, limit: float = REQUEST_LIMIT) -> T:
    """Await one request within a limit; what goes beyond it raises `TimeoutError`."""
    async with asyncio.timeout(limit):
        return await request


def judge_trouble(error: Exception) -> Trouble:
    """The trouble behind one of `TROUBLES`."""
    if isinstance(error, ClientAuthenticationError):
        return Trouble.NOT_PERMITTED
    if isinstance(error, HttpResponseError):
        status = error.status_code
        if status in _FORBIDDEN:
            return Trouble.NOT_PERMITTED
        # Throttled, or the service has a fault of its own: another time it may work.
        return (
            Trouble.UNREACHABLE
            if status is not None and (status == 429 or status >= 500)
            else Trouble.REFUSED
        )
    return Trouble.UNREACHABLE


def describe_trouble(error: Exception) -> str:
    """One line about a failure, without the markup around it."""
    cause = getattr(error, "inner_exception", None)
    if isinstance(error, TimeoutError) or isinstance(cause, TimeoutError):
        return "no answer in time"
    if isinstance(cause, OSError) and (host := getattr(cause, "host", None)):  # aiohttp's: no connection
        return f"{host}:{getattr(cause, 'port', '')}: {os_reason(cause)}"
    found = _DETAIL.search(str(error))
    return " ".join((found.group(1) if found else str(error)).split()) or type(error).__name__


def with_advice(told: str) -> str:
    """What `describe_trouble` tells of a namespace that cannot be reached, and what to look at."""
    mend = SIGN_IN if told.startswith(_NO_TOKEN) else "is it up, and its connection string right?"
    return f"{told.rstrip('.')}; {mend}"
