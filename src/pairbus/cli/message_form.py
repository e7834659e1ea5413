"""A message as a line of JSON: readable, and exact.

1. `amqp` holds the encoded message as the namespace gave it, in base64. It alone is what an import sends, so
   that properties, kinds of bodies and types are what they were, to the byte.
2. Everything beside it is made from it, for people and for `jq`. A line whose words say another thing than
   its `amqp` was edited, and is refused: nobody would notice that the edit was in vain.
3. What a namespace writes on a message (number, times, state, how often it was delivered), or a pump on that
   behalf, is shown, and is not sent: the next namespace writes its own.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pairbus import words
from pairbus.amqp.errors import DecodeError
from pairbus.amqp.message import (
    MessageSections,
    encode_annotations,
    encode_application_properties,
    encode_delivery_annotations,
    encode_header,
    scan,
)
from pairbus.amqp.types import Array, Described, Timestamp
from pairbus.errors import ConfigurationError
from pairbus.pairing.envelope import ACCOUNTED
from pairbus.pairing.names import id_text
from pairbus.plumbing.json_text import parse_json

_STATES = {1: "deferred", 2: "scheduled"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Properties by the names that the Python SDK has for them.
_PROPERTIES = {
    "message_id": "message_id",
    "session_id": "group_id",
    "correlation_id": "correlation_id",
    "subject": "subject",
    "content_type": "content_type",
    "to": "to",
    "reply_to": "reply_to",
    "reply_to_session_id": "reply_to_group_id",
}


def describe_message(sections: MessageSections) -> dict[str, Any]:
    """A peeked message in plain words, without what it lacks; its body is the last of them."""
    annotations = {str(key): value for key, value in sections.annotations.items()}
    properties, header = sections.properties, sections.header
    state = annotations.get(words.MESSAGE_STATE)
    described: dict[str, Any] = {
        "sequence_number": _readable(annotations.get(words.SEQUENCE_NUMBER, 0)),
        "state": _STATES.get(state, "active") if isinstance(state, int) else "active",
        "enqueued_time_utc": _moment(annotations.get(words.ENQUEUED_TIME)),
        "scheduled_enqueue_time_utc": _moment(annotations.get(words.SCHEDULED_TIME)),
        "delivery_count": header.delivery_count or None,
        "time_to_live": None if header.ttl is None else header.ttl / 1000,
        "partition_key": _readable(annotations.get(words.PARTITION_KEY)),
        "dead_letter_source": _readable(annotations.get(words.DEAD_LETTER_SOURCE)),
    }
    for name, field in _PROPERTIES.items():
        value = getattr(properties, field)
        described[name] = id_text(value) if value is not None else None
    described["application_properties"] = _readable(sections.application_properties) or None
    described = {name: value for name, value in described.items() if value is not None}
    return {**described, "size": len(sections.payload), **_body(sections)}


def write_line(sections: MessageSections) -> str:
    """The message as one line of an export."""
    exact = base64.b64encode(sections.payload).decode("ascii")
    return json.dumps({**describe_message(sections), "amqp": exact}, ensure_ascii=False) + "\n"


def read_line(line: bytes, number: int) -> MessageSections:
    """The message of a line of an export; ConfigurationError if it is none, or was edited."""
    where = f"line {number}"
    try:
        found = parse_json(line)
    except (ValueError, RecursionError):
        rest = f". The lines before it can be imported by themselves: head -n {number - 1}"
        raise ConfigurationError(
            f"{where} is not JSON: the file was cut off there, or is no export{rest if number > 1 else ''}"
        ) from None
    try:
        sections = scan(base64.b64decode(found.pop("amqp"), validate=True))
        told = parse_json(json.dumps(describe_message(sections)))
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error, RecursionError, DecodeError):
        raise ConfigurationError(
            f"{where} is no line of an export: it has no message in `amqp`. For messages of your own there "
            "is `pairbus messages send --json-lines`"
        ) from None
    edited = sorted(name for name in {**told, **found} if told.get(name) != found.get(name))
    if edited:
        raise ConfigurationError(
            f"{where}: {', '.join(edited)} says another thing than `amqp`, which is what would be sent. Take "
            "the edit back, or send the message anew with `pairbus messages send --json-lines`"
        )
    return sections


def as_it_was_sent(sections: MessageSections) -> bytes:
    """The message to send: without what the namespace has written on it, and otherwise to the byte."""
    kept = {key: value for key, value in sections.annotations.items() if str(key) not in words.POSTMARKS}
    delivery = {
        key: value for key, value in sections.delivery_annotations.items() if str(key) != words.LOCK_TOKEN
    }
    return b"".join(
        (
            encode_header(replace(sections.header, delivery_count=0)) if sections.header_bytes else b"",
            encode_delivery_annotations(delivery) if delivery else b"",
            encode_annotations(kept) if kept else b"",
            sections.properties_bytes,
            _without_mark(sections),
            sections.body_bytes,
        )
    )


def _without_mark(sections: MessageSections) -> bytes:
    """Deliveries are counted anew, and none of them is accounted for."""
    told = sections.application_properties_bytes
    if ACCOUNTED.encode() not in told:
        return told
    own = {key: value for key, value in sections.application_properties.items() if key != ACCOUNTED}
    return encode_application_properties(own) if own else b""


def _body(sections: MessageSections) -> dict[str, Any]:
    """Text as it is, other bytes in base64; of values and sequences what JSON can say of them. A namespace
    passes bodies on and does not read them, so that some cannot be read.
    """
    if sections.body_kind == "data":
        data = sections.data()
        try:
            return {"body": data.decode()}
        except UnicodeDecodeError:
            return {"body_base64": base64.b64encode(data).decode("ascii")}
    if sections.body_kind == "value":
        with suppress(DecodeError):
            return {"body_value": _readable(sections.value())}
    return {"body_kind": sections.body_kind}


def _moment(milliseconds: Any) -> str | None:
    if not isinstance(milliseconds, int):
        return None
    try:
        return (_EPOCH + timedelta(milliseconds=milliseconds)).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return str(int(milliseconds))


def _readable(value: Any) -> Any:
    """A value as JSON has it; its AMQP type is in `amqp` alone."""
    if isinstance(value, Timestamp):
        return _moment(value)
    if value is None or isinstance(value, bool | str):
        return value if value is None or isinstance(value, bool) else str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if value == value and abs(value) != float("inf") else str(float(value))
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Described):
        return _readable(value.value)
    if isinstance(value, Mapping):
        return {str(_readable(key)): _readable(item) for key, item in value.items()}
    if isinstance(value, list | tuple | Array):
        return [_readable(item) for item in value]
    return str(value)
