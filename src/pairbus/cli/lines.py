"""Lines of a file or of standard input as messages to send.

Plain lines are bodies. A JSON line is an object: its `body` (a text as it is, anything else as JSON) or
`body_base64`, and whatever of `FIELDS` the message has.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pairbus.errors import ConfigurationError
from pairbus.plumbing.json_text import parse_json

from .feed import LineMessage

# What a timedelta can hold, and more than any message lives.
_LONGEST_DURATION = 1_000_000_000


class _Unfit(ValueError):
    """A value that its field cannot have."""


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _Unfit("must be a text")
    _encoded(value)
    return value


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # JSON can write one half of a pair, UTF-8 cannot
        raise _Unfit("has half a character, which is no text in UTF-8") from None


def _properties(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(item, str | int | float) for item in value.values()):
        raise _Unfit("must be an object of texts, numbers and truth values")
    for text in (*value, *(item for item in value.values() if isinstance(item, str))):
        _encoded(text)
    try:
        return {name: property_value(item) for name, item in value.items()}
    except OverflowError as error:
        raise _Unfit(f"has a number that is too large: {error}") from None


def property_value(value: Any) -> Any:
    """A property as the SDK needs it: whole numbers beyond 32 bits have to be told their type."""
    if not isinstance(value, int) or -(2**31) <= value < 2**31:
        return value
    if not -(2**63) <= value < 2**63:
        raise OverflowError("a whole number has 64 bits")
    return {"TYPE": "LONG", "VALUE": value}


def _duration(value: Any) -> timedelta:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _LONGEST_DURATION:
        raise _Unfit(f"must be a number of seconds above 0 and at most {_LONGEST_DURATION:,}")
    return timedelta(seconds=value)


def _moment(value: Any) -> datetime:
    try:
        moment = datetime.fromisoformat(_text(value))
    except ValueError:
        raise _Unfit("must be a time such as 2030-01-31T08:00:00Z") from None
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


#: What an object may have besides its body, and how each value is read.
FIELDS: Mapping[str, Callable[[Any], Any]] = {
    "message_id": _text,
    "session_id": _text,
    "correlation_id": _text,
    "subject": _text,
    "content_type": _text,
    "to": _text,
    "reply_to": _text,
    "reply_to_session_id": _text,
    "partition_key": _text,
    "application_properties": _properties,
    "time_to_live": _duration,
    "scheduled_enqueue_time_utc": _moment,
}


def read_plain_lines(lines: Iterable[bytes], *, session: str | None = None) -> Iterator[LineMessage]:
    """One message a line, its body without the line feed; empty lines are messages too."""
    for number, line in enumerate(lines, start=1):
        message = LineMessage(number, {"body": line.removesuffix(b"\n").removesuffix(b"\r")})
        if session is not None:
            message["session_id"] = session
        yield message


def read_json_lines(lines: Iterable[bytes], *, session: str | None = None) -> Iterator[LineMessage]:
    """One object a line; empty lines are passed over. A mistake is told with the number of its line."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            message = LineMessage(number, _parse(line))
        except _Unfit as error:
            raise ConfigurationError(f"line {number}: {error}") from None
        if session is not None:
            message.setdefault("session_id", session)
        yield message


def _parse(line: bytes) -> dict[str, Any]:
    try:
        found = parse_json(line)
    except ValueError:
        raise _Unfit("is not JSON") from None
    if not isinstance(found, dict):
        raise _Unfit("is not a JSON object")
    message = {"body": _body(found)}
    for name, value in found.items():
        if name not in FIELDS:
            known = ", ".join(["body", "body_base64", *FIELDS])
            raise _Unfit(f"has a field {name!r}; a message has {known}")
        try:
            message[name] = FIELDS[name](value)
        except _Unfit as error:
            raise _Unfit(f"{name} {error}") from None
    return message


def _body(found: dict[str, Any]) -> bytes:
    """Take the body out of an object."""
    if "body_base64" in found:
        if "body" in found:
            raise _Unfit("has a body and a body_base64")
        try:
            return base64.b64decode(_text(found.pop("body_base64")), validate=True)
        except (binascii.Error, _Unfit):
            raise _Unfit("body_base64 must be in base64") from None
    if "body" not in found:
        raise _Unfit('has no body; write it as "body", or as "body_base64"')
    body = found.pop("body")
    return _encoded(body if isinstance(body, str) else json.dumps(body, ensure_ascii=False))
