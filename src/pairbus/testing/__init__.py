"""What tests need, yours as well as ours: embedded namespaces on free ports, a clock to turn by hand, plans
of faults.

In a `conftest.py`:

    pytest_plugins = ["pairbus.testing.fixtures"]

and then any test may ask for `pairbus_broker` (two namespaces, `contoso` and `contoso-dr`, in memory) or
`manual_clock`.
"""

from pairbus.broker import Broker, FaultKind, FaultPlan
from pairbus.clock import ManualClock

__all__ = ["Broker", "FaultKind", "FaultPlan", "ManualClock"]
