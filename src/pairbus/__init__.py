"""Send availability for pairs of Azure Service Bus namespaces, and embedded namespaces to develop it on.

Importing this package is cheap on purpose: what needs the Service Bus SDK, a web server or Spark lives in a
subpackage that is imported by name.
"""

from __future__ import annotations

import logging

from .errors import ConfigurationError, PairbusError, UnreachableError

__all__ = ["ConfigurationError", "PairbusError", "UnreachableError", "__version__"]

__version__ = "0.1.0"

# Whoever embeds the library decides what becomes of its log; unasked, it keeps quiet.
logging.getLogger(__name__).addHandler(logging.NullHandler())
