"""Administration of one namespace over HTTP: counts the requests, lets faults answer them, and gives every
other answer when the turn that it belongs to has been committed.
"""

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

import h11

from pairbus.broker.access.tokens import check_authorization
from pairbus.broker.counters import OperationKind
from pairbus.broker.engine.errors import Refused
from pairbus.broker.engine.subscription import subscription_path
from pairbus.broker.gate import CROWDED, Visitor
from pairbus.broker.listener import Greeter
from pairbus.broker.websocket import MOST_READ, PATH, WebSocketLine, is_address, open_websocket
from pairbus.fault_kinds import ClientAction
from pairbus.metering import NAMESPACE

from . import AdminApi, AdminHttp, AdminRefused, HttpRequest, Response
from .address import parse_address
from .api import refusal, status_of
from .atom import error_response
from .exchange import split_target

if TYPE_CHECKING:
    from pairbus.broker.host import NamespaceHost


_NOT_STORED = error_response(
    500, "The namespace could not store the request, and nothing of it was kept. Its log says why."
)


class Administration:
    """Answers the requests of administration clients."""

    def __init__(self, host: "NamespaceHost") -> None:
        self._host = host

    def handle(self, request: HttpRequest, connection: str, visitor: Visitor) -> Awaitable[Response]:
        """Carry out a request; its answer waits for the commit. Whoever shows a good token is let in."""
        host = self._host
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        if host.is_loading:
            answer.set_result(
                error_response(503, "The namespace is being read again. Try again in a moment.")
            )
            return answer
        known = self._known_entity(request)  # before: it may be deleted now

        def authorize(request: HttpRequest, path: str) -> None:
            self._authorize(request, path)
            if not visitor.admit():
                raise AdminRefused(503, CROWDED)

        api = AdminApi(host.engine, authorize=authorize)
        noted = host.engine.noted
        try:
            response = self._fault(request) or api.handle(request, host.now())
        except Exception as error:
            host.undo_half(error, noted)
            raise
        host.answers.hold(answer, lambda refused: response if refused is None else _NOT_STORED)
        entity = known or self._known_entity(request) or NAMESPACE  # after: it may be new
        host.counters.count(entity, connection, kind=OperationKind.ADMIN, size=len(request.body))
        host.review(has_changes=host.engine.noted != noted)
        return answer

    def _fault(self, request: HttpRequest) -> Response | None:
        """What a fault answers in our place."""
        host = self._host
        error = host.faults.refusal(ClientAction.ADMINISTER, _entity_path(request), now=host.now())
        return None if error is None else refusal(status_of(error.condition), error.description or "")

    def _authorize(self, request: HttpRequest, path: str) -> None:
        host = self._host
        check_authorization(
            request.headers,
            entity=path,
            now=host.now(),
            policies=host.policies,
            jwt_key=host.jwt_key,
            rules=host.entity_rules,
        )

    def _known_entity(self, request: HttpRequest) -> str | None:
        """The canonical path of the entity that a request is about. What does not exist is not counted by
        name: anybody can ask for anything, and counters are never forgotten.
        """
        try:
            return self._host.engine.node(_entity_path(request)).path
        except Refused:
            return None


class AdminLine(AdminHttp):
    """One HTTP connection to a namespace."""

    def __init__(self, host: "NamespaceHost", connection: str, visitor: Visitor) -> None:
        super().__init__(self._serve, upgrade=self._change)
        self._host = host
        self._visitor = visitor
        self._connection = connection
        self._is_introduced = False

    def _serve(self, request: HttpRequest) -> Awaitable[Response]:
        if not self._is_introduced:
            self._is_introduced = True
            agent = request.headers.get("user-agent", "")
            self._host.connections.introduce(self._connection, client={"user-agent": agent})
        return self._host.administration.handle(request, self._connection, self._visitor)

    def _change(self, request: h11.Request, ahead: bytes) -> None:
        """Let the connection speak AMQP over WebSocket."""
        assert self._transport is not None
        if not is_address(split_target(request.target.decode("latin-1"))[0]):
            raise AdminRefused(404, f"WebSockets are at /{PATH}.")
        if len(ahead) > MOST_READ:
            raise AdminRefused(400, "Wait for the answer to a request to upgrade before you go on.")
        try:
            protocol, answer = open_websocket(request.headers.raw_items(), request.target)
        except ValueError as error:
            raise AdminRefused(400, f"The request to upgrade cannot be granted: {error}.") from error
        greeter = self._transport.get_protocol()
        assert isinstance(greeter, Greeter)
        self._transport.write(answer)
        self._host.connections.close(self._connection, self._host.now())
        peer = self._host.make_peer("websocket", self._transport, self._visitor)
        greeter.hand_over(WebSocketLine(protocol, peer), ahead)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._host.connections.close(self._connection, self._host.now())


def _entity_path(request: HttpRequest) -> str:
    """The path of the queue, topic or subscription that a request is about; empty if it is about none."""
    try:
        address = parse_address(request.target)
    except AdminRefused:
        return ""
    if address.subscription:
        return subscription_path(address.entity, address.subscription)
    return address.entity
