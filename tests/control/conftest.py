"""The namespace of the tests of faults: in memory, the clock by hand, the queues `orders` and `other`."""

from __future__ import annotations

from tests.faults.conftest import broker, certificate, clock, contoso, pytest_asyncio_loop_factories

__all__ = ["broker", "certificate", "clock", "contoso", "pytest_asyncio_loop_factories"]
