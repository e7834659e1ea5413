"""The namespace of the tests of faults: in memory, the clock by hand, the queues `orders` and `other`."""

from tests.faults.conftest import broker, clock, contoso
from tests.hurry import hurried_loops as pytest_asyncio_loop_factories

__all__ = ["broker", "clock", "contoso", "pytest_asyncio_loop_factories"]
