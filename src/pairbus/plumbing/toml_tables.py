"""TOML read table by table: every mistake is noted with its place, and the reading goes on.

1. A `TomlTable` is asked for each key that it may have. What is asked for is what is known: a key that
   nobody has asked for in the end is a mistake, told with the nearest one that was.
2. A value that is wrong is noted, and the default is given in its place. So one pass finds all mistakes.
3. Tables hold their mistakes; those of the tables below follow. `refuse` raises if there are any: call it
   before you build something of values that may be stand-ins.
4. A place is written as TOML writes it: `[pairs.shop.options]`, `[[entity]] 2`. Arrays count from 1.
"""

from __future__ import annotations

import difflib
import json
import re
import sys
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pairbus.errors import ConfigurationError, show_value

from .files import read_given

_D = TypeVar("_D")
#: Keys, and numbers of tables in arrays.
TomlPlace = tuple[str | int, ...]
# Any number that a float can hold.
_LARGEST = sys.float_info.max


@dataclass(frozen=True, slots=True)
class Mistake:
    """What is wrong in a table: with the value at `value`, which `text` names, or with the whole."""

    table: TomlPlace
    value: TomlPlace
    text: str

    @property
    def place(self) -> str:
        """The whole place: `pairs.shop.options.failover_interval`, `entity[2].rate`."""
        return _dotted((*self.table, *self.value))

    def __str__(self) -> str:
        return f"{write_heading(self.table)}: {self.text}" if self.table else self.text


class TomlTable:
    """One table of a document that is called `where` in errors."""

    def __init__(
        self, values: Mapping[str, Any], *, where: str, path: TomlPlace = (), trouble: str | None = None
    ) -> None:
        """`trouble` says why there are no values: what is missing then is no mistake of its own."""
        self.where = where
        self.path = path
        self._values = values
        self._trouble = trouble
        self._asked: dict[str, None] = {}
        self._noted: list[Mistake] = []
        self._below: list[TomlTable] = []

    def __contains__(self, key: str) -> bool:
        return key in self._values

    @property
    def mistakes(self) -> Iterator[Mistake]:
        """All mistakes, of this table and those below it. Ask when everything has been taken."""
        if self._trouble is not None:
            yield Mistake(self.path, (), self._trouble)
            return
        for key in self._values:
            if key not in self._asked:
                yield Mistake(self.path, (key,), f"{key!r} is not known{name_nearest(key, self._asked)}")
        yield from self._noted
        for table in self._below:
            yield from table.mistakes

    def note(self, text: str, *value: str | int) -> None:
        """Note a mistake, with the value that it is about if it is about one."""
        self._noted.append(Mistake(self.path, value, text))

    def refuse(self) -> None:
        """Raise `ConfigurationError` with every mistake that there is, a line for each."""
        if found := list(self.mistakes):
            raise ConfigurationError("\n".join(f"{self.where}: {mistake}" for mistake in found))

    def need(self, *keys: str) -> None:
        """Note those of the keys that are not there."""
        for key in keys:
            self._asked[key] = None
            if key not in self._values:
                self.note(f"{key} is missing", key)

    def take(self, key: str, default: Any, accepts: Callable[[Any], bool], allowed: str) -> Any:
        """A value of any form; `allowed` says in words what is accepted."""
        self._asked[key] = None
        if key not in self._values:
            return default
        value = self._values[key]
        if accepts(value):
            return value
        self.note(f"{_dotted((key,))} must be {allowed}, not {show_value(value)}", key)
        return default

    def text(self, key: str, default: _D) -> str | _D:
        """A text that is not empty."""
        found: str | _D = self.take(key, default, _is_text, "a text that is not empty")
        return found

    def choice(self, key: str, words: Collection[str], default: _D) -> Any | _D:
        """One of some words."""
        allowed = " or ".join(f'"{word}"' for word in words)
        return self.take(key, default, lambda value: isinstance(value, str) and value in words, allowed)

    def flag(self, key: str) -> bool:
        """A boolean, false by default."""
        return bool(self.take(key, False, lambda value: isinstance(value, bool), "true or false"))

    def whole(self, key: str, default: int, *, low: int, high: int) -> int:
        """A whole number within bounds."""
        accepts = _bounded(int, low, high)
        return int(self.take(key, default, accepts, f"a whole number, {low} to {high}"))

    def number(self, key: str, default: _D, *, low: float = 0.0, high: float = _LARGEST) -> float | _D:
        """A number within bounds; durations are numbers of seconds."""
        upper = " and up" if high == _LARGEST else f" to {high:g}"
        accepts = _bounded((int, float), low, high)
        found = self.take(key, default, accepts, f"a number, {low:g}{upper}")
        return float(found) if isinstance(found, int) else found

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of distinct texts, empty by default."""
        found = self.take(key, [], lambda value: isinstance(value, list), "a list of texts")
        for number, one in enumerate(found, start=1):
            if not _is_text(one):
                text = f"{key}[{number}] must be a text that is not empty, not {show_value(one)}"
                self.note(text, key, number)
        texts = tuple(one for one in found if _is_text(one))
        if len({one.lower() for one in texts}) < len(texts):
            self.note(f"{key} names something twice", key)
        return texts

    def checked(
        self, known: Collection[str], find_mistake: Callable[[str, Any], str | None]
    ) -> dict[str, Any]:
        """The values that are right by the caller's own rule, which says in words what is wrong with one."""
        self._asked.update(dict.fromkeys(known))
        good = {}
        for key in self._values:
            if key not in known:
                continue
            if (mistake := find_mistake(key, self._values[key])) is None:
                good[key] = self._values[key]
            else:
                self.note(mistake, key)
        return good

    def table(self, key: str) -> TomlTable:
        """The table of this name; an empty one if there is none."""
        return self._descend(self.take(key, {}, _is_table, "a table"), key)

    def tables(self, key: str) -> dict[str, TomlTable]:
        """The tables below the one of this name, by their own names, which are the user's."""
        above = self.table(key)
        found = {name: above.table(name) for name in above._values}
        return {name: table for name, table in found.items() if _is_table(above._values[name])}

    def rows(self, key: str) -> list[TomlTable]:
        """The tables of an array, `[[key]]`; anything else in it is noted as a mistake."""
        written = f"a list of tables, [[{_dotted((*self.path, key))}]] once for each"
        found = self.take(key, [], lambda value: isinstance(value, list), written)
        rows = []
        for number, row in enumerate(found, start=1):
            if _is_table(row):
                rows.append(self._descend(row, key, number))
            else:
                self.note(f"{key}[{number}] must be a table, not {show_value(row)}", key, number)
        return rows

    def _descend(self, values: Mapping[str, Any], *path: str | int) -> TomlTable:
        table = TomlTable(values, where=self.where, path=(*self.path, *path))
        self._below.append(table)
        return table


def write_heading(table: TomlPlace) -> str:
    """A table as TOML writes it; empty for the top of the file."""
    if not table:
        return ""
    *array, last = table
    return f"[[{_dotted(array)}]] {last}" if isinstance(last, int) else f"[{_dotted(table)}]"


def parse_toml(text: str, *, where: str) -> TomlTable:
    """The top of a document. That it is no TOML is a mistake like any other, and then the only one."""
    try:
        return TomlTable(tomllib.loads(text), where=where)
    except (ValueError, RecursionError) as error:  # an endless number, and a list in a list in a list ...
        return TomlTable({}, where=where, trouble=f"is not TOML: {error}")


def parse_value(text: str) -> Any:
    """A value as TOML has it, or else a plain text: `30`, `true`, `hold`."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def read_text(file: Path, *, advice: str = "") -> str:
    """The text of a file; `advice` goes to those who have none."""
    try:
        return read_given(file).decode("utf-8-sig")  # as editors of Windows begin a file
    except FileNotFoundError:
        raise ConfigurationError(f"{file}: there is no such file{advice}") from None
    except OSError as error:
        raise ConfigurationError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{file}: cannot be read: it is not UTF-8") from None


def name_nearest(name: str, known: Collection[str]) -> str:
    """The end of a sentence that says which name was perhaps meant, or which there are."""
    found = difflib.get_close_matches(name, known, n=1)
    if found:
        return f"; did you mean {found[0]!r}?"
    return f"; there are: {', '.join(known) or 'none'}"


def _dotted(place: Collection[str | int]) -> str:
    text = ""
    for part in place:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            bare = re.fullmatch(r"[A-Za-z0-9_-]+", part)
            text += ("." if text else "") + (part if bare else json.dumps(part, ensure_ascii=False))
    return text


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_table(value: object) -> bool:
    return isinstance(value, Mapping)


def _bounded(kind: Any, low: float, high: float) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kind) and not isinstance(value, bool) and low <= value <= high
