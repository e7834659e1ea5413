"""The `$cbs` node: a client puts a token for an entity, and the connection may then attach links to it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pairbus import words
from pairbus.amqp.errors import DecodeError
from pairbus.amqp.types import Int
from pairbus.broker.access.grants import Grant, TokenRejected
from pairbus.broker.engine.errors import Refused

from .address import MOST_ADDRESS, LinkAddress, parse_address
from .requests import FAILED, Answer, NodeRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenNode:
    """Answers put-token requests of one connection."""

    #: Turns token and path into a grant, or raises TokenRejected.
    check: Callable[[str, str], Grant]
    #: Raises Refused for an unknown path.
    exists: Callable[[str], None]
    is_down: Callable[[str], bool]
    #: Is told what a token gives, and for which path.
    accept: Callable[[Grant, str], None]
    #: Finds out from an audience what the client calls this namespace.
    meet: Callable[[str], str]

    def __call__(self, request: NodeRequest) -> Answer:
        operation = request.properties.get("operation")
        if operation != words.PUT_TOKEN:
            return _answer(400, f"$cbs knows the operation put-token, not {operation!r:.100}.")
        audience, token = request.properties.get("name"), _token(request)
        if not isinstance(audience, str) or len(audience) > MOST_ADDRESS or not isinstance(token, str):
            return _answer(
                400, "put-token needs the audience as application property 'name' and the token as the body."
            )
        return self._put(parse_address(audience), token, self.meet(audience))

    def failure(self) -> Answer:
        """What is said when something goes wrong that nobody foresaw."""
        return _answer(500, FAILED)

    def _put(self, address: LinkAddress, token: str, host: str) -> Answer:
        path = address.path
        if self.is_down(path):
            return _answer(401, "The token service is not available.")
        try:
            grant = self.check(token, address.resource)
            if path:
                self.exists(path)
        except TokenRejected as rejected:
            return _answer(401, rejected.description)
        except Refused as refused:
            return _answer(404, refused.told_to(host))
        self.accept(grant, address.resource)
        return _answer(202, "Accepted")


def _token(request: NodeRequest) -> Any:
    try:
        return request.body
    except DecodeError:
        return None


def _answer(status: int, description: str) -> Answer:
    properties: dict[str, Any] = {words.CBS_STATUS: Int(status), words.CBS_STATUS_TEXT: description}
    return Answer(properties)
