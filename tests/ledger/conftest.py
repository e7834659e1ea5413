"""Two namespaces in memory, a paired client for them, and the event loop in a hurry of the client's tests."""

from tests.client.conftest import broker, pytest_asyncio_loop_factories, scene

__all__ = ["broker", "pytest_asyncio_loop_factories", "scene"]
