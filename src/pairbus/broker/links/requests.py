"""Request and answer over a pair of links: how `$cbs` and `$management` are spoken to.

A client attaches a sender and a receiver to the same node. Each message on the first is a request; its answer
goes out on the second, carrying the request's message id as correlation id *with its AMQP type* (the Python
SDK matches them by value, and a uuid that comes back as a string is never found). The Python SDK names no
reply-to; where one is named, the link that points there is taken.

A request that cannot be read has no id that an answer could carry: it is rejected, and the link lives on.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from pairbus import conditions, words
from pairbus.amqp.errors import DecodeError
from pairbus.amqp.events import LinkFlowed, ProtocolEvent, TransferReceived
from pairbus.amqp.link import Link
from pairbus.amqp.message import (
    VALUE_MARK,
    MessageSections,
    Properties,
    encode_application_properties,
    encode_properties,
    encode_value,
    scan,
)
from pairbus.amqp.performatives import ACCEPTED, Accepted, AmqpError, Rejected, TransactionalState
from pairbus.amqp.pieces import Pieces, encode_in_pieces

from .endpoint import LinkEndpoint, whole_payload
from .machine import target_of

T = TypeVar("T")
_PEEK, _SHORT = f"{words.OPERATION_PREFIX}peek-message", 512
# Credit for requests. A client has one or two under way; this many never make it wait.
REQUEST_CREDIT = 100
# A client that asks and asks but grants no credit for the answers loses some, not our memory: the oldest when
# so many bytes of a link wait, and further ones when so many of its connection do, which count as what it
# does not read. An answer to a stranger carries what that has said, and is not worth more than one place.
MOST_WAITING_BYTES, MOST_OF_CONNECTION = 256 * 1024, 16 << 20
_NO_TRANSACTION = "A request cannot belong to a transaction; messages that are sent and settled can."
FAILED = "The broker failed on this request. Its log says why."


@dataclass(frozen=True, slots=True)
class NodeRequest:
    """One request: where to answer, its properties with text keys, and its body, decoded when asked for."""

    sections: MessageSections
    asked: Properties
    properties: Mapping[str, Any]
    size: int

    @property
    def body(self) -> Any:
        return self.sections.value()


@dataclass(frozen=True, slots=True)
class Answer:
    """What a node says, and how much later than usual; `is_large`: its body is better not copied."""

    properties: dict[str, Any]
    body: Any = None
    delay: float = 0.0
    is_large: bool = False


Service = Callable[[NodeRequest], Answer]


class Node(Protocol):
    """What answers requests."""

    def __call__(self, request: NodeRequest) -> Answer: ...

    def failure(self) -> Answer:
        """What is said when something goes wrong that nobody foresaw."""


FindAnswers = Callable[[str | None], "AnswerEndpoint | None"]
Later = Callable[[float, Callable[[], None]], None]


class AtLength(Protocol):
    """Does for an event what may take long, and then says so."""

    def __call__(self, event: ProtocolEvent, act: Callable[[], T], then: Callable[[T], None], /) -> None: ...


class AnswerEndpoint(LinkEndpoint):
    """Our end of the link on which a node's answers leave."""

    __slots__ = ("_next_tag", "_siblings", "_spend", "_waiting", "address", "waiting_bytes")

    def __init__(
        self,
        link: Link,
        address: str,
        *,
        path: str = "",
        spend: Callable[[int], None],
        siblings: "AnswerLinks",
    ) -> None:
        """`spend` is told how many bytes leave; `siblings` are those of the connection."""
        super().__init__(link, path=path)
        self.address = address
        self._spend = spend
        self._siblings = siblings
        self._waiting: deque[bytes | Pieces] = deque()
        self.waiting_bytes = 0
        self._next_tag = 0

    def send(self, payload: bytes | Pieces) -> None:
        """Send an answer as soon as there is credit for it."""
        self._waiting.append(payload)
        self._count(len(payload))
        self._send_what_credit_allows()
        while self.waiting_bytes > self._siblings.most_waiting and len(self._waiting) > 1:
            self._count(-len(self._waiting.popleft()))
        if self._waiting and self._siblings.waiting_bytes - len(payload) > MOST_OF_CONNECTION:
            self._count(-len(self._waiting.pop()))

    def _count(self, size: int) -> None:
        self.waiting_bytes += size
        self._siblings.waiting_bytes += size

    def on_flow(self, event: LinkFlowed) -> None:
        self._send_what_credit_allows()
        if event.drain:
            self.link.drained()

    def _send_what_credit_allows(self) -> None:
        while self._waiting and self.link.sendable > 0:
            self._next_tag += 1
            payload = self._waiting.popleft()
            self._count(-len(payload))
            self._spend(len(payload))
            self.link.send(payload, tag=self._next_tag.to_bytes(8, "big"), settled=True)


class AnswerLinks:
    """Those of a connection, by where they lead and by the node that they are of: a pump has a thousand."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str | None], dict[Link, AnswerEndpoint]] = {}
        #: Bytes of answers that wait for credit, and how many of them may wait on one link.
        self.waiting_bytes = self.most_waiting = 0

    def __iter__(self) -> Iterator[AnswerEndpoint]:
        return (one for (kind, _), some in self._found.items() if kind == "at" for one in some.values())

    def add(self, endpoint: AnswerEndpoint) -> None:
        for key in _keys(endpoint):
            self._found.setdefault(key, {})[endpoint.link] = endpoint

    def remove(self, endpoint: AnswerEndpoint) -> None:
        self.waiting_bytes -= endpoint.waiting_bytes
        for key in _keys(endpoint):
            del self._found[key][endpoint.link]
            if not self._found[key]:
                del self._found[key]

    def finder(self, address: str) -> FindAnswers:
        """How a node finds the link for answers: that of reply-to, else the newest on its own address."""

        def find(reply_to: str | None) -> AnswerEndpoint | None:
            named = self._found.get(("to", reply_to)) if reply_to else None
            here = named or self._found.get(("at", address), {})
            return next(reversed(here.values()), None)

        return find


def _keys(endpoint: AnswerEndpoint) -> tuple[tuple[str, str | None], ...]:
    return ("to", target_of(endpoint.link)), ("at", endpoint.address)


class RequestEndpoint(LinkEndpoint):
    """Our end of the link on which requests arrive for a node."""

    __slots__ = ("_at_length", "_find_answers", "_later", "_service")

    def __init__(
        self,
        link: Link,
        service: Service,
        find_answers: FindAnswers,
        *,
        later: Later,
        at_length: AtLength | None = None,
        path: str = "",
    ) -> None:
        """Without `at_length`, no request takes long."""
        super().__init__(link, path=path)
        self._at_length = at_length
        self._service = service
        self._find_answers = find_answers
        self._later = later

    def on_received(self, event: TransferReceived) -> None:
        try:
            if isinstance(event.state, TransactionalState):
                raise DecodeError(_NO_TRANSACTION, conditions.NOT_IMPLEMENTED)
            request = _read(bytes(whole_payload(event)))
        except DecodeError as error:
            self._take(event, Rejected(AmqpError(error.condition, error.description, {})))
            return
        if self._at_length is None or _is_brief(request):
            self._conclude(event, request, *self._answer(request))
        else:
            self._at_length(
                event, lambda: self._answer(request), lambda given: self._conclude(event, request, *given)
            )

    def _answer(self, request: NodeRequest) -> tuple[bytes | Pieces, float]:
        """The answer as it is sent, and how much later than usual."""
        answer = self._service(request)
        return _write(answer, request.asked.message_id), answer.delay

    def _conclude(
        self, event: TransferReceived, request: NodeRequest, answer: bytes | Pieces, delay: float
    ) -> None:
        self._take(event, ACCEPTED)
        if delay > 0:
            self._later(delay, lambda: self._reply(request, answer))
        else:
            self._reply(request, answer)

    def _take(self, event: TransferReceived, outcome: Accepted | Rejected) -> None:
        if not event.settled:
            self.link.settle(event.delivery_id, outcome)
        self.renew(REQUEST_CREDIT)

    def _reply(self, request: NodeRequest, answer: bytes | Pieces) -> None:
        answers = self._find_answers(request.asked.reply_to)
        if answers is not None:
            answers.send(answer)


def _is_brief(request: NodeRequest) -> bool:
    """A look at one message takes a moment: who drains a thousand queues asks that of each of them. That of
    a session may have to be looked for.
    """
    if request.size > _SHORT or request.properties.get("operation") != _PEEK:
        return False
    try:
        asked = request.body
    except DecodeError:
        return False
    return isinstance(asked, dict) and asked.get("message-count") == 1 and asked.get("session-id") is None


def _read(payload: bytes) -> NodeRequest:
    sections = scan(payload)
    properties = {str(key): value for key, value in sections.application_properties.items()}
    return NodeRequest(sections, sections.properties, properties, len(payload))


def _write(answer: Answer, correlation_id: Any) -> bytes | Pieces:
    head = encode_properties(Properties(correlation_id=correlation_id)) + encode_application_properties(
        answer.properties
    )
    if answer.is_large:
        return Pieces(head + VALUE_MARK, *encode_in_pieces(answer.body))
    return head + encode_value(answer.body)
