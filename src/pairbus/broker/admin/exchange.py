"""A request and its answer, free of any transport."""

import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from urllib.parse import unquote


def split_target(target: str) -> tuple[str, str]:
    """Path, still quoted and without slashes at its ends, and query."""
    path, _, query = target.partition("?")
    # The absolute form is what a client of a proxy sends.
    return re.sub("^https?://[^/]*", "", path, flags=re.IGNORECASE).strip("/"), query


@dataclass(frozen=True)
class HttpRequest:
    """One HTTP request: `headers` with lower-case names, `target` (path and query) still quoted.

    Headers and body hold tokens and keys, so neither shows in the representation.
    """

    method: str
    target: str
    _: KW_ONLY
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)

    @property
    def path(self) -> str:
        """The decoded path without its leading slash: the entity that the request is about."""
        return unquote(split_target(self.target)[0]).strip("/")

    @property
    def token(self) -> str | None:
        """What authorises the request: a SAS token, or a bearer token without the word `Bearer`."""
        value = self.headers.get("authorization") or self.headers.get("servicebusauthorization")
        if value is None:
            return None
        scheme, _, rest = value.strip().partition(" ")
        return rest.strip() if scheme.lower() == "bearer" else value.strip()


@dataclass(frozen=True)
class Response:
    """The answer. Length, date and connection headers are the transport's business."""

    status: int
    _: KW_ONLY
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = field(default=b"", repr=False)
