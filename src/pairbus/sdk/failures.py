"""What an exception of the SDK tells, in the words of the rules: see `pairbus.pairing.failures`."""

import re
from collections.abc import Iterator

from pairbus.pairing.failures import Failure

from .privates import was_encoding, was_opening, wrapped_by

_CONDITION = re.compile(r"Error condition: ((?:amqp|com\.microsoft):[a-z:-]+)")
_STATUS = re.compile(r"Status Code: ([0-9]{3})", re.IGNORECASE)
_WAIT = re.compile(r"wait\s+(?:for\s+)?([0-9]+(?:\.[0-9]+)?)\s*s", re.IGNORECASE)
_SECRET = re.compile(
    r"(?i)\b(SharedAccessKey|SharedAccessSignature|sig|token|secret|password)\b(\s*[=:]\s*)[^\s;&,]+"
)
# Code of a throttled namespace, and the wait that the service documents for it.
_THROTTLE_CODE, _THROTTLE_CODE_WAIT = "50009", 2.0
# Nobody waits longer because of a number in a text.
_LONGEST_WAIT = 300.0
_TEXT_LIMIT = 300
_CHAIN_LIMIT = 16


def describe(error: BaseException) -> Failure:
    """A description of an exception of the SDK, of the socket below it or of our own deadline."""
    chain = list(_chain(error))
    text = str(error)
    return Failure(
        classes=_class_names(error),
        causes=frozenset(name for link in chain for name in _class_names(link)),
        condition=_condition_of(chain, text),
        status=_status_of(chain, text),
        is_encoding=any(map(was_encoding, chain)),
        wait=_asked_wait(text),
        text=_presentable(_told(chain, text)),
        is_opening=any(map(was_opening, chain)),
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it wraps."""
    seen: set[int] = set()
    pending = [error]
    while pending and len(seen) < _CHAIN_LIMIT:
        link = pending.pop(0)
        if id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        pending.extend(wrapped_by(link))


def _told(chain: list[BaseException], text: str) -> str:
    """What the error says, and why a token was refused, which the SDK tells in what it wraps alone."""
    for link in chain:
        reason = getattr(link, "status_description", None)
        if isinstance(reason, bytes):
            reason = reason.decode("utf-8", "replace")
        if isinstance(reason, str) and reason not in text:
            return f"{reason} ({text})"
    return text


def _class_names(error: BaseException) -> tuple[str, ...]:
    return tuple(cls.__name__ for cls in type(error).__mro__ if cls is not object)


def _condition_of(chain: list[BaseException], text: str) -> str | None:
    for link in chain:
        condition = getattr(link, "condition", None)
        # The SDK's conditions are an enumeration of bytes.
        condition = getattr(condition, "value", condition)
        if isinstance(condition, bytes):
            condition = condition.decode("ascii", "replace")
        if isinstance(condition, str):
            return condition
    # Answers to management requests, such as scheduling, carry it in their text alone.
    match = _CONDITION.search(text)
    return match[1] if match else None


def _status_of(chain: list[BaseException], text: str) -> int | None:
    for link in chain:
        status = getattr(link, "status_code", None)
        if isinstance(status, int):
            return status
    match = _STATUS.search(text)
    return int(match[1]) if match else None


def _presentable(text: str) -> str:
    """One line, without secrets, not too long."""
    line = _SECRET.sub(r"\1\2***", " ".join(text.split()))
    return line if len(line) <= _TEXT_LIMIT else line[: _TEXT_LIMIT - 1] + "…"


def _asked_wait(text: str) -> float | None:
    match = _WAIT.search(text)
    if match:
        return min(float(match[1]), _LONGEST_WAIT)
    return _THROTTLE_CODE_WAIT if _THROTTLE_CODE in text else None
