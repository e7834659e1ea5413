"""Hosts: which names are numbers or lead back to this machine, and why one was not reached."""

import ipaddress
import os
import ssl


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


def os_reason(error: OSError) -> str:
    """`Connection refused` of `[Errno 111] Connect call failed ('127.0.0.1', 5672)`; else what it says."""
    # Errors of TLS and of names have numbers of their own, which the system does not know.
    if isinstance(error, ssl.SSLError) or error.errno is None or error.errno <= 0:
        return error.strerror or str(error) or type(error).__name__
    return os.strerror(error.errno)
