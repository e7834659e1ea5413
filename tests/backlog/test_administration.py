"""How the administration client reaches a namespace, and what its failures are taken for."""

import asyncio
import base64
import hmac
import ssl
import time
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote_plus

import jwt
import pytest
from azure.core.credentials import AccessToken, AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceNotFoundError,
    ServiceRequestError,
)
from azure.identity import ChainedTokenCredential, CredentialUnavailableError

from pairbus.backlog.depth import read_depth
from pairbus.backlog.discovery import administration
from pairbus.backlog.provisioner import Provisioner
from pairbus.broker import Broker
from pairbus.pairing.names import parse_connection_string
from pairbus.pump.pair import Side
from pairbus.sdk.administration import TROUBLES, Trouble, describe_trouble, judge_trouble, open_administration
from tests.waiting import PATIENCE


async def test_an_embedded_namespace_is_asked_over_plain_http(broker: Broker) -> None:
    async with open_administration(broker["contoso"].connection_string) as admin:
        await admin.create_queue("orders")
    assert broker["contoso"].message_count("orders") == 0


async def test_a_proxy_of_the_environment_is_not_asked_for_the_loopback(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with open_administration(broker["contoso"].connection_string) as admin:
        assert (await admin.get_namespace_properties()).name == "contoso"


async def test_without_the_emulators_flag_it_is_https_and_the_certificate_counts(broker: Broker) -> None:
    text = broker["contoso"].connection_string.replace("UseDevelopmentEmulator=true;", "")
    async with open_administration(text) as admin:
        with pytest.raises(ServiceRequestError) as raised:
            await admin.get_namespace_properties()
    assert judge_trouble(raised.value) is Trouble.UNREACHABLE
    assert isinstance(raised.value.inner_exception, OSError | ssl.SSLError)
    keywords = {"connection_verify": str(broker.certificate), "transport_type": "for the other client"}
    async with open_administration(text, keywords=keywords) as admin:
        assert (await admin.get_namespace_properties()).name == "contoso"


@pytest.mark.parametrize("is_plain", [True, False])
async def test_a_peer_that_takes_the_question_and_says_nothing_is_not_waited_for(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, is_plain: bool
) -> None:
    monkeypatch.setattr("pairbus.sdk.administration.REQUEST_LIMIT", 0.2)
    broker["contoso"].faults.set("silence")
    text = broker["contoso"].connection_string
    async with open_administration(
        text if is_plain else text.replace("UseDevelopmentEmulator=true;", "")
    ) as admin:
        with pytest.raises(TROUBLES) as raised:
            await asyncio.wait_for(admin.get_queue("orders"), PATIENCE)
    assert not isinstance(raised.value, TimeoutError), "it had to be stopped"
    assert judge_trouble(raised.value) is Trouble.UNREACHABLE
    assert describe_trouble(raised.value) == "no answer in time"


def _answer(status: int) -> HttpResponseError:
    error = HttpResponseError(f"status {status}")
    error.status_code = status
    return error


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (ClientAuthenticationError("no"), Trouble.NOT_PERMITTED),
        (_answer(401), Trouble.NOT_PERMITTED),
        (_answer(403), Trouble.NOT_PERMITTED),
        (_answer(429), Trouble.UNREACHABLE),
        (_answer(500), Trouble.UNREACHABLE),
        (_answer(503), Trouble.UNREACHABLE),
        (_answer(400), Trouble.REFUSED),
        (_answer(409), Trouble.REFUSED),
        (ResourceNotFoundError("gone"), Trouble.REFUSED),
        (ServiceRequestError("no way"), Trouble.UNREACHABLE),
        (TimeoutError(), Trouble.UNREACHABLE),
        (ConnectionResetError(), Trouble.UNREACHABLE),
    ],
)
def test_what_failures_tell(error: Exception, trouble: Trouble) -> None:
    assert isinstance(error, TROUBLES)
    assert judge_trouble(error) is trouble


def test_a_mistake_of_ours_is_no_trouble() -> None:
    assert not isinstance(ValueError("ours"), TROUBLES)


def test_the_services_words_are_freed_from_their_markup() -> None:
    text = "<Error><Code>400</Code><Detail>SubCode=40000. Too\n large. TrackingId:1, Timestamp:x</Detail>"
    assert describe_trouble(HttpResponseError(text)) == "Too large."
    assert describe_trouble(TimeoutError()) == "no answer in time"
    assert describe_trouble(OSError()) == "OSError"


class Credential:
    """Hands out one JSON web token, as a managed identity does, and blocks as many of them do."""

    def __init__(self, token: str) -> None:
        self._token = token

    def get_token(self, *scopes: str, **settings: Any) -> AccessToken:
        assert scopes == ("https://servicebus.azure.net//.default",)
        return AccessToken(self._token, int(time.time()) + 3600)


@pytest.mark.parametrize(
    ("role", "trouble"),
    [("Azure Service Bus Data Owner", None), ("Azure Service Bus Data Sender", Trouble.NOT_PERMITTED)],
)
async def test_the_provisioner_needs_the_role_of_an_owner(
    tmp_path: Path, role: str, trouble: Trouble | None
) -> None:
    secret = "a shared secret that is long enough for HS256"
    key = tmp_path / "jwt-key"
    key.write_text(secret)
    claims = {"aud": "https://servicebus.azure.net", "exp": time.time() + 3600, "roles": [role]}
    credential = Credential(jwt.encode(claims, secret, algorithm="HS256"))
    with Broker({"contoso-dr": 0}, jwt_key=key) as broker:
        address = f"127.0.0.1:{broker['contoso-dr'].port}"
        keywords = {"connection_verify": str(broker.certificate)}
        provisioner = Provisioner(
            lambda: open_administration(address, credential, keywords=keywords), "contoso", count=1
        )
        report = await provisioner.run()
    assert report.state == ("ready" if trouble is None else trouble.value)


class ClosedCredential(Credential):
    """Made of its name by each who asks, and closed by them."""

    made: ClassVar[list["ClosedCredential"]] = []
    secret = "a shared secret that is long enough for HS256"

    def __init__(self) -> None:
        roles = ["Azure Service Bus Data Owner"]
        claims = {"aud": "https://servicebus.azure.net", "exp": time.time() + 3600, "roles": roles}
        super().__init__(jwt.encode(claims, self.secret, algorithm="HS256"))
        self.is_closed = False
        self.made.append(self)

    async def close(self) -> None:
        self.is_closed = True


async def test_a_credential_that_is_made_for_a_look_is_closed_after_it(tmp_path: Path) -> None:
    """Or each look of a dashboard would leave a connection to the token service open."""
    ClosedCredential.made.clear()
    key = tmp_path / "jwt-key"
    key.write_text(ClosedCredential.secret)
    with Broker({"contoso-dr": 0}, jwt_key=key) as broker:
        broker["contoso-dr"].create_queue("orders")
        side = Side(
            host=f"localhost:{broker['contoso-dr'].port}",
            credential=f"{__name__}:ClosedCredential",
            ca_file=str(broker.certificate),
        )
        for name, is_there in (("orders", True), ("none", False)):
            depth = await read_depth(lambda: administration(side), [name])
            assert ([one.name for one in depth.queues] == [name]) == is_there
    assert [one.is_closed for one in ClosedCredential.made] == [True, True]


class Unavailable:
    """A credential whose token service is down, and says so in a way of its own."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def get_token(self, *scopes: str, **settings: Any) -> AccessToken:
        raise self._error


@pytest.mark.parametrize(
    "error", [ClientAuthenticationError("no managed identity"), LookupError("nothing there")]
)
async def test_a_token_that_cannot_be_had_is_not_taken_for_a_refusal(
    broker: Broker, error: Exception
) -> None:
    address = f"127.0.0.1:{broker['contoso-dr'].port}"
    provisioner = Provisioner(lambda: open_administration(address, Unavailable(error)), "contoso", count=1)
    report = await provisioner.run()
    assert report.state == "unreachable"
    assert f"no token could be had: {error}; is anybody signed in here" in report.warnings[0]


async def test_of_the_ways_to_sign_in_those_are_told_that_there_are_here(broker: Broker) -> None:
    """`DefaultAzureCredential` tells of eight on two screens, most of which nobody meant to use."""
    chain = ChainedTokenCredential(
        Unavailable(CredentialUnavailableError("VisualStudioCodeCredential requires the broker")),
        Unavailable(CredentialUnavailableError("Azure CLI not found on path")),
        Unavailable(ClientAuthenticationError("AADSTS7000215: Invalid client secret.\nTrace ID: 1")),
    )
    address = f"127.0.0.1:{broker['contoso-dr'].port}"
    report = await Provisioner(lambda: open_administration(address, chain), "contoso", count=1).run()
    assert report.warnings == (
        "the secondary cannot be reached: no token could be had: ChainedTokenCredential failed to retrieve a "
        "token from the included credentials. Unavailable: AADSTS7000215: Invalid client secret; "
        "is anybody signed in here, for instance by `az login`?",
    )


async def test_a_namespace_that_is_down_is_told_in_the_words_of_the_system(broker: Broker) -> None:
    namespace = broker["contoso-dr"]
    namespace.faults.set("refuse")
    provisioner = Provisioner(lambda: open_administration(namespace.connection_string), "contoso", count=1)
    report = await provisioner.run()
    reason = f"127.0.0.1:{namespace.port}: Connection refused"
    mend = "is it up, and its connection string right?"
    assert report.warnings == (f"the secondary cannot be reached: {reason}; {mend}",)


def signature(name: str, key: str) -> str:
    """A shared access signature for a whole namespace."""
    resource, expiry = quote_plus("sb://127.0.0.1"), int(time.time()) + 3600
    digest = hmac.digest(key.encode(), f"{resource}\n{expiry}".encode(), "sha256")
    signed = quote_plus(base64.b64encode(digest))
    return f"SharedAccessSignature sr={resource}&sig={signed}&se={expiry}&skn={name}"


@pytest.mark.parametrize("kind", ["key", "signature"])
async def test_keys_and_signatures_are_credentials_too(broker: Broker, kind: str) -> None:
    secondary = broker["contoso-dr"]
    parsed = parse_connection_string(secondary.connection_string)
    assert parsed.key_name is not None
    assert parsed.key is not None
    credential: AzureNamedKeyCredential | AzureSasCredential = AzureNamedKeyCredential(
        parsed.key_name, parsed.key
    )
    if kind == "signature":
        credential = AzureSasCredential(signature(parsed.key_name, parsed.key))
    keywords = {"connection_verify": str(broker.certificate)}
    async with open_administration(str(parsed.endpoint), credential, keywords=keywords) as admin:
        assert (await admin.get_namespace_properties()).name == "contoso-dr"
