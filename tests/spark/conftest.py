"""One Spark session for all tests of this area, and a pair whose connection strings it has from the start."""

import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pairbus.broker import Broker
from pairbus.broker.access.policies import ALL_CLAIMS, Policy, connection_string
from pairbus.spark import PumpPair, open_session
from tests.conftest import IS_CI, SECTIONS
from tests.object_places import credentials

from .bus import OTHER_ENV, PRIMARY_ENV, SECONDARY_ENV, Bus
from .traffic import QUEUES, SESSIONS, TOPICS

NAMESPACES = {"contoso": PRIMARY_ENV, "contoso-dr": SECONDARY_ENV, "fabrikam": OTHER_ENV}
SHORT_FORM = 10_000
MESSAGES = int(os.environ.get("PAIRBUS_SYPHON_MESSAGES") or SHORT_FORM)
# What needs Java processes of its own, or waits for long, is for the long form.
LONG_FORM = (
    "cluster",
    "connect_loss",
    "frozen",
    "kills",
    "source_driver",
    "source_notebook",
    "store_kills",
    "submit",
)
# Hosts that share nothing take eight processes of Java, a tenth of a run, and a cluster in one process takes
# four: CI has time for their short form.
FOR_CI = ("hosts", "executors")
IS_LONG = MESSAGES > SHORT_FORM
# Every slot is a worker of Python, which takes a second of a processor to start. No test needs more of them.
MASTER = "local[4,4]" if IS_LONG else "local[2,4]"
LEFT_OUT = () if IS_LONG else LONG_FORM if IS_CI else (*LONG_FORM, *FOR_CI)
collect_ignore = [f"test_{name}.py" for name in LEFT_OUT]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: one more of its kind, for the long form")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What is left out here is told at the end of the run, as what lacks a tool is."""
    left = [item for item in items if not IS_LONG and item.get_closest_marker("long")]
    if not IS_LONG:
        lines = [f"for `make soak`: {', '.join(LONG_FORM)}"] + [f"and of the others: {len(left)}"] * bool(
            left
        )
        if not IS_CI:
            lines.insert(0, f"for CI: {', '.join(FOR_CI)}; Spark's compiled queries; the tutorial on Spark")
        config.stash[SECTIONS]["tests of Spark left out"] = lines
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]


@pytest.fixture(scope="session")
def address(hold_port: Callable[[], int]) -> Iterator[tuple[dict[str, int], Policy]]:
    """Ports and a policy that every broker of these tests has: workers read them from their environment."""
    ports = {name: hold_port() for name in NAMESPACES}
    policy = Policy("tests", secrets.token_urlsafe(32), ALL_CLAIMS)
    for name, variable in NAMESPACES.items():
        os.environ[variable] = connection_string("127.0.0.1", ports[name], namespace=name, policy=policy)
    with credentials():
        yield ports, policy
    for variable in NAMESPACES.values():
        del os.environ[variable]


@pytest.fixture(scope="session")
def spark(java: Path, address: Any) -> Iterator[Any]:
    session = open_session(app_name="pairbus-tests", master=MASTER)
    yield session
    session.stop()


@pytest.fixture
def bare_bus(address: tuple[dict[str, int], Policy]) -> Iterator[Bus]:
    """Without the queue of the lease: a syphon works without one, and says so."""
    ports, policy = address
    with Broker(ports, policies=[policy]) as broker:
        yield Bus(broker)


@pytest.fixture
def bus(bare_bus: Bus) -> Bus:
    bare_bus.make_lease()
    return bare_bus


@pytest.fixture
def shop(bare_bus: Bus) -> Bus:
    bare_bus.create_entities(queues=["orders", "returns"], sessions=[], topics=[])
    return bare_bus


@pytest.fixture
def full_bus(bus: Bus) -> Bus:
    """With an entity of every sort."""
    bus.create_entities(queues=QUEUES, sessions=SESSIONS, topics=TOPICS)
    return bus


@pytest.fixture
def messages() -> int:
    """How many are drained while something is killed."""
    return MESSAGES


@pytest.fixture
def pair() -> PumpPair:
    return PumpPair.from_env(PRIMARY_ENV, SECONDARY_ENV)
