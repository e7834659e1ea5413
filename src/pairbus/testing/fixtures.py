"""Fixtures for pytest: name this module in `pytest_plugins` to have them."""

import time
from collections.abc import Iterator

import pytest

from pairbus.broker import Broker
from pairbus.clock import ManualClock

from .timers import ManualTimers


@pytest.fixture
def manual_clock() -> ManualClock:
    """A clock that stands still at the present moment until it is advanced."""
    return ManualClock(time.time())


@pytest.fixture
def manual_timers() -> ManualTimers:
    """Timers for a paired client that stand still until they are advanced."""
    return ManualTimers()


@pytest.fixture
def pairbus_broker() -> Iterator[Broker]:
    """Two namespaces, `contoso` and `contoso-dr`, in memory and on free ports."""
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        yield broker
