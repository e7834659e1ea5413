"""The root of every exception that Pairbus raises.

    Exception
     └── PairbusError
          ├── ConfigurationError    the caller's input is wrong; the text says how to mend it
          └── UnreachableError      something that the operation needs does not answer

Packages add their own classes below `PairbusError` in their `errors` module. Spark ships exceptions
between processes, so each of them must survive pickle. The default of `Exception` calls the class with
`args`, which breaks as soon as a constructor takes anything but its own text; the root therefore restores
the object without calling it.
"""

from __future__ import annotations

from typing import Any

__all__ = ["ConfigurationError", "PairbusError", "UnreachableError"]


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
