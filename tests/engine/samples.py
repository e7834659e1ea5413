"""Messages and namespaces for the tests of the engine."""

import uuid
from collections.abc import Mapping
from typing import Any

import pytest

from pairbus.amqp.message import (
    Header,
    Properties,
    encode_annotations,
    encode_application_properties,
    encode_data,
    encode_header,
    encode_properties,
    scan,
)
from pairbus.amqp.types import Symbol, Timestamp
from pairbus.broker.engine.errors import Refused
from pairbus.broker.engine.message import Incoming, StoredMessage
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.queue import MessageQueue
from pairbus.broker.engine.settings import NamespaceLimits, QueueSettings
from pairbus.broker.engine.tiers import RELAXED
from pairbus.words import PING_CONTENT_TYPE

START = 1_000_000.0


def payload(
    body: bytes = b"body",
    *,
    message_id: Any = "auto",
    session_id: str | None = None,
    ttl: float | None = None,
    at: float | None = None,
    subject: str | None = None,
    content_type: str | None = None,
    properties: Mapping[str, Any] | None = None,
    annotations: Mapping[str, Any] | None = None,
    created: float | None = None,
    expires: float | None = None,
) -> bytes:
    """The bytes of a message as a client sends it."""
    sections = []
    if ttl is not None:
        sections.append(encode_header(Header(ttl=int(ttl * 1000))))
    marks: dict[Any, Any] = {Symbol(key): value for key, value in (annotations or {}).items()}
    if at is not None:
        marks[Symbol("x-opt-scheduled-enqueue-time")] = Timestamp(int(at * 1000))
    if marks:
        sections.append(encode_annotations(marks))
    standard = Properties(
        message_id=str(uuid.uuid4()) if message_id == "auto" else message_id,
        group_id=session_id,
        subject=subject,
        content_type=content_type,
        creation_time=None if created is None else Timestamp(int(created * 1000)),
        absolute_expiry_time=None if expires is None else Timestamp(int(expires * 1000)),
    )
    if standard != Properties():
        sections.append(encode_properties(standard))
    if properties:
        sections.append(encode_application_properties(dict(properties)))
    sections.append(encode_data(body))
    return b"".join(sections)


def message(body: bytes = b"body", **fields: Any) -> Incoming:
    """A message as the engine gets it."""
    return Incoming.parse(payload(body, **fields))


def ping(session_id: str | None = None) -> Incoming:
    return message(b"", content_type=PING_CONTENT_TYPE, ttl=1.0, session_id=session_id)


def namespace(limits: NamespaceLimits = RELAXED) -> Namespace:
    return Namespace("contoso", limits=limits)


def queue(**settings: Any) -> tuple[Namespace, MessageQueue]:
    """A namespace with one queue, `orders`."""
    space = namespace()
    return space, space.create_queue("orders", QueueSettings(**settings), START)


def body_of(stored: StoredMessage) -> bytes:
    return b"".join(scan(stored.body_bytes).data_sections())


def bodies(found: Any) -> list[bytes]:
    """The bodies of deliveries or of messages."""
    return [body_of(getattr(each, "message", each)) for each in found]


def application_properties(stored: StoredMessage) -> dict[str, Any]:
    return dict(scan(stored.properties_bytes + stored.application_properties_bytes).application_properties)


class refused:
    """Expects Refused with a condition, and that its text helps."""

    def __init__(self, condition: str, *, text: str = "") -> None:
        self._condition = condition
        self._text = text
        self._raises = pytest.raises(Refused)

    def __enter__(self) -> None:
        self._caught = self._raises.__enter__()

    def __exit__(self, *exception: Any) -> bool:
        swallowed = self._raises.__exit__(*exception)
        error = self._caught.value
        assert error.condition == self._condition
        assert self._text in error.description
        assert error.description.endswith(".")
        return bool(swallowed)
