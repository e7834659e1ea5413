"""Lines of a file or of standard input as messages to send, read on a thread, taken on the event loop.

1. Plain lines are bodies. A JSON line is an object: its `body` (a text as it is, anything else as JSON) or
   `body_base64`, and whatever of `FIELDS` the message has.
2. Reading blocks, and while nothing comes the paired client must go on pinging. `Feed.take` returns what is
   there, at least one and at most `limit`: full batches from a file, from a slow source each line at once.
"""

import asyncio
import base64
import binascii
import json
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pairbus.errors import ConfigurationError
from pairbus.plumbing.json_text import parse_json

_CHUNK = 64 * 1024
# The largest message, 100 MB, in base64 or with escapes.
_LONGEST_LINE = 256 * 1024**2
# How far reading may run ahead of sending.
_AHEAD = 10_000

FedMessage = dict[str, Any]


class LineMessage(FedMessage):
    """A message that knows the line which it came from."""

    __slots__ = ("line",)

    def __init__(self, line: int, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        self.line = line


def lines_of(descriptor: int) -> Iterator[bytes]:
    """The lines of a file, without Python's buffer: a thread that waits in it breaks the program's end."""
    rest = bytearray()
    while chunk := os.read(descriptor, _CHUNK):
        *lines, last = chunk.split(b"\n")
        for line in lines:
            yield b"".join((rest, line, b"\n"))
            rest.clear()
        rest += last
        if len(rest) > _LONGEST_LINE:  # a device may have no end
            raise ConfigurationError(f"a line has more than {_LONGEST_LINE // 1024**2} MB: is this a text?")
    if rest:
        yield bytes(rest)


class Feed:
    """Messages that are read and parsed on a thread of their own."""

    def __init__(self, messages: Iterable[FedMessage]) -> None:
        """Must be made on the event loop that takes from it."""
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        self._messages: deque[FedMessage] = deque()
        self._room = threading.Semaphore(_AHEAD)
        self._ended = False
        self._error: Exception | None = None
        thread = threading.Thread(target=self._read, args=(messages,), daemon=True)
        thread.start()

    async def take(self, limit: int) -> list[FedMessage]:
        """What has been read, at least one and at most `limit`; nothing at the end. Mistakes come last."""
        while not self._messages:
            if self._ended:
                if self._error is not None:
                    raise self._error
                return []
            self._ready.clear()
            if not self._messages and not self._ended:
                await self._ready.wait()
        taken = [self._messages.popleft() for _ in range(min(limit, len(self._messages)))]
        self._room.release(len(taken))
        return taken

    def _read(self, messages: Iterable[FedMessage]) -> None:
        try:
            for message in messages:
                self._room.acquire()
                self._messages.append(message)
                if len(self._messages) == 1:  # otherwise somebody has been woken already
                    self._wake()
        except Exception as error:  # noqa: BLE001  (raised where it is taken)
            self._error = error
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ready.set)


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
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):  # the latter: in UTC it is of no year that there is
        raise _Unfit("must be a time such as 2030-01-31T08:00:00Z") from None


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
