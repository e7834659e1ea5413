"""How single settings are read and written as text; the ValueError of a reader says what would be right."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pairbus.broker.engine.settings import EntityStatus

from .duration import format_duration, parse_duration


@dataclass(frozen=True)
class Scalar:
    """The two directions of one kind of value; None leaves the element out."""

    read: Callable[[str], Any]
    write: Callable[[Any], str | None]


def read_boolean(text: str) -> bool:
    word = text.strip().lower()
    if word not in {"true", "false", "1", "0"}:
        raise ValueError(f"'{text}' is neither true nor false")
    return word in {"true", "1"}


def _read_number(text: str) -> int:
    stripped = text.strip()
    digits = stripped.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise ValueError(f"'{text[:40]}' is not a whole number")
    return int(stripped)


def _read_duration(text: str) -> float | None:
    return parse_duration(text.strip())


def _read_limited_duration(text: str) -> float:
    seconds = _read_duration(text)
    if seconds is None:
        raise ValueError("it must end; write a duration like 'PT1M'")
    return seconds


def _read_status(text: str) -> EntityStatus:
    for known in EntityStatus:
        if known.value.lower() == text.strip().lower():
            return known
    raise ValueError(f"'{text}' is none of {', '.join(known.value for known in EntityStatus)}")


def _read_forwarding(text: str) -> str | None:
    """A path, or a URL with the namespace's host: kept as written, but for the case of scheme and host."""
    stripped = text.strip()
    scheme, separator, rest = stripped.partition("://")
    if not separator:
        return stripped or None
    host, slash, path = rest.partition("/")
    return f"{scheme.lower()}://{host.lower()}{slash}{path}"


boolean = Scalar(read_boolean, lambda value: "true" if value else "false")
number = Scalar(_read_number, lambda value: None if value is None else str(value))
duration = Scalar(_read_duration, format_duration)
limited_duration = Scalar(_read_limited_duration, format_duration)
status = Scalar(_read_status, lambda value: str(value.value))
text = Scalar(str, lambda value: value or None)
forwarding = Scalar(_read_forwarding, lambda value: value)
