"""The administration API of a namespace: ATOM over HTTP, as the official administration clients speak it."""

from __future__ import annotations

from .api import AdminApi
from .errors import AdminRefused, Unauthorized
from .exchange import HttpRequest, Response
from .http import AdminHttp, HttpLimits

__all__ = [
    "AdminApi",
    "AdminHttp",
    "AdminRefused",
    "HttpLimits",
    "HttpRequest",
    "Response",
    "Unauthorized",
]
