"""Why a link that is open cannot be there any longer: its entity has gone or changed, or there is a fault.

Links are found by their queue or topic: whoever changes one has not all the others looked at.
"""

from collections.abc import Set
from typing import Protocol

from pairbus import conditions
from pairbus.amqp.performatives import AmqpError
from pairbus.broker.engine.errors import Refused
from pairbus.broker.engine.names import entity_of, fold
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.queue import MessageQueue
from pairbus.broker.faults.board import FaultBoard
from pairbus.broker.faults.desk import FaultDesk
from pairbus.fault_kinds import ClientAction

from .consumers import Consumers
from .endpoint import LinkEndpoint
from .receiving_endpoint import ReceivingEndpoint
from .sending_endpoint import SendingEndpoint


class Connected(Protocol):
    """A connection with links."""

    def detach(self, endpoint: LinkEndpoint, error: AmqpError) -> None: ...


class Objections:
    """Asks about the links of one namespace."""

    def __init__(self, faults: FaultBoard, fault_desk: FaultDesk) -> None:
        self._faults = faults
        self._fault_desk = fault_desk
        self._links: dict[str, dict[LinkEndpoint, Connected]] = {}

    def enter(self, endpoint: LinkEndpoint, peer: Connected) -> None:
        """A link is open; it is looked after if it concerns an entity."""
        if endpoint.path:
            self._links.setdefault(entity_of(fold(endpoint.path)), {})[endpoint] = peer

    def leave(self, endpoint: LinkEndpoint) -> None:
        """A link has gone."""
        if not endpoint.path:
            return
        entity = entity_of(fold(endpoint.path))
        links = self._links.get(entity, {})
        links.pop(endpoint, None)  # it is not here if a turn was refused before it could go
        if not links:
            self._links.pop(entity, None)

    def review(self, changed: Set[str] | None, consumers: Consumers, engine: Namespace, now: float) -> None:
        """Detach the links that would be refused now: those of the entities that have changed, or all."""
        for entity in list(self._links) if changed is None else changed:
            for endpoint, peer in list(self._links.get(entity, {}).items()):
                error = self.to_link(endpoint, engine, now)
                if error is not None:
                    peer.detach(endpoint, error)
                elif isinstance(endpoint, SendingEndpoint):
                    consumers.want(endpoint)  # it may have been mute until now
        for wait in consumers.waits(changed):
            error = self.to(wait.queue.path, wait.queue, engine, now)
            if error is not None:
                wait.refuse(error)
            elif wait.try_again(now):
                consumers.stop_waiting(wait)

    def to_link(self, endpoint: LinkEndpoint, engine: Namespace, now: float) -> AmqpError | None:
        """Why this link cannot be there any longer."""
        if endpoint.is_owed_an_answer and not self._fault_desk.is_mute(endpoint.path):
            text = "The link was silent for a while. What was asked of it meanwhile is lost; attach it again."
            return AmqpError(conditions.DETACH_FORCED, text, {})
        if isinstance(endpoint, ReceivingEndpoint):
            return self.to(endpoint.path, None, engine, now)
        if isinstance(endpoint, SendingEndpoint):
            return self.to(endpoint.path, endpoint.queue, engine, now)
        if endpoint.path and self._faults.any:
            return self._faults.severance(ClientAction.ATTACH_MANAGEMENT, endpoint.path, now=now)
        return None

    def to(self, path: str, queue: MessageQueue | None, engine: Namespace, now: float) -> AmqpError | None:
        """Why a sender at `path`, or a receiver of `queue`, cannot be there any longer."""
        try:
            node = engine.node(path)
            if queue is None:
                node.check_send()
            elif node is queue:
                queue.check_receive()
            else:
                return AmqpError(conditions.NOT_FOUND, f"The entity '{path}' was deleted.", {})
        except Refused as refused:
            return AmqpError(refused.condition, refused.description, {})
        if not self._faults.any:
            return None
        operation = ClientAction.ATTACH_SENDER if queue is None else ClientAction.ATTACH_RECEIVER
        return self._faults.severance(operation, path, now=now)
