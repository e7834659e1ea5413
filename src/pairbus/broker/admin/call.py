"""One request on its way through the API, with what every resource asks of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from .address import ResourceAddress
from .atom import AtomEntry, Origin, entry_response, feed_response
from .errors import AdminRefused
from .exchange import HttpRequest, Response
from .markup import XmlNode, parse

Item = TypeVar("Item")


@dataclass(frozen=True, kw_only=True)
class AdminCall:
    """A request, what it addresses, whom it is answered to, and when."""

    request: HttpRequest
    address: ResourceAddress
    origin: Origin
    now: float

    @property
    def is_update(self) -> bool:
        """Clients send `If-Match: *` to change what is there; without it a PUT creates."""
        return "if-match" in self.request.headers

    def description(self, *names: str) -> XmlNode:
        """What the ATOM entry in the body describes, which must be one of `names`."""
        root = parse(self.request.body)
        content = root.find("content")
        if root.name != "entry" or content is None:
            raise AdminRefused(400, "The request body must be an ATOM entry with a content element.")
        for name in names:
            description = content.find(name)
            if description is not None:
                return description
        raise AdminRefused(400, f"The content of the ATOM entry must be a {' or '.join(names)}.")

    def reply(self, entry: AtomEntry, *, created: bool = False) -> Response:
        return entry_response(entry, self.origin, status=201 if created else 200)

    def reply_page(
        self, items: Sequence[Item], to_entry: Callable[[Item], AtomEntry], *, path: str, title: str
    ) -> Response:
        """The wanted part of a list, with a link to the next one if there is more."""
        page = self.address.page
        end = page.skip + page.top
        more = {"$skip": str(end), "$top": str(page.top)} if end < len(items) and page.top else None
        entries = [to_entry(item) for item in items[page.skip : end]]
        return feed_response(entries, self.origin, path=path, title=title, next_query=more, now=self.now)

    def reply_nothing(self) -> Response:
        """What the service says of a queue or topic that does not exist: a feed without entries."""
        return feed_response(
            [],
            self.origin,
            path=self.address.entity,
            title="Publicly Listed Services",
            next_query=None,
            now=self.now,
        )
