"""Request and answer over a pair of links: how `$cbs` and `$management` are spoken to.

A client attaches a sender and a receiver to the same node. Each message on the first is a request; its answer
goes out on the second, carrying the request's message id as correlation id *with its AMQP type* (the Python
SDK matches them by value, and a uuid that comes back as a string is never found). The Python SDK names no
reply-to; where one is named, the link that points there is taken.

A request that cannot be read has no id that an answer could carry: it is rejected, and the link lives on.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pairbus.amqp.errors import DecodeError
from pairbus.amqp.events import LinkFlowed, TransferReceived
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
from pairbus.amqp.performatives import ACCEPTED, Accepted, AmqpError, Rejected
from pairbus.amqp.pieces import Pieces, encode_in_pieces

from .endpoint import LinkEndpoint, whole_payload

# Credit for requests. A client has one or two under way; this many never make it wait.
REQUEST_CREDIT = 100
# A client that asks and asks but grants no credit for the answers loses the oldest ones, not our memory.
MOST_WAITING_BYTES = 256 * 1024
FAILED = "The broker failed on this request. Its log says why."


@dataclass(frozen=True, slots=True)
class NodeRequest:
    """One request: its id and where to answer, its application properties with plain text keys, and its body,
    decoded when asked for.
    """

    sections: MessageSections
    asked: Properties
    properties: Mapping[str, Any]
    size: int

    @property
    def body(self) -> Any:
        return self.sections.value()


@dataclass(frozen=True, slots=True)
class Answer:
    """What a node says to a request, and how much later than usual it says it; `is_large` if its body holds
    messages that are better not copied.
    """

    properties: dict[str, Any]
    body: Any = None
    delay: float = 0.0
    is_large: bool = False


Service = Callable[[NodeRequest], Answer | None]


class Node(Protocol):
    """What answers requests."""

    def __call__(self, request: NodeRequest) -> Answer: ...

    def failure(self) -> Answer:
        """What is said when something goes wrong that nobody foresaw."""
        ...


FindAnswers = Callable[[str | None], "AnswerEndpoint | None"]
Later = Callable[[float, Callable[[], None]], None]


class AnswerEndpoint(LinkEndpoint):
    """Our end of the link on which a node's answers leave."""

    __slots__ = ("_next_tag", "_spend", "_waiting", "_waiting_bytes", "address")

    def __init__(self, link: Link, address: str, *, path: str = "", spend: Callable[[int], None]) -> None:
        """`spend` is told how many bytes leave."""
        super().__init__(link, path=path)
        self.address = address
        self._spend = spend
        self._waiting: deque[bytes | Pieces] = deque()
        self._waiting_bytes = 0
        self._next_tag = 0

    def send(self, payload: bytes | Pieces) -> None:
        """Send an answer as soon as there is credit for it."""
        self._waiting.append(payload)
        self._waiting_bytes += len(payload)
        self._send_what_credit_allows()
        while self._waiting_bytes > MOST_WAITING_BYTES and len(self._waiting) > 1:
            self._waiting_bytes -= len(self._waiting.popleft())

    def on_flow(self, event: LinkFlowed) -> None:
        self._send_what_credit_allows()
        if event.drain:
            self.link.drained()

    def _send_what_credit_allows(self) -> None:
        while self._waiting and self.link.sendable > 0:
            self._next_tag += 1
            payload = self._waiting.popleft()
            self._waiting_bytes -= len(payload)
            self._spend(len(payload))
            self.link.send(payload, tag=self._next_tag.to_bytes(8, "big"), settled=True)


class RequestEndpoint(LinkEndpoint):
    """Our end of the link on which requests arrive for a node."""

    __slots__ = ("_find_answers", "_later", "_service", "_taken")

    def __init__(
        self, link: Link, service: Service, find_answers: FindAnswers, *, later: Later, path: str = ""
    ) -> None:
        super().__init__(link, path=path)
        self._service = service
        self._find_answers = find_answers
        self._later = later
        self._taken = 0

    def on_received(self, event: TransferReceived) -> None:
        try:
            request = _read(bytes(whole_payload(event)))
        except DecodeError as error:
            self._take(event, Rejected(AmqpError(error.condition, error.description, {})))
            return
        answer = self._service(request)
        self._take(event, ACCEPTED)
        if answer is not None and answer.delay > 0:
            self._later(answer.delay, lambda: self._reply(request, answer))
        elif answer is not None:
            self._reply(request, answer)

    def _take(self, event: TransferReceived, outcome: Accepted | Rejected) -> None:
        if not event.settled:
            self.link.settle(event.delivery_id, outcome)
        self._taken += 1
        if self._taken >= REQUEST_CREDIT // 2:
            self._taken = 0
            self.link.flow(REQUEST_CREDIT)

    def _reply(self, request: NodeRequest, answer: Answer) -> None:
        answers = self._find_answers(request.asked.reply_to)
        if answers is not None:
            answers.send(_write(answer, request.asked.message_id))


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
