"""Send availability for pairs of Azure Service Bus namespaces, and embedded namespaces to develop it on.

Importing this package is cheap on purpose: what needs the Service Bus SDK is imported with its first use, and
what needs a web server or Spark lives in a subpackage that is imported by name.
"""

import logging
from typing import TYPE_CHECKING

from .errors import ConfigurationError, PairbusError, UnreachableError
from .lazy import on_first_use

if TYPE_CHECKING:
    from .backlog.provisioner import BacklogQueueReport, Difference, ProvisioningReport
    from .client.errors import ClientClosedError, SpoolError, SpoolFullError, WrongLoopError
    from .client.observers.metrics import PrometheusObserver
    from .client.observers.observer import Observer, Sending, SendNote, Undertaking
    from .client.observers.tracing import TracingObserver
    from .client.status import (
        PairStatus,
        PathStatus,
        SessionsStatus,
        ShippingStatus,
        SpoolStatus,
        SyphonStatus,
    )
    from .client.sync import PairedSender, PairedServiceBusClient
    from .options import EntityState, SendAvailabilityOptions, StateChange
    from .pairing.errors import (
        BacklogUnavailableError,
        ForkedClientError,
        MalformedEnvelope,
        MessageTooLargeForBacklog,
        PairFaultedError,
        PrimaryEntityFault,
        ReservedPropertyError,
        SamePairError,
        ScheduledInBacklogError,
    )
    from .pairing.headroom import HeadroomNotice
    from .pairing.health import HealthStatus
    from .pairing.rotation import QueueStatus
    from .portal import PortalClosed, PortalReentered

__all__ = [
    "BacklogQueueReport",
    "BacklogUnavailableError",
    "ClientClosedError",
    "ConfigurationError",
    "Difference",
    "EntityState",
    "ForkedClientError",
    "HeadroomNotice",
    "HealthStatus",
    "MalformedEnvelope",
    "MessageTooLargeForBacklog",
    "Observer",
    "PairFaultedError",
    "PairStatus",
    "PairbusError",
    "PairedSender",
    "PairedServiceBusClient",
    "PathStatus",
    "PortalClosed",
    "PortalReentered",
    "PrimaryEntityFault",
    "PrometheusObserver",
    "ProvisioningReport",
    "QueueStatus",
    "ReservedPropertyError",
    "SamePairError",
    "ScheduledInBacklogError",
    "SendAvailabilityOptions",
    "SendNote",
    "Sending",
    "SessionsStatus",
    "ShippingStatus",
    "SpoolError",
    "SpoolFullError",
    "SpoolStatus",
    "StateChange",
    "SyphonStatus",
    "TracingObserver",
    "Undertaking",
    "UnreachableError",
    "WrongLoopError",
    "__version__",
]

__version__ = "0.2.0"

# The application decides what becomes of the log; unasked, the library keeps quiet.
logging.getLogger(__name__).addHandler(logging.NullHandler())

# Where the names are that are imported with their first use.
_HOMES = {
    "pairbus.backlog.provisioner": ("BacklogQueueReport", "Difference", "ProvisioningReport"),
    "pairbus.client.errors": ("ClientClosedError", "SpoolError", "SpoolFullError", "WrongLoopError"),
    "pairbus.client.observers.metrics": ("PrometheusObserver",),
    "pairbus.client.observers.observer": ("Observer", "SendNote", "Sending", "Undertaking"),
    "pairbus.client.observers.tracing": ("TracingObserver",),
    "pairbus.client.status": (
        "PairStatus",
        "PathStatus",
        "SessionsStatus",
        "ShippingStatus",
        "SpoolStatus",
        "SyphonStatus",
    ),
    "pairbus.client.sync": ("PairedSender", "PairedServiceBusClient"),
    "pairbus.options": ("EntityState", "SendAvailabilityOptions", "StateChange"),
    "pairbus.pairing.errors": (
        "BacklogUnavailableError",
        "ForkedClientError",
        "MalformedEnvelope",
        "MessageTooLargeForBacklog",
        "PairFaultedError",
        "PrimaryEntityFault",
        "ReservedPropertyError",
        "SamePairError",
        "ScheduledInBacklogError",
    ),
    "pairbus.pairing.headroom": ("HeadroomNotice",),
    "pairbus.pairing.health": ("HealthStatus",),
    "pairbus.pairing.rotation": ("QueueStatus",),
    "pairbus.portal": ("PortalClosed", "PortalReentered"),
}

__getattr__, __dir__ = on_first_use(__name__, _HOMES)
