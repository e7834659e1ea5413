"""One request on its way through the API, with what every resource asks of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from pairbus.broker.access.grants import ClaimMissing
from pairbus.broker.engine.breath import breathe
from pairbus.broker.engine.errors import Refused
from pairbus.broker.engine.names import entity_path
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.settings import EntitySettings
from pairbus.errors import PairbusError

from .address import ResourceAddress
from .atom import AtomEntry, Origin, entry_response, feed_response
from .errors import AdminRefused, ManageMissing, Unauthorized
from .exchange import HttpRequest, Response
from .markup import XmlNode, parse

Item = TypeVar("Item")
# Raises unless the token of a request allows to manage what is at a path.
Authorize = Callable[[HttpRequest, str], None]
# Where an entity forwards to, and the header in which clients bring a token for that target.
_FORWARDING: Final = {
    "forward_to": "servicebussupplementaryauthorization",
    "forward_dead_lettered_messages_to": "servicebusdlqsupplementaryauthorization",
}


def check_rights(authorize: Authorize | None, request: HttpRequest, path: str) -> None:
    """Raise `Unauthorized` unless a request may manage what is at a path."""
    if authorize is None:
        return
    try:
        authorize(request, path)
    except ClaimMissing as missing:
        raise ManageMissing(missing.description) from missing
    except Refused as refused:
        raise Unauthorized(refused.description) from refused
    except AdminRefused:
        raise
    except PairbusError as error:
        raise Unauthorized(str(error)) from error


@dataclass(frozen=True, kw_only=True)
class AdminCall:
    """A request, what it addresses, in which namespace, whom it is answered to, and when."""

    namespace: Namespace
    request: HttpRequest
    address: ResourceAddress
    origin: Origin
    now: float
    authorize: Authorize | None = None

    def check_forwarding(self, settings: EntitySettings, current: EntitySettings | None = None) -> None:
        """Manage on a new target is needed too: who may send to the entity then sends to the target."""
        for field, header in _FORWARDING.items():
            target, before = getattr(settings, field, None), getattr(current, field, None)
            if target is not None and target != before:
                self._check_target(entity_path(target), header)

    def _check_target(self, target: str, header: str) -> None:
        brought = self.request.headers.get(header)
        try:
            check_rights(self.authorize, self.request, target)
        except Unauthorized:
            if brought is None:
                raise
            check_rights(self.authorize, replace(self.request, headers={"authorization": brought}), target)

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
        begin, top = self.address.skip, self.address.top
        end = begin + top
        more = {"$skip": str(end), "$top": str(top)} if end < len(items) and top else None
        entries = []
        for item in items[begin:end]:
            entries.append(to_entry(item))
            breathe()
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
