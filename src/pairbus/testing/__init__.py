"""What tests need, yours as well as ours: embedded namespaces on free ports, clocks and timers to turn by
hand, plans of faults, and a look into queues.

In the `conftest.py` at the top:

    pytest_plugins = ["pairbus.testing"]

and then any test may ask for `pairbus_namespace`, `pairbus_broker`, `pairbus_client`, `pairbus_clock`, …
"""

from pairbus.broker import Broker, FaultKind, FaultPlan
from pairbus.clock import ManualClock

from .messages import SeenMessage, assert_empty, assert_messages, messages_in
from .timers import ManualTimers, SteeredClock

__all__ = [
    "Broker",
    "FaultKind",
    "FaultPlan",
    "ManualClock",
    "ManualTimers",
    "SeenMessage",
    "SteeredClock",
    "assert_empty",
    "assert_messages",
    "messages_in",
]
#: The fixtures, for pytest alone: nothing else of this package needs it.
pytest_plugins = ["pairbus.testing.fixtures"]
