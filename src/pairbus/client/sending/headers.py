"""How long all that comes before a message's body may be. Beyond that the service answers as if it had failed
itself, and such an answer counts: one message would fail an entity over, and then empty the rotation.

So nothing goes to the backlog that is too long, for the primary or with its envelope; and where the primary
has failed like that, the messages are looked at before it is believed. A healthy send costs nothing more.
"""

from collections.abc import Iterable
from typing import Any

from azure.servicebus.exceptions import MessageSizeExceededError

from pairbus.amqp.message import scan
from pairbus.pairing.errors import MessageTooLargeForBacklog
from pairbus.pairing.headroom import MAX_OVERHEAD
from pairbus.sdk.privates import encode_by_sdk

from .message import Message, message_id_of, raw_of

#: What the service takes: of one property, and of all that comes before the body.
PROPERTY_LIMIT, HEADER_LIMIT = 32_768, 65_536
# So many characters and numbers are not too long in any encoding: the longest takes four bytes for one.
_FEW = (PROPERTY_LIMIT - MAX_OVERHEAD) // 4
_NUMBER = 16  # more than what any other value takes, a name and a value of the service's own apart


def check_headers(messages: Iterable[Message]) -> None:
    """Raise MessageSizeExceededError for what the service would not take."""
    for message in messages:
        size, longest = _sizes(message)
        if size > HEADER_LIMIT:
            raise _too_long(f"The properties of the message have {size} bytes; all may have {HEADER_LIMIT}")
        if longest > PROPERTY_LIMIT:
            raise _too_long(f"A property of the message has {longest} bytes; each may have {PROPERTY_LIMIT}")


def check_headers_for_backlog(path: str, message: Message) -> None:
    """Raise MessageTooLargeForBacklog for what has no room for an envelope."""
    size = _sizes(message)[0] + MAX_OVERHEAD
    if size > HEADER_LIMIT:
        raise MessageTooLargeForBacklog(
            path, message_id=message_id_of(message), size=size, limit=HEADER_LIMIT, is_header=True
        )


def _sizes(message: Message) -> tuple[int, int]:
    """The bytes before the body of a message whose properties are many or long, and those of the longest
    property; nothing for nearly every one.
    """
    raw = raw_of(message)
    maps = (raw.application_properties, raw.annotations, raw.delivery_annotations)
    named = () if raw.properties is None else vars(raw.properties).values()
    characters = sum(map(_characters, named))
    for one in maps:
        if one:
            characters += sum(_characters(name) + _characters(value) for name, value in one.items())
    if characters <= _FEW:
        return 0, 0
    try:
        sections = scan(encode_by_sdk(raw))
        values = (*sections.property_values, *sections.application_properties.values())
        return len(sections.payload) - len(sections.body_bytes), max(map(_length, values), default=0)
    except Exception:  # noqa: BLE001 - what cannot be written, or read again, is refused for that elsewhere
        return 0, 0


def _characters(value: Any) -> int:
    if isinstance(value, dict | list):  # of a type that is told, or nested: it is measured
        return _FEW + 1
    return len(value) if isinstance(value, str | bytes) else _NUMBER


def _length(value: Any) -> int:
    if isinstance(value, str):
        return len(value.encode())
    return len(value) if isinstance(value, bytes) else 0


def _too_long(text: str) -> MessageSizeExceededError:
    return MessageSizeExceededError(message=f"{text} at most. Put what is long into the body.")
