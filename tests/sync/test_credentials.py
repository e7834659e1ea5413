"""Credentials of either kind, for senders on the event loop and for receivers on threads."""

import functools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from azure.core.credentials import AccessToken, AzureNamedKeyCredential, AzureSasCredential
from azure.servicebus import ServiceBusMessage

from pairbus import PairedServiceBusClient
from pairbus.broker import Broker
from pairbus.portal import Portal
from pairbus.sdk.credentials import for_event_loop, for_threads

from .conftest import PATIENT, SOON

SECRET = "a secret that the issuer shares with the namespace"
ROLE = "Azure Service Bus Data Owner"


def make_token() -> AccessToken:
    expires = int(time.time()) + 3600
    claims = {"aud": "https://servicebus.azure.net", "exp": expires, "roles": [ROLE], "sub": "till"}
    return AccessToken(jwt.encode(claims, SECRET, algorithm="HS256"), expires)


class Blocking:
    """A credential as azure.identity has them. It remembers the threads that asked."""

    def __init__(self) -> None:
        self.threads: list[str] = []

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        self.threads.append(threading.current_thread().name)
        return make_token()


class Awaited:
    """A credential as azure.identity.aio has them."""

    def __init__(self) -> None:
        self.threads: list[str] = []

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        self.threads.append(threading.current_thread().name)
        return make_token()


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


class Decorated:
    """A credential whose coroutine function does not look like one."""

    def __init__(self) -> None:
        self.threads: list[str] = []

    @decorated
    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        self.threads.append(threading.current_thread().name)
        return make_token()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    key = tmp_path / "jwt.key"
    key.write_text(SECRET)
    with Broker({"contoso": 0, "contoso-dr": 0}, jwt_key=key) as broker:
        broker["contoso"].create_queue("orders")
        broker["contoso-dr"].create_queue("contoso/x-servicebus-transfer/0")
        broker["contoso-dr"].create_queue("contoso/x-servicebus-transfer/1")
        yield broker


def connect(broker: Broker, credential: Any) -> PairedServiceBusClient:
    primary, secondary = (f"127.0.0.1:{broker[name].port}" for name in ("contoso", "contoso-dr"))
    return PairedServiceBusClient(
        primary,
        credential,
        secondary,
        credential,
        options=PATIENT,
        primary_name="contoso",
        # What the SDK does with a connection string for an emulator; receivers hear of it, too.
        primary_options={"use_tls": False},
        secondary_options={"use_tls": False},
    )


def send_and_receive(client: PairedServiceBusClient) -> None:
    sender = client.get_queue_sender("orders")
    sender.send_messages(ServiceBusMessage("signed"))
    client.fail_over("orders")
    sender.send_messages(ServiceBusMessage("redirected"))
    with client.get_queue_receiver("orders", receive_mode="receiveanddelete") as receiver:
        assert [str(message) for message in receiver.receive_messages(max_wait_time=SOON)] == ["signed"]


@pytest.mark.parametrize("kind", [Blocking, Awaited, Decorated])
def test_either_kind_serves_senders_and_receivers(broker: Broker, kind: type) -> None:
    credential = kind()
    with connect(broker, credential) as client:
        assert client.fully_qualified_namespace == "127.0.0.1"
        send_and_receive(client)
    assert len(credential.threads) >= 3
    if kind is Blocking:
        # It may take its time: nobody else's deadline depends on it.
        assert "pairbus-client" not in credential.threads
    else:
        assert set(credential.threads) <= {"pairbus-client"}


def test_keys_and_signatures_pass_as_they_are(broker: Broker) -> None:
    for given in (AzureNamedKeyCredential("name", "key"), AzureSasCredential("signature")):
        assert for_event_loop(given) is given
        assert for_threads(given, lambda: Portal("unused")) is given
    namespace = broker["contoso"]
    fields = dict(part.split("=", 1) for part in namespace.connection_string.split(";") if part)
    key = AzureNamedKeyCredential(fields["SharedAccessKeyName"], fields["SharedAccessKey"])
    with connect(broker, key) as client:
        client.get_queue_sender("orders").send_messages(ServiceBusMessage("by key"))
        assert namespace.message_count("orders") == 1


def test_the_kind_of_token_is_kept_and_no_secret_shown() -> None:
    class Signing(Blocking):
        token_type = b"servicebus.windows.net:sastoken"

    for wrapped in (for_event_loop(Signing()), for_threads(Signing(), lambda: Portal("unused"))):
        assert wrapped.token_type == b"servicebus.windows.net:sastoken"
    assert not hasattr(for_event_loop(Blocking()), "token_type")
    assert repr(for_event_loop(Blocking())) == "<_Awaited Blocking>"


def test_what_a_credential_raises_reaches_the_caller(broker: Broker) -> None:
    class Failing(Blocking):
        def get_token(self, *scopes: str, **options: Any) -> AccessToken:
            raise PermissionError("this machine has no identity")

    with connect(broker, Failing()) as client, pytest.raises(Exception, match="no identity"):
        client.get_queue_sender("orders").send_messages(ServiceBusMessage("x"))
