"""What tests need, yours as well as ours: embedded namespaces on free ports, clocks and timers to turn by
hand, plans of faults.

In a `conftest.py`:

    pytest_plugins = ["pairbus.testing.fixtures"]

and then any test may ask for `pairbus_broker` (two namespaces, `contoso` and `contoso-dr`, in memory),
`manual_clock` or `manual_timers`.
"""

from pairbus.broker import Broker, FaultKind, FaultPlan
from pairbus.clock import ManualClock

from .timers import ManualTimers

__all__ = ["Broker", "FaultKind", "FaultPlan", "ManualClock", "ManualTimers"]
