"""Why the system refused something, in its own words rather than asyncio's."""

from __future__ import annotations

import os
import ssl


def os_reason(error: OSError) -> str:
    """`Connection refused` of `[Errno 111] Connect call failed ('127.0.0.1', 5672)`; else what it says."""
    # Errors of TLS and of names have numbers of their own, which the system does not know.
    if isinstance(error, ssl.SSLError) or error.errno is None or error.errno <= 0:
        return error.strerror or str(error) or type(error).__name__
    return os.strerror(error.errno)
