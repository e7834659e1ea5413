"""The facade for threads, the asynchronous client and the SDK say the same."""

import inspect
import typing
from typing import Any

import azure.servicebus as sdk
import azure.servicebus.aio as sdk_aio
import pytest

from pairbus.client import aio, sync
from pairbus.client.receiving import AioReceiverOptions, ReceiverOptions

PAIRS = [
    (aio.PairedServiceBusClient, sync.PairedServiceBusClient),
    (aio.PairedSender, sync.PairedSender),
]
# The SDK's names for the two halves of `with`, beside the public ones.
WITH = {"__aenter__": "__enter__", "__aexit__": "__exit__"}
# Only inside: the event loop's own object, which threads must not touch.
LOOP_ONLY = {"made_in", "pair"}
# Names of types that differ where the facades hand out objects of the SDK, which come in two kinds.
KINDS = {
    "AsyncItemPaged[str]": "ItemPaged[str]",
    "Unpack[AioReceiverOptions]": "Unpack[ReceiverOptions]",
}


def public(kind: type) -> dict[str, Any]:
    """The public members, and those of `with` under their synchronous names."""
    found = {}
    for name, member in vars(kind).items():
        if not name.startswith("_") or name in ("__str__", *WITH, *WITH.values()):
            found[WITH.get(name, name)] = member
    return {name: member for name, member in found.items() if name not in LOOP_ONLY}


def function_of(member: Any) -> Any:
    if isinstance(member, property):
        return member.fget
    return getattr(member, "__func__", member)


def signature_of(member: Any) -> str:
    """The signature as it is written, with the kinds of the SDK's objects made equal."""
    text = str(inspect.signature(function_of(member)))
    for theirs, ours in KINDS.items():
        text = text.replace(theirs, ours)
    return text


CASES = [
    pytest.param(name, ours, theirs, id=f"{ours.__name__}.{name}")
    for theirs, ours in PAIRS
    for name in sorted(public(theirs).keys() | public(ours).keys())
]


@pytest.mark.parametrize(("name", "ours", "theirs"), CASES)
def test_each_member_has_its_twin(name: str, ours: type, theirs: type) -> None:
    mine, other = public(ours)[name], public(theirs)[name]
    assert type(mine) is type(other)
    assert signature_of(mine) == signature_of(other)
    assert inspect.getdoc(function_of(mine)) == inspect.getdoc(function_of(other))
    assert not inspect.iscoroutinefunction(function_of(mine))


@pytest.mark.parametrize(
    ("kind", "skipped"), [(sync.PairedServiceBusClient, {"__str__"}), (sync.PairedSender, set())]
)
def test_public_methods_are_documented(kind: type, skipped: set[str]) -> None:
    members = {name: member for name, member in public(kind).items() if not name.startswith("__")}
    assert members
    assert [name for name, member in members.items() if not inspect.getdoc(member)] == []


def test_making_a_client_takes_the_same() -> None:
    assert signature_of(sync.PairedServiceBusClient.__init__) == signature_of(
        aio.PairedServiceBusClient.__init__
    )
    assert inspect.getdoc(sync.PairedServiceBusClient.__init__) == inspect.getdoc(
        aio.PairedServiceBusClient.__init__
    )


def test_nothing_is_made_up_as_it_goes() -> None:
    for kind in (sync.PairedServiceBusClient, sync.PairedSender):
        assert "__getattr__" not in vars(kind)
        assert "__getattribute__" not in vars(kind)


def parameters_of(member: Any) -> dict[str, inspect.Parameter]:
    """By name, without `self` and without what is caught by `**kwargs`."""
    parameters = dict(inspect.signature(member).parameters)
    parameters.pop("self", None)
    return {
        name: parameter
        for name, parameter in parameters.items()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    }


SDK_SENDERS = [
    (sdk.ServiceBusSender, sync.PairedSender),
    (sdk_aio.ServiceBusSender, aio.PairedSender),
]
SDK_CLIENTS = [
    (sdk.ServiceBusClient, sync.PairedServiceBusClient),
    (sdk_aio.ServiceBusClient, aio.PairedServiceBusClient),
]
RECEIVER_OPTIONS: dict[Any, Any] = {
    sync.PairedServiceBusClient: ReceiverOptions,
    aio.PairedServiceBusClient: AioReceiverOptions,
}


def public_methods(kind: type) -> set[str]:
    # A pair has two connection strings, so its constructor from them has a name of its own.
    found = {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}
    return found - {"from_connection_string"}


@pytest.mark.parametrize(("theirs", "ours"), [*SDK_SENDERS, *SDK_CLIENTS])
def test_everything_public_of_the_sdk_is_there(theirs: type, ours: type) -> None:
    assert public_methods(theirs) <= public_methods(ours)


@pytest.mark.parametrize(("theirs", "ours"), [*SDK_SENDERS, *SDK_CLIENTS])
def test_methods_take_what_those_of_the_sdk_take(theirs: type, ours: type) -> None:
    for name in sorted(public_methods(theirs)):
        if name.endswith("_receiver") or not callable(getattr(theirs, name)):
            continue
        wanted, given = parameters_of(getattr(theirs, name)), parameters_of(getattr(ours, name))
        assert list(given) == list(wanted), name
        for parameter in wanted:
            assert given[parameter].kind is wanted[parameter].kind, (name, parameter)
            assert given[parameter].default == wanted[parameter].default, (name, parameter)


@pytest.mark.parametrize(("theirs", "ours"), SDK_CLIENTS)
def test_receivers_take_the_keywords_of_the_sdk(theirs: type, ours: type) -> None:
    offered = set(typing.get_type_hints(RECEIVER_OPTIONS[ours]))
    for name in ("get_queue_receiver", "get_subscription_receiver"):
        parameters = parameters_of(getattr(theirs, name))
        keywords = {key for key, value in parameters.items() if value.kind is inspect.Parameter.KEYWORD_ONLY}
        assert offered == keywords, name
        names = [key for key in parameters if key not in keywords]
        assert list(parameters_of(getattr(ours, name))) == names


@pytest.mark.parametrize(("theirs", "ours"), SDK_SENDERS)
def test_senders_are_coroutines_where_those_of_the_sdk_are(theirs: type, ours: type) -> None:
    for name in public_methods(theirs):
        member = getattr(theirs, name)
        assert inspect.iscoroutinefunction(getattr(ours, name)) is inspect.iscoroutinefunction(member), name
