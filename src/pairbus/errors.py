"""The root of every exception that Pairbus raises.

    Exception
     └── PairbusError
          ├── ConfigurationError    the caller's input is wrong; the text says how to mend it
          └── UnreachableError      something that the operation needs does not answer

Packages add their own classes below `PairbusError` in their `errors` module. Spark ships exceptions
between processes, so each of them must survive pickle. The default of `Exception` calls the class with
`args`, which breaks as soon as a constructor takes anything but its own text; the root therefore restores
the object without calling it.

`show_value` says how an error shows a value that is wrong, so that no error shows a secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# The longest text that errors quote: longer than any choice, shorter than any key.
_WORD = 24
# And the largest number: Python refuses to write one of some thousand digits.
_BITS = 64


def _restore(cls: type[PairbusError], args: tuple[Any, ...], state: dict[str, Any]) -> PairbusError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


class PairbusError(Exception):
    """Everything that Pairbus raises on purpose is one of these."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.args, dict(self.__dict__))


class ConfigurationError(PairbusError):
    """Input of the caller that cannot be used; the text says what would be right."""


class UnreachableError(PairbusError):
    """A service, file or process that the operation needs is not there or does not answer."""


def show_value(value: object) -> str:
    """A value for an error text. A longer text may be a secret that was put in the wrong place."""
    if isinstance(value, str) and not (len(value) <= _WORD and value.isprintable()):
        return "this text"
    if isinstance(value, int) and value.bit_length() > _BITS:
        return "this number"
    return f"this {type(value).__name__}" if isinstance(value, Mapping | list) else repr(value)
