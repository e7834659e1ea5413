"""A table of a TOML file, read strictly: whatever is wrong is told with its place and the nearest name."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any

from pairbus.errors import ConfigurationError

__all__ = ["Table", "nearest"]

_LARGEST = 1e9


class Table:
    """One table and the place where it stands."""

    def __init__(self, values: Any, where: str, *, known: Collection[str]) -> None:
        """Refuse what is no table, and keys that are not known."""
        if not isinstance(values, Mapping):
            raise ConfigurationError(f"{where}: must be a table")
        for key in values:
            if key not in known:
                raise ConfigurationError(f"{where}: {key!r} is not known{nearest(key, known)}")
        self._values = values
        self.where = where

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def fail(self, text: str) -> ConfigurationError:
        """An error with the place of this table."""
        return ConfigurationError(f"{self.where}: {text}")

    def raw(self, key: str, default: Any) -> Any:
        """A value as it is."""
        return self._values.get(key, default)

    def text(self, key: str, default: str | None = None) -> str:
        """A text that is not empty; needed unless there is a default."""
        value = self._values.get(key, default)
        if value is None:
            raise self.fail(f"{key} is missing")
        if not isinstance(value, str) or not value.strip():
            raise self.fail(f"{key} must be a text that is not empty, not {value!r}")
        return value

    def choice(self, key: str, choices: Collection[str], *, default: str) -> str:
        """One of some words."""
        value = self.text(key, default)
        if value not in choices:
            raise self.fail(f"{key} must be one of {', '.join(choices)}, not {value!r}")
        return value

    def flag(self, key: str, *, default: bool = False) -> bool:
        """true or false."""
        value = self._values.get(key, default)
        if not isinstance(value, bool):
            raise self.fail(f"{key} must be true or false, not {value!r}")
        return value

    def whole(self, key: str, default: int, *, low: int, high: int) -> int:
        """A whole number within bounds."""
        value = self._values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.fail(f"{key} must be a whole number, {low} to {high}, not {value!r}")
        return value

    def number(
        self, key: str, default: float | None, *, low: float = 0.0, high: float = _LARGEST
    ) -> float | None:
        """A number within bounds; None if it is not given and has no default."""
        value = self._values.get(key, default)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            upper = " and up" if high == _LARGEST else f" to {high:g}"
            raise self.fail(f"{key} must be a number, {low:g}{upper}, not {value!r}")
        return float(value)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts, each of them once."""
        value = self._values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(one, str) and one.strip() for one in value):
            raise self.fail(f"{key} must be a list of texts, not {value!r}")
        if len({one.lower() for one in value}) < len(value):
            raise self.fail(f"{key} names something twice")
        return tuple(value)


def nearest(name: str, known: Collection[str]) -> str:
    """The end of a sentence that says which name was perhaps meant, or which there are."""
    found = difflib.get_close_matches(name, known, n=1)
    if found:
        return f"; did you mean {found[0]!r}?"
    return f"; there is {', '.join(sorted(known))}" if known else ""
