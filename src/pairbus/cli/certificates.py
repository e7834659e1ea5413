"""Whether a file can verify the certificates of namespaces."""

from __future__ import annotations

import ssl
from pathlib import Path


def find_trouble(file: Path) -> str | None:
    """Why it cannot, in words that are not OpenSSL's own; None if it can."""
    try:
        ssl.create_default_context(cafile=str(file))
    except ssl.SSLError:
        return "there is no certificate in it, in the form PEM"
    except OSError as error:
        return error.strerror or str(error)
    return None
