"""The `$cbs` node: a client puts a token for an entity, and the connection may then attach links to it."""

from collections.abc import Callable
from typing import Any

from pairbus import words
from pairbus.amqp.errors import DecodeError
from pairbus.amqp.types import Int
from pairbus.broker.access.grants import Grant, TokenRejected
from pairbus.broker.engine.errors import Refused

from .address import MOST_ADDRESS, LinkAddress, parse_address
from .requests import FAILED, Answer, NodeRequest


class TokenNode:
    """Answers put-token requests of one connection."""

    def __init__(
        self,
        *,
        check: Callable[[str, str], Grant],
        exists: Callable[[str], None],
        is_down: Callable[[str], bool],
        accept: Callable[[Grant, str], None],
        meet: Callable[[str], str],
    ) -> None:
        """`check` turns token and path into a grant or raises TokenRejected; `exists` raises Refused for an
        unknown path; `accept` is told what a token gives, and for which path; `meet` finds out from an
        audience what the client calls this namespace.
        """
        self._check = check
        self._exists = exists
        self._is_down = is_down
        self._accept = accept
        self._meet = meet

    def __call__(self, request: NodeRequest) -> Answer:
        operation = request.properties.get("operation")
        if operation != words.PUT_TOKEN:
            return _answer(400, f"$cbs knows the operation put-token, not {operation!r:.100}.")
        audience, token = request.properties.get("name"), _token(request)
        if not isinstance(audience, str) or len(audience) > MOST_ADDRESS or not isinstance(token, str):
            return _answer(
                400, "put-token needs the audience as application property 'name' and the token as the body."
            )
        return self._put(parse_address(audience), token, self._meet(audience))

    def failure(self) -> Answer:
        """What is said when something goes wrong that nobody foresaw."""
        return _answer(500, FAILED)

    def _put(self, address: LinkAddress, token: str, host: str) -> Answer:
        path = address.path
        if self._is_down(path):
            return _answer(401, "The token service is not available.")
        try:
            grant = self._check(token, address.resource)
            if path:
                self._exists(path)
        except TokenRejected as rejected:
            return _answer(401, rejected.description)
        except Refused as refused:
            return _answer(404, refused.told_to(host))
        self._accept(grant, address.resource)
        return _answer(202, "Accepted")


def _token(request: NodeRequest) -> Any:
    try:
        return request.body
    except DecodeError:
        return None


def _answer(status: int, description: str) -> Answer:
    properties: dict[str, Any] = {words.CBS_STATUS: Int(status), words.CBS_STATUS_TEXT: description}
    return Answer(properties)
