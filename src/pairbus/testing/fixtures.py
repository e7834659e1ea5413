"""Fixtures for pytest: embedded namespaces for a test, a module or a whole run, with entities by marker.

`pytest_plugins = ["pairbus.testing"]` in the `conftest.py` at the top brings them.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient

from pairbus.broker import Broker, NamespaceHandle, QueueSettings, SubscriptionSettings, TopicSettings
from pairbus.broker.admin.duration import parse_duration
from pairbus.broker.entities.declaration import DeclaredEntities, DeclaredSubscription, DeclaredTopic
from pairbus.clock import ManualClock

from .declaring import declare
from .timers import ManualTimers, SteeredClock

_DEFAULT_NAMESPACES = ("contoso", "contoso-dr")
#: What a marker may say besides the keywords of `Broker`.
_ENTITIES = ("namespaces", "queues", "topics")
_DURATIONS = (
    "auto_delete_on_idle",
    "default_message_time_to_live",
    "duplicate_detection_history_time_window",
    "lock_duration",
)


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known, for runs with --strict-markers."""
    config.addinivalue_line(
        "markers",
        "pairbus(namespaces=…, queues=…, topics=…, **broker): what embedded namespaces have, and how the "
        "broker is made",
    )


@pytest.fixture(scope="session")
def pairbus_options() -> Mapping[str, Any]:
    """What all brokers of a run have in common, in the words of the marker. Define your own to say it."""
    return {}


@pytest.fixture
def pairbus_clock() -> SteeredClock:
    """The clock of `pairbus_broker`, for a test that asks for it: it stands still until it is advanced."""
    return SteeredClock()


@pytest.fixture
def pairbus_broker(request: pytest.FixtureRequest, pairbus_options: Mapping[str, Any]) -> Iterator[Broker]:
    """Namespaces of one test, in memory and on free ports: `contoso` and `contoso-dr`, or those marked."""
    clock = request.getfixturevalue("pairbus_clock") if "pairbus_clock" in request.fixturenames else None
    with _started(request.node, pairbus_options, clock=clock) as broker:
        yield broker


@pytest.fixture(scope="module")
def pairbus_module_broker(
    request: pytest.FixtureRequest, pairbus_options: Mapping[str, Any]
) -> Iterator[Broker]:
    """The same for all tests of a module; what it has is said by the `pytestmark` of the module."""
    with _started(request.node, pairbus_options) as broker:
        yield broker


@pytest.fixture(scope="session")
def pairbus_session_broker(
    request: pytest.FixtureRequest, pairbus_options: Mapping[str, Any]
) -> Iterator[Broker]:
    """The same for a whole run; what it has is said by `pairbus_options`."""
    with _started(request.node, pairbus_options) as broker:
        yield broker


@pytest.fixture
def pairbus_namespace(pairbus_broker: Broker) -> NamespaceHandle:
    """The first namespace of `pairbus_broker`."""
    return _first(pairbus_broker)


@pytest.fixture(scope="module")
def pairbus_module_namespace(pairbus_module_broker: Broker) -> NamespaceHandle:
    """The first namespace of `pairbus_module_broker`."""
    return _first(pairbus_module_broker)


@pytest.fixture(scope="session")
def pairbus_session_namespace(pairbus_session_broker: Broker) -> NamespaceHandle:
    """The first namespace of `pairbus_session_broker`."""
    return _first(pairbus_session_broker)


@pytest.fixture
def pairbus_client(pairbus_namespace: NamespaceHandle) -> Iterator[ServiceBusClient]:
    """A client of the official SDK for `pairbus_namespace`, which does not try again by itself."""
    with ServiceBusClient.from_connection_string(
        pairbus_namespace.connection_string, retry_total=0
    ) as client:
        yield client


@pytest.fixture
def manual_clock() -> ManualClock:
    """A clock that stands still at the present moment until it is advanced."""
    return ManualClock(time.time())


@pytest.fixture
def manual_timers() -> ManualTimers:
    """Timers for a paired client that stand still until they are advanced."""
    return ManualTimers()


def _first(broker: Broker) -> NamespaceHandle:
    return broker[next(iter(broker))]


@contextmanager
def _started(node: Any, options: Mapping[str, Any], *, clock: SteeredClock | None = None) -> Iterator[Broker]:
    wanted, declared, files = dict[str, Any](), DeclaredEntities(), list[str | Path]()
    markers = list(node.iter_markers("pairbus"))
    if any(marker.args for marker in markers):
        raise pytest.UsageError("the marker pairbus takes names: pairbus(queues=['orders'])")
    for given in (options, *(marker.kwargs for marker in reversed(markers))):  # the closest last
        wanted.update(given)
        declared = declared.together_with(_declared(given))
        files += _named(given.get("entities", ()))
    namespaces = wanted.pop("namespaces", _DEFAULT_NAMESPACES)
    wanted = {name: value for name, value in wanted.items() if name not in _ENTITIES} | {"entities": files}
    if clock is not None:
        wanted["clock"] = clock
    ports = namespaces if isinstance(namespaces, Mapping) else dict.fromkeys(_named(namespaces), 0)
    try:
        broker = Broker(ports, **wanted)
    except TypeError as error:
        raise pytest.UsageError(
            f"the marker pairbus: {error}; besides it takes {', '.join(_ENTITIES)}"
        ) from None
    with broker:
        declare(broker, declared)
        if clock is not None:
            clock.follow(broker)
        yield broker


def _named(given: Any) -> dict[str, Any]:
    """Names with their settings; of a list, all with the defaults."""
    if isinstance(given, str):
        raise pytest.UsageError(f"the marker pairbus takes a list of names: [{given!r}]")
    return dict(given) if isinstance(given, Mapping) else dict.fromkeys(given)


def _declared(given: Mapping[str, Any]) -> DeclaredEntities:
    """The queues and topics of one marker."""
    queues, topics = _named(given.get("queues", ())), _named(given.get("topics", ()))
    return DeclaredEntities(
        {name: _settings(QueueSettings, settings) for name, settings in queues.items()},
        {name: DeclaredTopic(TopicSettings(), _subscriptions(inner)) for name, inner in topics.items()},
    )


def _subscriptions(given: Any) -> dict[str, DeclaredSubscription]:
    named = _named(given or ())
    return {name: DeclaredSubscription(_settings(SubscriptionSettings, one)) for name, one in named.items()}


def _settings(kind: Any, given: Any) -> Any:
    if not isinstance(given, Mapping):
        return given or kind()
    try:
        return kind(**{name: _seconds(name, value) for name, value in given.items()})
    except TypeError as error:
        known = ", ".join(field.name for field in fields(kind))
        raise pytest.UsageError(f"the marker pairbus: {error}; the settings are {known}") from None


def _seconds(name: str, value: Any) -> Any:
    """A duration in any form that the official administration client takes; another value as it is."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if name not in _DURATIONS or not isinstance(value, str):
        return value
    try:
        return parse_duration(value)
    except ValueError as error:
        raise pytest.UsageError(f"the marker pairbus: {name}: {error}") from None
