"""The control address: faults, counters and state of a running broker, over HTTP and apart from the data
ports.

It has a port of its own, so that a namespace that refuses everything can still be healed, and a token, so
that not everybody on the machine can break it; health and metrics alone are told without one. On the loopback
it answers to its own names alone, so that a page in a browser, whose name leads here for a moment, is not
answered at all. It tells no keys: the ready file has them. `ControlClient` is the other end, for the command
line.
"""

import hmac
import http.client
import json
import re
import shlex
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

from pairbus.amqp.performatives import AmqpError
from pairbus.errors import ConfigurationError
from pairbus.fault_kinds import ARGUMENTS
from pairbus.plumbing.exposition import CONTENT_TYPE
from pairbus.plumbing.files import read_given
from pairbus.plumbing.hosts import numeric_address, os_reason
from pairbus.plumbing.json_text import Shape, fits, parse_json

from .admin.exchange import HttpRequest, Response
from .admin.http import AdminHttp, Handler, TimeShare
from .errors import ControlError
from .gate import CROWDED, Visitor
from .host import NamespaceHost
from .links.held_bytes import Unread, UnreadAnswers
from .links.pace import Allowance
from .vitals import Scrape, describe_health

_REQUEST_TIMEOUT = 10.0
# Bytes of answers that nobody reads, over all connections. Anybody may ask for metrics, and those of ten
# thousand entities are five megabytes.
MOST_UNREAD = 32 << 20
_MOST_FIELDS = 20
# What a ready file tells of a namespace.
_READY: Shape = {"connection_string": str, "port": int, "cert": str}


class ControlApi:
    """Answers the requests of the control address."""

    def __init__(
        self,
        hosts: Mapping[str, NamespaceHost],
        *,
        token: str,
        describe: Callable[[], dict[str, Any]],
        is_local: bool = True,
    ) -> None:
        self._hosts = hosts
        self._token = token
        self._describe = describe
        self._is_local = is_local
        self._scrape = Scrape(hosts.values())
        self._unread = UnreadAnswers(0, MOST_UNREAD)
        self._allowance = Allowance()

    def close(self) -> None:
        """Answer nobody any more."""
        self._scrape.close()

    def make_line(self, visitor: Visitor) -> "ControlLine":
        """Whoever speaks on this connection."""
        return ControlLine(
            lambda request: self.handle(request, visitor),
            self._unread,
            share=lambda: None if visitor.is_member else self._allowance,
        )

    def handle(self, request: HttpRequest, visitor: Visitor) -> Response | Awaitable[Response]:
        """Answer one request with JSON. The token admits the connection."""
        if self._is_local and not _is_address(request.headers.get("host", "")):
            return _json(
                421, {"error": "this address is called localhost or by its number, and nothing else"}
            )
        if request.path in _OPEN_TO_ALL:
            return self._tell_all(request)
        if not hmac.compare_digest((request.token or "").encode(), self._token.encode()):
            return _json(
                401,
                {"error": "the control address needs 'Authorization: Bearer TOKEN'; the ready file has it"},
            )
        if not visitor.admit():
            return _json(503, {"error": CROWDED})
        methods = _ROUTES.get(request.path)
        if methods is None:
            known = ", ".join(f"/{path}" for path in (*_ROUTES, *_OPEN_TO_ALL))
            return _json(404, {"error": f"there is no /{request.path}; there are {known}"})
        perform = methods.get(request.method)
        if perform is None:
            possible = ", ".join(methods)
            error = {"error": f"{request.method} is not possible on /{request.path}; {possible} is"}
            return _json(405, error, headers={"Allow": possible})
        try:
            return _json(200, perform(self, request))
        except ConfigurationError as error:
            return _json(400, {"error": str(error)})

    def _tell_all(self, request: HttpRequest) -> Response | Awaitable[Response]:
        """What needs no token, for probes and scrapers that have none."""
        if request.method not in ("GET", "HEAD"):
            error = {"error": f"{request.method} is not possible on /{request.path}; GET is"}
            return _json(405, error, headers={"Allow": "GET, HEAD"})
        if request.path == "health":
            is_well, described = describe_health(self._hosts.values())
            return _json(200 if is_well else 503, described)
        return self._tell_metrics()

    async def _tell_metrics(self) -> Response:
        return Response(200, headers={"Content-Type": CONTENT_TYPE}, body=await self._scrape.read())

    def set_fault(self, request: HttpRequest) -> Any:
        body = _body(request)
        host = self._host(body.pop("namespace", None))
        kind, entity, duration = body.pop("kind", None), body.pop("entity", None), body.pop("for", None)
        arguments = {name: body.pop(name, None) for name in ARGUMENTS}
        if body:
            raise ConfigurationError(f"a fault does not take {', '.join(sorted(body))}")
        fault = host.fault_desk.set(kind, entity=entity, duration=duration, arguments=arguments)
        return {"namespace": host.name, **fault.describe()}

    def clear_faults(self, request: HttpRequest) -> Any:
        query = _query(request, "namespace", "entity")
        host = self._host(query.get("namespace"))
        return {"namespace": host.name, "cleared": host.fault_desk.clear(query.get("entity"))}

    def list_faults(self, request: HttpRequest) -> Any:
        hosts = self._chosen(request)
        return {host.name: [fault.describe() for fault in host.faults.active(host.now())] for host in hosts}

    def list_counters(self, request: HttpRequest) -> Any:
        return {host.name: host.counters.rows() for host in self._chosen(request)}

    def list_connections(self, request: HttpRequest) -> Any:
        hosts = self._chosen(request)
        return {host.name: [connection.describe() for connection in host.connections] for host in hosts}

    def status(self, request: HttpRequest) -> Any:
        _query(request)
        return self._describe()

    def _chosen(self, request: HttpRequest) -> list[NamespaceHost]:
        name = _query(request, "namespace").get("namespace")
        return list(self._hosts.values()) if name is None else [self._host(name)]

    def _host(self, name: Any) -> NamespaceHost:
        host = self._hosts.get(name) if isinstance(name, str) else None
        if host is None:
            wrong = "name a namespace" if name is None else f"there is no namespace {name!r} here"
            raise ConfigurationError(f"{wrong}; there are {', '.join(self._hosts)}")
        return host


class ControlLine(AdminHttp):
    """One connection to the control address."""

    name = "control"

    def __init__(self, handler: Handler, unread: Unread, *, share: TimeShare) -> None:
        super().__init__(handler, share=share)
        self._unread = unread

    def close(self, error: AmqpError | None) -> None:
        """Be ended for holding too much; there are no words for it."""
        self.abort()

    reset = AdminHttp.abort

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._transport is not None:
            self._unread.note(self, self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._unread.note(self, 0)
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unread.note(self, 0)
        super().connection_lost(exc)


_Perform = Callable[[ControlApi, HttpRequest], Any]
_ROUTES: dict[str, dict[str, _Perform]] = {
    "faults": {
        "GET": ControlApi.list_faults,
        "POST": ControlApi.set_fault,
        "DELETE": ControlApi.clear_faults,
    },
    "counters": {"GET": ControlApi.list_counters},
    "connections": {"GET": ControlApi.list_connections},
    "status": {"GET": ControlApi.status},
}


# A name or an address, in brackets if it has colons, and a port: nothing else that a parser may pass over.
_HOST = re.compile(r"([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")
_OPEN_TO_ALL = ("health", "metrics")


def _is_address(host: str) -> bool:
    """Whether a `Host` header has a name that no stranger can let lead here."""
    if not _HOST.fullmatch(host):
        return False
    name = (urlsplit(f"//{host}").hostname or "").lower()
    return name == "localhost" or numeric_address(name) is not None


def _query(request: HttpRequest, *known: str) -> dict[str, str]:
    """The query of a request, or ConfigurationError if there is more in it than is `known`."""
    try:
        pairs = parse_qsl(
            request.target.partition("?")[2], keep_blank_values=True, max_num_fields=_MOST_FIELDS
        )
    except ValueError:
        raise ConfigurationError("the query has too many fields") from None
    unknown = sorted({name for name, _ in pairs} - set(known))
    if unknown:
        raise ConfigurationError(f"/{request.path} does not take {', '.join(unknown)}")
    return dict(pairs)


def _body(request: HttpRequest) -> dict[str, Any]:
    try:
        body = parse_json(request.body)
    except ValueError as error:
        raise ConfigurationError(f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise ConfigurationError("the body is a JSON object with at least 'namespace' and 'kind'")
    return body


def _json(status: int, value: Any, *, headers: Mapping[str, str] | None = None) -> Response:
    kind = {"Content-Type": "application/json"}
    return Response(status, headers={**kind, **(headers or {})}, body=json.dumps(value).encode())


def read_ready_file(path: Path) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """What a broker wrote when it was ready: its control address, and its namespaces by name."""
    try:
        found = parse_json(read_given(path))
    except OSError as error:
        raise ConfigurationError(
            f"cannot read the ready file {path}: {error.strerror}. "
            f"Start a broker first: pairbus broker --ready-file {shlex.quote(str(path))}"
        ) from error
    except ValueError:
        found = None
    control: Any = found.pop("control", None) if isinstance(found, dict) else None
    if not fits(control, {"url": str, "token": str}) or not fits(found, {"*": _READY}):
        raise ConfigurationError(f"{path} is not a ready file, or that of another version")
    return control, found


class ControlClient:
    """Speaks to the control address of a running broker."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port
        self._token = token

    @classmethod
    def from_ready_file(cls, path: Path) -> "ControlClient":
        """Find the address in the file that the broker wrote when it was ready."""
        control, _ = read_ready_file(path)
        return cls(control["url"], control["token"])

    def set_fault(self, namespace: str, kind: str, *, arguments: Mapping[str, Any]) -> Any:
        """Set a fault; `arguments` as the control address takes them: entity, for, and those of the kind."""
        return self._call("POST", "/faults", {"namespace": namespace, "kind": kind, **arguments})

    def clear_faults(self, namespace: str, entity: str | None = None) -> Any:
        """Clear the faults of a namespace, or of one of its entities."""
        query = f"?namespace={quote(namespace)}" + (f"&entity={quote(entity)}" if entity else "")
        return self._call("DELETE", f"/faults{query}")

    def list_faults(self) -> Any:
        """The faults in force, by namespace."""
        return self._call("GET", "/faults")

    def counters(self, namespace: str | None = None) -> Any:
        """The counters of billable operations, by namespace."""
        return self._call("GET", "/counters" + (f"?namespace={quote(namespace)}" if namespace else ""))

    def connections(self, namespace: str | None = None) -> Any:
        """Who is connected, and who was, by namespace."""
        return self._call("GET", "/connections" + (f"?namespace={quote(namespace)}" if namespace else ""))

    def status(self) -> Any:
        """What the ready file says, as it is now, without keys."""
        return self._call("GET", "/status")

    def _call(self, method: str, target: str, body: Any = None) -> Any:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=_REQUEST_TIMEOUT)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        try:
            connection.request(method, target, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            status, answer = response.status, parse_json(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            why = os_reason(error) if isinstance(error, OSError) else error
            raise ControlError(
                f"the control address {self._url} does not answer ({why}); is the broker running?"
            ) from error
        finally:
            connection.close()
        if status == 400:
            raise ConfigurationError(answer["error"])
        if status != 200:
            raise ControlError(str(answer.get("error", f"status {status}")))
        return answer
