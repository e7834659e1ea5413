"""The ATOM documents of the API: an entry, a feed of entries, and the error that stands in for either."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from .duration import format_instant
from .exchange import HttpRequest, Response
from .markup import XmlNode, branch, leaf, render

ATOM = "http://www.w3.org/2005/Atom"
SERVICE_BUS = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
SCHEMA_INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"

# The namespaces of a description; the JavaScript client looks attributes up by the prefix "i".
DESCRIPTION_SPACES = {"xmlns": SERVICE_BUS, "xmlns:i": SCHEMA_INSTANCE}

_DEFAULT_API_VERSION = "2021-05"
# The JavaScript client takes names from links without decoding them, so what a path may hold stays as it is.
_SAFE = "/$@!~*'(),:;=+"


@dataclass(frozen=True)
class AtomEntry:
    """One entity: where it is, what it is called, and its description."""

    path: str
    title: str
    description: XmlNode
    created_at: float
    updated_at: float


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What links need to know of the request that they answer."""

    host: str
    author: str
    api_version: str = _DEFAULT_API_VERSION

    def link(self, path: str, *, query: dict[str, str] | None = None) -> str:
        parameters = {**(query or {}), "api-version": self.api_version}
        return f"https://{self.host}/{quote(path, safe=_SAFE)}?{urlencode(parameters, safe='$')}"


def origin_of(request: HttpRequest, *, namespace: str, api_version: str | None) -> Origin:
    host = request.headers.get("host") or namespace
    return Origin(host=host, author=namespace, api_version=api_version or _DEFAULT_API_VERSION)


def entry_response(entry: AtomEntry, origin: Origin, *, status: int = 200) -> Response:
    body = _entry(entry, origin, {"xmlns": ATOM})
    return _respond(status, body, "application/atom+xml;type=entry;charset=utf-8")


def feed_response(
    entries: Sequence[AtomEntry],
    origin: Origin,
    *,
    path: str,
    title: str,
    next_query: dict[str, str] | None,
    now: float,
) -> Response:
    # The Python client takes the second link, whatever its name, for the next page.
    links = [leaf("link", "", {"rel": "self", "href": origin.link(path)})]
    if next_query is not None:
        links.append(leaf("link", "", {"rel": "next", "href": origin.link(path, query=next_query)}))
    head = [
        leaf("title", title, {"type": "text"}),
        leaf("id", origin.link(path)),
        leaf("updated", format_instant(now)),
    ]
    body = branch("feed", [*head, *links, *(_entry(entry, origin, {}) for entry in entries)], {"xmlns": ATOM})
    return _respond(200, body, "application/atom+xml;type=feed;charset=utf-8")


def error_response(status: int, detail: str) -> Response:
    body = branch("Error", [leaf("Code", str(status)), leaf("Detail", detail)])
    response = _respond(status, body, "application/xml; charset=utf-8")
    if status != 401:
        return response
    challenge = {"WWW-Authenticate": 'SharedAccessSignature realm="Service Bus"'}
    return Response(status, headers={**response.headers, **challenge}, body=response.body)


def _entry(entry: AtomEntry, origin: Origin, attributes: dict[str, str]) -> XmlNode:
    here = origin.link(entry.path)
    children = [
        leaf("id", here),
        leaf("title", entry.title, {"type": "text"}),
        leaf("published", format_instant(entry.created_at)),
        leaf("updated", format_instant(entry.updated_at)),
        branch("author", [leaf("name", origin.author)]),
        leaf("link", "", {"rel": "self", "href": here}),
        branch("content", [entry.description], {"type": "application/xml"}),
    ]
    return branch("entry", children, attributes)


def _respond(status: int, body: XmlNode, content_type: str) -> Response:
    return Response(status, headers={"Content-Type": content_type}, body=render(body))
