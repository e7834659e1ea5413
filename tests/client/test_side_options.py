"""What the SDK is told of both sides or of one: where it is reached, by which transport, whom it trusts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.servicebus import TransportType
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusConnectionError

from pairbus.aio import PairedServiceBusClient
from pairbus.broker import NamespaceHandle
from pairbus.errors import ConfigurationError
from pairbus.options import SendAvailabilityOptions

from .scene import Scene, text

#: Nobody has an address for it: only the endpoint that the options name leads there.
NOWHERE = "contoso.servicebus.invalid"


def endpoint_of(namespace: NamespaceHandle, certificate: tuple[Path, Path]) -> dict[str, Any]:
    """A way to a namespace that is not the one its name leads to, over TLS."""
    return {
        "custom_endpoint_address": f"sb://localhost:{namespace.port}",
        "transport_type": TransportType.Amqp,
        "connection_verify": str(certificate[0]),
    }


def hidden(namespace: NamespaceHandle) -> str:
    """The connection string of a namespace whose host cannot be reached by its name."""
    string = namespace.connection_string.replace(f"127.0.0.1:{namespace.port}", NOWHERE)
    return string.replace(";UseDevelopmentEmulator=true", "")


async def send_both_ways(client: PairedServiceBusClient) -> None:
    sender = client.get_queue_sender("orders")
    await sender.send_messages(text("at home"))
    client.fail_over("orders")
    await sender.send_messages(text("away"))


@pytest.mark.parametrize("side", ["primary", "secondary"])
async def test_an_endpoint_and_a_certificate_for_one_side_alone(
    scene: Scene, certificate: tuple[Path, Path], side: str
) -> None:
    namespace = getattr(scene, side)
    settings: dict[str, Any] = {
        side: hidden(namespace),
        f"{side}_options": endpoint_of(namespace, certificate),
    }
    await send_both_ways(scene.client(probe="link", **settings))
    assert scene.ids() == ["at home"]
    assert scene.backlog_ids() == ["away"]


async def test_options_of_a_side_are_above_those_of_both(
    scene: Scene, certificate: tuple[Path, Path]
) -> None:
    client = scene.client(
        primary=hidden(scene.primary),
        sdk_options={"user_agent": "both/1", "custom_endpoint_address": None},
        primary_options=endpoint_of(scene.primary, certificate),
        secondary_options={"user_agent": "second/1"},
        share_pings=False,  # by our own AMQP, under its own name
    )
    await send_both_ways(client)
    assert agents(scene.primary) == {"both/1"}
    assert agents(scene.secondary) == {"second/1"}
    assert scene.backlog_ids() == ["away"]


def agents(namespace: NamespaceHandle) -> set[str]:
    """Who has come over AMQP, by the first word of what it calls itself."""
    found = {connection.client.get("user-agent", "") for connection in namespace.connections()}
    return {agent.split()[0] for agent in found if agent}


async def test_receivers_and_the_syphon_go_the_way_of_their_side(
    scene: Scene, certificate: tuple[Path, Path]
) -> None:
    settings: Mapping[str, Any] = {
        "primary": hidden(scene.primary),
        "primary_options": endpoint_of(scene.primary, certificate),
    }
    await send_both_ways(scene.client(**settings))
    async with scene.client(enable_syphon=True, **settings) as client:
        found: list[str] = []
        async with client.get_queue_receiver("orders", receive_mode="receiveanddelete") as receiver:
            async for message in receiver:
                found.append(str(message))
                if len(found) == 2:
                    break
    assert found == ["at home", "away"]


async def test_host_names_and_credentials_with_options_of_their_own(
    scene: Scene, certificate: tuple[Path, Path]
) -> None:
    keys = [key_of(namespace) for namespace in (scene.primary, scene.secondary)]
    client = PairedServiceBusClient(
        NOWHERE,
        keys[0],
        f"127.0.0.1:{scene.secondary.port}",
        keys[1],
        options=SendAvailabilityOptions(backlog_queue_count=3, on_suspect="raise"),
        primary_name="contoso",
        primary_options=endpoint_of(scene.primary, certificate),
        secondary_options={"use_tls": False},
    )
    async with client:
        assert client.fully_qualified_namespace == NOWHERE
        await send_both_ways(client)
    assert scene.ids() == ["at home"]
    assert scene.backlog_ids() == ["away"]


def key_of(namespace: NamespaceHandle) -> AzureNamedKeyCredential:
    fields = dict(part.split("=", 1) for part in namespace.connection_string.split(";") if part)
    return AzureNamedKeyCredential(fields["SharedAccessKeyName"], fields["SharedAccessKey"])


async def test_trust_in_one_side_is_no_trust_in_the_other(
    scene: Scene, certificate: tuple[Path, Path]
) -> None:
    """The certificate that the secondary's options name is not taken for the primary's."""
    client = scene.client(
        primary=hidden(scene.primary),
        primary_options={
            "custom_endpoint_address": f"sb://localhost:{scene.primary.port}",
            "transport_type": TransportType.Amqp,
        },
        secondary_options={"connection_verify": str(certificate[0])},
    )
    with pytest.raises(ServiceBusConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
        await client.get_queue_sender("orders").send_messages(text("untrusted"))


def test_the_client_is_called_what_the_sdks_would_be(scene: Scene) -> None:
    string = hidden(scene.primary)
    client = scene.client(primary=string)
    assert client.fully_qualified_namespace == NOWHERE
    assert (
        client.fully_qualified_namespace
        == ServiceBusClient.from_connection_string(string).fully_qualified_namespace
    )


@pytest.mark.parametrize("name", ["sdk_options", "primary_options", "secondary_options"])
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"credential": object()}, "credential"),
        ({"fully_qualified_namespace": "x", "conn_str": "y"}, "conn_str, fully_qualified_namespace"),
        (["logging_enable"], "no list"),
        ("logging_enable", "no str"),
        ({1: True}, "mappings of keywords"),
        ({"custom_endpoint_address": "sb://contoso..invalid"}, "no host name"),
    ],
)
def test_keywords_that_the_sdk_cannot_be_given_are_refused_at_once(name: str, given: Any, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        PairedServiceBusClient("contoso.example", object(), "contoso-dr.example", object(), **{name: given})


async def test_settings_reach_the_sdk(still: Scene) -> None:
    keywords = {"user_agent": "mine/1", "transport_type": TransportType.Amqp}
    client = still.client(transport="sdk", sdk_options=keywords)
    sender = client.get_queue_sender("orders", client_identifier="me", socket_timeout=0.5)
    client.get_queue_sender("orders", client_identifier="too late")
    await sender.send_messages(text("1"))
    sdk = client.pair.entity("orders")._links[0]._sender
    assert sdk is not None
    assert sdk.client_identifier == "me"  # type: ignore[attr-defined]
    assert sdk._config.socket_timeout == 0.5  # type: ignore[attr-defined]
    assert sdk._config.retry_total == 0  # type: ignore[attr-defined]
    assert sdk._config.user_agent == "mine/1"  # type: ignore[attr-defined]


async def test_receivers_are_the_sdks_on_the_primary(still: Scene) -> None:
    client = still.client()
    await client.get_queue_sender("orders").send_messages(text("1"))
    async with client.get_queue_receiver("orders") as receiver:
        [received] = await receiver.receive_messages(max_wait_time=5)
        await receiver.complete_message(received)
    assert str(received) == "1"
    assert type(receiver).__module__.startswith("azure.servicebus.aio")
