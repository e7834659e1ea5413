"""Send availability for pairs of Azure Service Bus namespaces, and embedded namespaces to develop it on.

Importing this package is cheap on purpose: what needs the Service Bus SDK is imported with its first use, and
what needs a web server or Spark lives in a subpackage that is imported by name.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import ConfigurationError, PairbusError, UnreachableError

if TYPE_CHECKING:
    from .client.sync import PairedSender, PairedServiceBusClient
    from .options import EntityState, SendAvailabilityOptions, StateChange

__all__ = [
    "ConfigurationError",
    "EntityState",
    "PairbusError",
    "PairedSender",
    "PairedServiceBusClient",
    "SendAvailabilityOptions",
    "StateChange",
    "UnreachableError",
    "__version__",
]

__version__ = "0.1.0"

# Whoever embeds the library decides what becomes of its log; unasked, it keeps quiet.
logging.getLogger(__name__).addHandler(logging.NullHandler())

# Where the names are that are imported with their first use.
_HOMES = {
    "EntityState": "pairbus.options",
    "PairedSender": "pairbus.client.sync",
    "PairedServiceBusClient": "pairbus.client.sync",
    "SendAvailabilityOptions": "pairbus.options",
    "StateChange": "pairbus.options",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
