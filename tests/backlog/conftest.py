"""A pair of embedded namespaces for the tests of this area; faults and queues are taken away after each."""

from collections.abc import Iterator

import pytest

from pairbus.broker import Broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"contoso": 0, "contoso-dr": 0}) as running:
        yield running
