"""The columns of a row, read from the class that defines it: parsers, tables and documents derive from them.

The class is a dataclass or a `TypedDict` with fields of plain types. `Annotated` says what else is so of one:
`Annotated[Moment, "when it was sent"]`.
"""

import types
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pairbus.plumbing.json_text import LAST_MOMENT


@dataclass(frozen=True, slots=True)
class _IsMoment:
    """Marks a number that is Unix seconds."""


#: The largest number that a table holds.
_LARGEST = 2**63 - 1
#: Unix seconds; a timestamp where a table has such.
Moment = Annotated[float, _IsMoment()]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowColumn:
    """One column. `plain` is str, int, float or bool; `choices` are all that its text may be, if not all."""

    name: str
    plain: type
    is_optional: bool = False
    is_moment: bool = False
    choices: tuple[str, ...] = ()
    meaning: str = ""

    def take(self, value: Any) -> Any:
        """A value as the row has it; ValueError if it cannot have this one."""
        if value is None and self.is_optional:
            return None
        if self.choices:
            return self.choices[self.choices.index(value)]  # ValueError, whatever it is
        of: Any = (int, float) if self.plain is float else self.plain
        if not isinstance(value, of) or (isinstance(value, bool) and self.plain is not bool):
            raise ValueError(f"{self.name} is not {value!r}")
        if of is not str and not -_LARGEST <= value <= _LARGEST:  # so is what is no number
            raise ValueError(f"{self.name} is out of range")
        if self.is_moment and not 0 <= value <= LAST_MOMENT:
            raise ValueError(f"{self.name} is no time")
        return float(value) if self.plain is float else value


_known: dict[type, Mapping[str, RowColumn]] = {}


def columns_of(row: type) -> Mapping[str, RowColumn]:
    """The columns of a row by their names, in order."""
    known = _known.get(row)
    if known is None:
        hints = get_type_hints(row, include_extras=True)
        known = _known[row] = {name: _column(name, hint) for name, hint in hints.items()}
    return known


def take_values(row: type, found: Mapping[str, Any]) -> dict[str, Any]:
    """What was read, as values of such a row; ValueError if it has others, or one that it cannot have."""
    columns = columns_of(row)
    if not found.keys() <= columns.keys():
        raise ValueError(f"{row.__name__} has no {', '.join(sorted(found.keys() - columns.keys()))}")
    return {name: columns[name].take(value) for name, value in found.items()}


def cells_of(row: type, found: Mapping[str, Any]) -> tuple[Any, ...]:
    """The values of a row in the order of the columns; None where a value does not fit."""
    return tuple(_cell(column, found.get(name)) for name, column in columns_of(row).items())


def _cell(column: RowColumn, value: Any) -> Any:
    try:
        return column.take(value)
    except ValueError:
        return None


def _column(name: str, hint: Any) -> RowColumn:
    notes: list[Any] = []
    if get_origin(hint) is Annotated:
        hint, *notes = get_args(hint)
    is_optional = get_origin(hint) in (types.UnionType, Union)
    if is_optional:
        (hint,) = (each for each in get_args(hint) if each is not types.NoneType)
    choices: tuple[str, ...] = ()
    if get_origin(hint) is Literal:
        choices, hint = get_args(hint), str
    elif issubclass(hint, StrEnum):
        choices, hint = tuple(hint), str
    return RowColumn(
        name=name,
        plain=hint,
        is_optional=is_optional,
        is_moment=_IsMoment() in notes,
        choices=choices,
        meaning=next((note for note in notes if isinstance(note, str)), ""),
    )
