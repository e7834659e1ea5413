"""The user's API is the SDK's: the same methods, keywords and defaults; and all of it is explained."""

import inspect
from typing import Any

import azure.servicebus.aio
import pytest

import pairbus.aio
from pairbus.client import aio
from pairbus.client.receiving import AioReceiverOptions

from .scene import Scene, text

SDK_SENDER = azure.servicebus.aio.ServiceBusSender
SDK_CLIENT = azure.servicebus.aio.ServiceBusClient
STRING = "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=all;SharedAccessKey=c2VjcmV0"
VARIADIC = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
OURS_ALONE = {"from_connection_strings", "start", "close_side", "pair"}
OURS_ALONE |= {"status", "mark_path_healthy", "fail_over", "fault"}
# It takes one connection string, and there are two.
SDK_ALONE = {"from_connection_string"}


def public(kind: type) -> dict[str, Any]:
    return {name: inspect.getattr_static(kind, name) for name in dir(kind) if not name.startswith("_")}


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    """Name, kind and default of each parameter that has a name."""
    found = inspect.signature(function).parameters.values()
    return [(each.name, each.kind, each.default) for each in found if each.kind not in VARIADIC]


def methods(kind: type) -> dict[str, Any]:
    return {name: member for name, member in public(kind).items() if inspect.isfunction(member)}


def test_the_sender_has_everything_that_the_sdks_has() -> None:
    theirs, ours = public(SDK_SENDER), public(aio.PairedSender)
    assert theirs.keys() <= ours.keys()
    for name, method in methods(SDK_SENDER).items():
        assert parameters(ours[name]) == parameters(method), name
        assert inspect.iscoroutinefunction(ours[name]) == inspect.iscoroutinefunction(method), name


@pytest.mark.parametrize("name", ["get_queue_sender", "get_topic_sender", "close"])
def test_the_client_is_called_as_the_sdks(name: str) -> None:
    assert parameters(public(aio.PairedServiceBusClient)[name]) == parameters(public(SDK_CLIENT)[name])


def test_the_client_has_everything_that_the_sdks_has() -> None:
    client = SDK_CLIENT.from_connection_string(STRING)  # some of what it has is set when it is made
    theirs = {name for name in dir(client) if not name.startswith("_")} - SDK_ALONE
    ours = public(aio.PairedServiceBusClient).keys()
    assert ours - theirs == OURS_ALONE
    assert theirs - ours == set()


@pytest.mark.parametrize("name", ["get_queue_receiver", "get_subscription_receiver"])
def test_receivers_take_the_keywords_of_the_sdk(name: str) -> None:
    theirs = {parameter for parameter, kind, _ in parameters(getattr(SDK_CLIENT, name)) if kind == 3}
    ours = AioReceiverOptions.__annotations__.keys()
    assert set(ours) == theirs


def test_everything_public_is_explained() -> None:
    for kind in (aio.PairedServiceBusClient, aio.PairedSender):
        assert inspect.getdoc(kind)
        for name, member in public(kind).items():
            if inspect.isfunction(member) or isinstance(member, property | classmethod):
                explained = getattr(kind, name).__doc__ or (
                    member.fget.__doc__ if isinstance(member, property) else ""
                )
                assert explained or name.startswith("__"), f"{kind.__name__}.{name}"


def test_the_public_names() -> None:
    assert pairbus.aio.PairedServiceBusClient is aio.PairedServiceBusClient
    assert pairbus.aio.PairedSender is aio.PairedSender


async def test_keywords_that_nobody_knows_are_refused(still: Scene) -> None:
    """The SDK warns of them and goes on; a mistyped `timeout=` should not wait for ever."""
    with pytest.raises(TypeError):
        await still.sender().send_messages(text("1"), time_out=5)  # type: ignore[call-arg]


@pytest.mark.parametrize("timeout", [0, -1.5, float("nan")])
async def test_a_timeout_has_to_be_positive(still: Scene, timeout: float) -> None:
    sender = still.sender()
    for call in (
        sender.send_messages(text("1"), timeout=timeout),
        sender.cancel_scheduled_messages(5, timeout=timeout),
    ):
        with pytest.raises(ValueError, match="greater than 0"):
            await call
    assert still.ids() == []
