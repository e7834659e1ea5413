"""Administration of one namespace over HTTP: counts the requests, lets faults answer them, and gives every
other answer when the turn that it belongs to has been committed.
"""

import asyncio
from collections.abc import Awaitable, Callable
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

from .address import parse_address
from .api import AdminApi, refusal, status_of
from .atom import error_response
from .errors import AdminRefused
from .exchange import HttpRequest, Response, split_target
from .http import AdminHttp

if TYPE_CHECKING:
    from pairbus.broker.host import NamespaceHost


_NOT_STORED = error_response(
    500, "The namespace could not store the request, and nothing of it was kept. Its log says why."
)


_BEING_READ = error_response(503, "The namespace is being read again. Try again in a moment.")


class Administration:
    """Answers the requests of administration clients."""

    def __init__(self, host: "NamespaceHost") -> None:
        self._host = host

    def handle(self, request: HttpRequest, connection: str, visitor: Visitor) -> Awaitable[Response]:
        """Carry out a request; its answer waits for the commit. A valid token admits the connection."""
        host = self._host
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        if host.is_loading:
            answer.set_result(_BEING_READ)
            return answer
        host.time.catch_up()
        noted = 0

        def carry_out() -> tuple[Response, str]:
            nonlocal noted
            noted = host.engine.noted
            if host.is_loading:  # since it began to wait here: there is nothing to ask, nor to change
                return _BEING_READ, NAMESPACE
            return self._carry_out(request, visitor)

        def conclude(done: Callable[[], tuple[Response, str]]) -> None:
            try:
                response, entity = done()
            except Exception as error:  # noqa: BLE001 - whatever it is, it is told and undone
                host.undo_half(error, noted)
                answer.set_exception(error)
                return
            host.answers.hold(answer, lambda refused: response if refused is None else _NOT_STORED)
            host.counters.count(entity, connection, kind=OperationKind.ADMIN, size=len(request.body))
            host.review(host.engine.changed_since(noted))

        host.decisions.make(carry_out, conclude)
        return answer

    def _carry_out(self, request: HttpRequest, visitor: Visitor) -> tuple[Response, str]:
        """The answer, and the entity that it is about."""
        known = self._known_entity(request)  # before: it may be deleted now

        def authorize(request: HttpRequest, path: str) -> None:
            self._authorize(request, path)
            if not visitor.admit():
                raise AdminRefused(503, CROWDED)

        api = AdminApi(self._host.engine, authorize=authorize)
        response = self._fault(request) or api.handle(request, self._host.now())
        return response, known or self._known_entity(request) or NAMESPACE  # after: it may be new

    def _fault(self, request: HttpRequest) -> Response | None:
        """What a fault answers in our place."""
        host = self._host
        error = host.faults.refusal(ClientAction.ADMINISTER, _entity_path(request), now=host.now())
        return None if error is None else refusal(status_of(error.condition), error.description or "")

    def _authorize(self, request: HttpRequest, path: str) -> None:
        host = self._host
        check_authorization(
            request.token,
            entity=path,
            now=host.now(),
            policies=host.policies,
            jwt_key=host.jwt_key,
            rules=host.entity_rules,
        )

    def _known_entity(self, request: HttpRequest) -> str | None:
        """Its canonical path. What does not exist has none: counters are never forgotten."""
        try:
            return self._host.engine.node(_entity_path(request)).path
        except Refused:
            return None


class AdminLine(AdminHttp):
    """One HTTP connection to a namespace."""

    def __init__(self, host: "NamespaceHost", connection: str, visitor: Visitor) -> None:
        super().__init__(
            self._serve,
            upgrade=self._change,
            share=lambda: None if visitor.is_member else host.allowance,
        )
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
        greeter.hand_over(WebSocketLine(protocol, peer, self._host.arrivals), ahead)

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
