"""The keys of a namespace, and what is signed with them."""

import base64
import hashlib
import hmac
import urllib.parse

from pairbus.broker.handle import NamespaceHandle

__all__ = ["key_of", "signature"]


def key_of(namespace: NamespaceHandle, policy: str = "root") -> tuple[str, str]:
    fields = dict(field.partition("=")[::2] for field in namespace.policies[policy].split(";"))
    return fields["SharedAccessKeyName"], fields["SharedAccessKey"]


def signature(namespace: NamespaceHandle, *, expires_at: float, path: str = "", policy: str = "root") -> str:
    """A shared access signature as Microsoft describes it."""
    name, key = key_of(namespace, policy)
    resource = urllib.parse.quote_plus(f"sb://127.0.0.1:{namespace.port}/{path}")
    signed = hmac.digest(key.encode(), f"{resource}\n{int(expires_at)}".encode(), hashlib.sha256)
    quoted = urllib.parse.quote_plus(base64.b64encode(signed))
    return f"SharedAccessSignature sr={resource}&sig={quoted}&se={int(expires_at)}&skn={name}"
