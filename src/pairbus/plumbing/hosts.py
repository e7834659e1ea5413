"""Names of hosts: which are numbers, and which lead back to this machine."""

from __future__ import annotations

import ipaddress


def numeric_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The numeric address that a host is given by; None if it is a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Whether a host is the machine itself, reached by its loopback."""
    address = numeric_address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback
