"""The control address of a running broker, as the commands see it: one JSON request at a time.

The address lies apart from the data ports, so that a namespace that refuses every connection can still be
healed. Where it is and what opens it stands in the ready file that ``pairbus broker --ready-file`` writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

import click

from ..errors import ConfigurationError, UnreachableError

__all__ = ["Control", "ready_file_option"]

# The broker answers from memory on the same machine; one that needs longer does not answer at all.
_TIMEOUT = 10.0

_F = TypeVar("_F", bound=Callable[..., Any])


def ready_file_option(command: _F) -> _F:
    """The option by which a command is told which broker it speaks to."""
    return click.option(
        "--ready-file",
        type=click.Path(path_type=Path),
        envvar="PAIRBUS_READY_FILE",
        required=True,
        show_envvar=True,
        help="The ready file of the running broker.",
    )(command)


class Control:
    """Speaks to one broker; answers are decoded JSON, refusals are exceptions."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._token = token

    @classmethod
    def from_ready_file(cls, path: Path) -> Control:
        try:
            described = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UnreachableError(
                f"there is no ready file {path}: is the broker running with --ready-file {path}?"
            ) from None
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{path} is not a ready file: {error}") from None
        try:
            control = described["control"]
            return cls(str(control["url"]), str(control["token"]))
        except (KeyError, TypeError):
            raise ConfigurationError(f"{path} is not a ready file: it names no control address") from None

    def get(self, path: str, query: Mapping[str, str | None] | None = None) -> Any:
        return self._request("GET", path, query=query)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        return self._request("POST", path, body=body)

    def delete(self, path: str, query: Mapping[str, str | None]) -> Any:
        return self._request("DELETE", path, query=query)

    def _request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | None] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        given = {name: value for name, value in (query or {}).items() if value is not None}
        target = f"{path}?{urlencode(given)}" if given else path
        payload = None if body is None else json.dumps(body).encode()
        status, answer = self._exchange(method, target, payload)
        if status < 300:
            return answer
        reason = answer.get("error", "no reason given") if isinstance(answer, dict) else "no reason given"
        if status in (401, 403):
            raise UnreachableError(
                f"the broker at {self._url} refused the token: is the ready file of another run?"
            )
        if status < 500:
            raise ConfigurationError(str(reason))
        raise UnreachableError(f"the broker at {self._url} failed with status {status}: {reason}")

    def _exchange(self, method: str, target: str, payload: bytes | None) -> tuple[int, Any]:
        address = urlsplit(self._url)
        # Not urllib: a proxy of the environment must not come between us and the loopback.
        connection = HTTPConnection(address.hostname or "", address.port, timeout=_TIMEOUT)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        try:
            connection.request(method, address.path.rstrip("/") + target, payload, headers)
            response = connection.getresponse()
            content = response.read()
            return response.status, json.loads(content) if content else None
        except (OSError, HTTPException, ValueError) as error:
            raise UnreachableError(f"no answer from the broker at {self._url}: {error}") from None
        finally:
            connection.close()
