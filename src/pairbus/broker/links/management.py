"""The `$management` node of an entity: peek, schedule, renew, deferred messages, sessions and rules.

One table says which operation is done by which function and which claim it needs. A function takes the
request's body, a map, and returns the answer's; what the engine refuses becomes an answer with a status code
and the condition that the SDKs turn into their exceptions.
"""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol

from pairbus import conditions, words
from pairbus.amqp.errors import DecodeError
from pairbus.amqp.pieces import Pieces
from pairbus.amqp.types import Array, Int, Symbol, Timestamp
from pairbus.broker.contents import check_at_hand
from pairbus.broker.counters import OperationKind
from pairbus.broker.engine.breath import breathe
from pairbus.broker.engine.errors import Refused, bad_argument, not_allowed
from pairbus.broker.engine.message import Incoming, size_of
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.queue import MessageQueue
from pairbus.broker.engine.results import Handout
from pairbus.broker.engine.sessions import SessionLock
from pairbus.broker.engine.subscription import Subscription
from pairbus.broker.engine.transaction import check_locked
from pairbus.fault_kinds import ClientAction

from .requests import FAILED, Answer, NodeRequest
from .rule_codec import decode_rule, encode_rule
from .wire import milliseconds, render_delivery, render_peeked

_STATUS = {
    conditions.NOT_FOUND: 404,
    conditions.MESSAGE_NOT_FOUND: 404,
    conditions.UNAUTHORIZED: 401,
    conditions.MESSAGE_LOCK_LOST: 410,
    conditions.SESSION_LOCK_LOST: 410,
    conditions.SESSION_CANNOT_BE_LOCKED: 410,
    conditions.ENTITY_ALREADY_EXISTS: 409,
    conditions.RESOURCE_LIMIT: 403,
    conditions.ENTITY_DISABLED: 403,
    conditions.MESSAGE_SIZE_EXCEEDED: 403,
    conditions.SERVER_BUSY: 503,
    conditions.TIMEOUT: 408,
    conditions.INTERNAL_ERROR: 500,
}
_DISPOSITIONS = {
    "completed": OperationKind.COMPLETE,
    "abandoned": OperationKind.ABANDON,
    "defered": OperationKind.DEFER,  # the protocol's own spelling
    "suspended": OperationKind.DEAD_LETTER,
}
_SCHEDULE, _DELETE = "schedule-message", "batch-delete-messages"
# Answers hold whole messages; a page of a peek ends here, whatever count was asked for.
MOST_PEEKED_BYTES = 1024 * 1024
MOST_PER_REQUEST = 4096
# .NET's last moment in milliseconds, rounded up: clients that list all sessions say it for "updated since".
END_OF_TIME = 253_402_300_800_000


class SessionLocks(Protocol):
    """Finds the lock that this connection holds on a session."""

    def __call__(self, queue: MessageQueue, session_id: str) -> SessionLock:
        """The lock, or Refused (session lock lost)."""


Count = Callable[[OperationKind, int], None]
Body = Mapping[str, Any]
Found = dict[str, Any] | None


@dataclass(slots=True)
class ManagementNode:
    """Answers the management requests of one connection for one entity."""

    path: str
    engine: Namespace
    now: Callable[[], float]
    require: Callable[[str], None]
    check_faults: Callable[[ClientAction], None]
    delay: Callable[[], float]
    session_lock: SessionLocks
    count: Count
    host: Callable[[], str]

    def __call__(self, request: NodeRequest) -> Answer:
        name = str(request.properties.get("operation", "")).removeprefix(words.OPERATION_PREFIX)
        answer = self._answer(name, request)
        # What it carries to be scheduled is counted as sends, not twice; a request that waits for the disk is
        # counted when it is answered.
        self.count(OperationKind.MANAGEMENT, 0 if name == _SCHEDULE else request.size)
        return answer

    def _answer(self, name: str, request: NodeRequest) -> Answer:
        try:
            body = self._do(name, request)
        except Refused as refused:
            return _refusal(refused, self.host())
        except DecodeError as error:
            return _refusal(bad_argument(f"The request cannot be read: {error.description}"))
        # 204 tells the SDKs that a peek or a listing found nothing; any other success is a 200.
        properties: dict[str, Any] = {
            words.STATUS: Int(204 if body is None else 200),
            words.STATUS_TEXT: "OK",
        }
        if body is None and name == _DELETE:  # by which the client of JavaScript tells that there was nothing
            properties[words.STATUS_CONDITION] = Symbol(conditions.MESSAGE_NOT_FOUND)
        delay = self.delay() if name == _SCHEDULE else 0.0
        return Answer(properties, body, delay=delay, is_large=_holds_pieces(body))

    def failure(self) -> Answer:
        """What is said when something goes wrong that nobody foresaw."""
        return _refusal(Refused(conditions.INTERNAL_ERROR, FAILED))

    def _do(self, name: str, request: NodeRequest) -> Found:
        operation = _OPERATIONS.get(name)
        if operation is None:
            raise bad_argument(f"There is no operation {name!r}.")
        perform, claim = operation
        self.require(claim)
        if name != _SCHEDULE:
            self.check_faults(ClientAction.MANAGE)
        body = request.body if request.sections.body_kind == "value" else {}
        if not isinstance(body, dict):
            raise bad_argument("The body of a management request is a map.")
        return perform(self, {str(key): value for key, value in body.items()})

    # -- messages

    def peek(self, body: Body) -> Found:
        count = _number(body, "message-count")
        queue = self._queue()
        found = queue.peek(
            _number(body, "from-sequence-number"),
            min(count, MOST_PER_REQUEST),
            self.now(),
            session_id=_optional_text(body, "session-id"),
        )
        sizes = accumulate(message.size for message in found)
        fitting = [message for message, size in zip(found, sizes, strict=True) if size <= MOST_PEEKED_BYTES]
        found = fitting or found[:1]
        check_at_hand((queue, message) for message in found)
        rendered: list[dict[str, Any]] = []
        size, with_body = 0, body.get("omit-message-body") is not True
        for message in found:
            payload = render_peeked(message, with_body=with_body)
            size += len(payload)
            if rendered and size > MOST_PEEKED_BYTES:
                break
            breathe()
            rendered.append({"message": payload})
        return {"messages": rendered} if rendered else None

    def delete(self, body: Body) -> Found:
        """Delete messages that wait, the oldest first, if they were enqueued before a time."""
        queue, now, before = self._queue(), self.now(), body.get("enqueued-time-utc")
        session_id, wanted = _optional_text(body, "session-id"), _number(body, "message-count")
        session = None if session_id is None else self.session_lock(queue, session_id)
        latest = before / 1000 if isinstance(before, int) else now
        found = queue.receive(min(wanted, MOST_PER_REQUEST), now, session=session)
        for delivery in found:
            assert delivery.lock_token is not None
            if delivery.message.enqueued_at <= latest:
                queue.complete(delivery.lock_token, now)
            else:
                queue.release(delivery.lock_token, now)
            breathe()
        deleted = sum(delivery.message.enqueued_at <= latest for delivery in found)
        return {"message-count": Int(deleted)} if deleted else None

    def schedule(self, body: Body) -> dict[str, Any]:
        entries = body.get("messages")
        if not isinstance(entries, list):
            raise bad_argument("schedule-message needs a list 'messages'.")
        messages = []
        for entry in entries:
            messages.append(Incoming.parse(_field(entry, "message", bytes)))
            breathe()
        try:
            self.check_faults(ClientAction.SCHEDULE)
            numbers = self.engine.schedule(self.path, messages, self.now())
        except Refused:
            for message in messages:
                self.count(OperationKind.SEND_REFUSED, message.size)
            raise
        for message in messages:
            self.count(OperationKind.PING if message.is_ping else OperationKind.SEND, message.size)
            breathe()
        return {"sequence-numbers": Array(numbers, int)}

    def cancel(self, body: Body) -> dict[str, Any]:
        self.engine.cancel_scheduled(self.path, _numbers(body), self.now())
        return {}

    def receive_deferred(self, body: Body) -> dict[str, Any]:
        queue = self._queue()
        queue.check_receive()
        session_id = _optional_text(body, "session-id")
        numbers = _numbers(body)
        asked = (queue.table.get(number) for number in numbers)
        check_at_hand((queue, message) for message in asked if message is not None)
        deliveries = queue.receive_deferred(
            numbers,
            self.now(),
            delete=_optional_number(body, "receiver-settle-mode", 1) == 0,
            session=self.session_lock(queue, session_id) if session_id is not None else None,
        )
        return {"messages": [self._deferred(delivery) for delivery in deliveries]}

    def _deferred(self, delivery: Handout) -> dict[str, Any]:
        payload = render_delivery(delivery)
        self.count(OperationKind.DELIVERY, len(payload))
        breathe()
        token = delivery.lock_token
        return {"message": payload} if token is None else {"lock-token": token, "message": payload}

    # -- locks

    def renew(self, body: Body) -> dict[str, Any]:
        queue, now = self._queue(), self.now()
        ends = []
        for token in _tokens(body):
            ends.append(queue.renew(token, now))
            breathe()
        return {"expirations": Array([Timestamp(milliseconds(end)) for end in ends], Timestamp)}

    def settle(self, body: Body) -> dict[str, Any]:
        queue, status = self._queue(), body.get("disposition-status")
        kind = _DISPOSITIONS.get(status) if isinstance(status, str) else None
        if kind is None:
            raise bad_argument(f"There is no disposition status {status!r}.")
        tokens, now = list(dict.fromkeys(_tokens(body))), self.now()
        if kind is not OperationKind.COMPLETE:  # it may be buried, or get other properties
            check_at_hand((queue, message) for message in queue.locked(tokens))
        for _ in tokens:
            self.count(kind, 0)  # as asked for, also if it is refused
        check_locked(queue, tokens, now)
        if kind is not OperationKind.COMPLETE:
            queue.check_growth(size_of(_written(body)), count=len(tokens))
        for token in tokens:
            self._dispose(queue, token, kind, body, now)
            breathe()
        return {}

    def _dispose(
        self, queue: MessageQueue, token: uuid.UUID, kind: OperationKind, body: Body, now: float
    ) -> None:
        properties = _changes(body)
        if kind is OperationKind.COMPLETE:
            queue.complete(token, now)
        elif kind is OperationKind.ABANDON:
            queue.abandon(token, now, properties=properties)
        elif kind is OperationKind.DEFER:
            queue.defer(token, now, properties=properties)
        else:
            reason = _optional_text(body, "deadletter-reason")
            description = _optional_text(body, "deadletter-description")
            queue.dead_letter(token, now, reason=reason, description=description, properties=properties)

    # -- sessions

    def renew_session(self, body: Body) -> dict[str, Any]:
        queue = self._queue()
        end = queue.renew_session(self.session_lock(queue, _text(body, "session-id")), self.now())
        return {"expiration": Timestamp(milliseconds(end))}

    def get_state(self, body: Body) -> dict[str, Any]:
        queue, session_id = self._queue(), _text(body, "session-id")
        self.session_lock(queue, session_id)
        return {"session-state": queue.get_session_state(session_id)}

    def set_state(self, body: Body) -> dict[str, Any]:
        queue, session_id = self._queue(), _text(body, "session-id")
        self.session_lock(queue, session_id)
        state = body.get("session-state")
        if state is not None and not isinstance(state, bytes):
            raise bad_argument("A session's state is binary, or null to clear it.")
        # Some clients clear a state with null, others with nothing in it.
        queue.set_session_state(session_id, state or None, self.now())
        return {}

    def list_sessions(self, body: Body) -> Found:
        (skip, top), since = _page(body), body.get("last-updated-time")
        found = self._queue().list_sessions(
            skip=skip,
            top=top,
            updated_after=since / 1000 if isinstance(since, int) and since < END_OF_TIME else None,
        )
        return {"skip": Int(skip + len(found)), "sessions-ids": Array(found, str)} if found else None

    # -- rules

    def add_rule(self, body: Body) -> dict[str, Any]:
        at = self._subscription()
        rule = decode_rule(_text(body, "rule-name"), body.get("rule-description"), created_at=self.now())
        self.engine.create_rule(at.topic_path, at.name, rule, self.now())
        return {}

    def remove_rule(self, body: Body) -> dict[str, Any]:
        at = self._subscription()
        self.engine.delete_rule(at.topic_path, at.name, _text(body, "rule-name"), self.now())
        return {}

    def list_rules(self, body: Body) -> Found:
        at, (skip, top) = self._subscription(), _page(body)
        rules = at.rules[skip : skip + top]
        return {"rules": [{"rule-description": encode_rule(rule)} for rule in rules]} if rules else None

    # -- the entity

    def _queue(self) -> MessageQueue:
        node = self.engine.node(self.path)
        if not isinstance(node, MessageQueue):
            raise not_allowed(
                f"'{self.path}' is a topic and holds no messages to receive; use a subscription."
            )
        return node

    def _subscription(self) -> Subscription:
        node = self.engine.node(self.path)
        if not isinstance(node, Subscription):
            raise not_allowed(f"'{self.path}' is no subscription; only subscriptions have rules.")
        return node


def _holds_pieces(body: Found) -> bool:
    messages = body.get("messages") if body else None
    return messages is not None and any(isinstance(one["message"], Pieces) for one in messages)


_Operation = Callable[[ManagementNode, Body], Found]
_OPERATIONS: dict[str, tuple[_Operation, str]] = {
    "peek-message": (ManagementNode.peek, "Listen"),
    _SCHEDULE: (ManagementNode.schedule, "Send"),
    "cancel-scheduled-message": (ManagementNode.cancel, "Send"),
    _DELETE: (ManagementNode.delete, "Listen"),
    "receive-by-sequence-number": (ManagementNode.receive_deferred, "Listen"),
    "renew-lock": (ManagementNode.renew, "Listen"),
    "update-disposition": (ManagementNode.settle, "Listen"),
    "renew-session-lock": (ManagementNode.renew_session, "Listen"),
    "get-session-state": (ManagementNode.get_state, "Listen"),
    "set-session-state": (ManagementNode.set_state, "Listen"),
    "get-message-sessions": (ManagementNode.list_sessions, "Listen"),
    "add-rule": (ManagementNode.add_rule, "Manage"),
    "remove-rule": (ManagementNode.remove_rule, "Manage"),
    "enumerate-rules": (ManagementNode.list_rules, "Manage"),
}


def _refusal(refused: Refused, host: str = "") -> Answer:
    properties = {
        words.STATUS: Int(_STATUS.get(refused.condition, 400)),
        words.STATUS_TEXT: refused.told_to(host),
        words.STATUS_CONDITION: Symbol(refused.condition),
    }
    return Answer(properties)


def _number(body: Body, name: str) -> int:
    return int(_field(body, name, int))


def _optional_number(body: Body, name: str, default: int) -> int:
    return default if body.get(name) is None else _number(body, name)


def _page(body: Body) -> tuple[int, int]:
    """How many to leave out, and how many to list then."""
    skip, top = _optional_number(body, "skip", 0), _optional_number(body, "top", 100)
    if skip < 0 or top < 0:
        raise bad_argument("'skip' and 'top' are not negative.")
    return skip, min(top, MOST_PER_REQUEST)


def _text(body: Body, name: str) -> str:
    return str(_field(body, name, str))


def _optional_text(body: Body, name: str) -> str | None:
    return None if body.get(name) is None else _text(body, name)


def _field(body: Any, name: str, kind: type) -> Any:
    value = body.get(name) if isinstance(body, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise bad_argument(f"The request needs '{name}' as {kind.__name__}.")
    return value


def _changes(body: Body) -> dict[str, Any] | None:
    if not body.get("properties-to-modify"):
        return None
    return {str(key): value for key, value in _field(body, "properties-to-modify", dict).items()}


def _written(body: Body) -> dict[str, Any]:
    """All that a settlement writes into each of its messages."""
    texts = {name: _optional_text(body, name) for name in ("deadletter-reason", "deadletter-description")}
    return (_changes(body) or {}) | texts


def _items(body: Body, name: str) -> list[Any]:
    value = body.get(name)
    items = list(value) if isinstance(value, Array) else value
    if not isinstance(items, list) or len(items) > MOST_PER_REQUEST:
        raise bad_argument(f"The request needs '{name}', at most {MOST_PER_REQUEST} of them.")
    return items


def _numbers(body: Body) -> list[int]:
    numbers = _items(body, "sequence-numbers")
    if not all(isinstance(number, int) and not isinstance(number, bool) for number in numbers):
        raise bad_argument("Sequence numbers are longs.")
    return [int(number) for number in numbers]


def _tokens(body: Body) -> list[uuid.UUID]:
    tokens = _items(body, "lock-tokens")
    if not all(isinstance(token, uuid.UUID) for token in tokens):
        raise bad_argument("Lock tokens are uuids.")
    return tokens
