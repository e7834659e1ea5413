"""Actions of subscription rules: what is changed in the copy of a message that a rule has let through.

Statements run in order and each sees what those before it did. The message itself is not touched. A value
that is unknown is written as null. A property that had a numeric type keeps it while the new number fits:
AMQP types would otherwise drift to `long` and `double`.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, TypeAlias

from pairbus.amqp import types as amqp
from pairbus.amqp.message import Properties

from .sql.expression import compile_value, find_system_property
from .sql.lexer import malformed
from .sql.parser import parse_statements
from .sql.tree import Property, Scope, SetProperty, Statement
from .system_properties import Filterable, lookup
from .typed_values import as_amqp, check_values, from_plain, to_plain


class ChangedMessage(NamedTuple):
    """The sections that an action may have changed; always new objects. Itself something to filter."""

    properties: Properties
    application_properties: dict[str, Any]
    annotations: Mapping[str, Any]


ActionStep: TypeAlias = Callable[[ChangedMessage], ChangedMessage]


@dataclass(frozen=True)
class SqlAction:
    """`SET property = value` and `REMOVE property`, one or more, separated by semicolons."""

    expression: str
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    _steps: tuple[ActionStep, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checked = check_values(self.parameters, what="The parameter")
        steps = tuple(_compile(statement, checked) for statement in parse_statements(self.expression))
        object.__setattr__(self, "parameters", checked)
        object.__setattr__(self, "_steps", steps)

    def __reduce__(self) -> tuple[Any, ...]:
        # The compiled form is made of closures, which pickle cannot carry; it is made again.
        return SqlAction, (self.expression, dict(self.parameters))

    def apply(self, message: Filterable) -> ChangedMessage:
        """Give the sections as they are after the action; the message stays as it is."""
        properties, own = replace(message.properties), dict(message.application_properties)
        changed = ChangedMessage(properties, own, message.annotations)
        for step in self._steps:
            changed = step(changed)
        return changed

    def to_dict(self) -> dict[str, Any]:
        """Plain form for a store."""
        parameters = {name: to_plain(value) for name, value in self.parameters.items()}
        return {"expression": self.expression, "parameters": parameters}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> SqlAction:
        """Give back the action whose `to_dict` this is."""
        parameters = {name: from_plain(value) for name, value in plain["parameters"].items()}
        return cls(plain["expression"], parameters)


def _compile(statement: Statement, parameters: Mapping[str, Any]) -> ActionStep:
    read = compile_value(statement.value, parameters) if isinstance(statement, SetProperty) else None
    if statement.subject.scope is Scope.SYSTEM:
        return _change_system_property(_writable_field(statement.subject), read)
    name = statement.subject.name
    return _set_user_property(name, read) if read is not None else _remove_user_property(name)


def _writable_field(subject: Property) -> str:
    found = find_system_property(subject)
    if found.field is None:
        problem = f"sys.{found.name} cannot be changed"
        raise malformed(problem, subject.position, "Set a property of your own instead.")
    return found.field


def _change_system_property(name: str, read: Callable[[ChangedMessage], Any] | None) -> ActionStep:
    def change(message: ChangedMessage) -> ChangedMessage:
        text = _text(read(message)) if read is not None else None
        if name == "content_type" and text is not None and not text.isascii():
            text = None  # a symbol, which has no other letters
        changes: dict[str, Any] = {name: text}
        return message._replace(properties=replace(message.properties, **changes))

    return change


def _set_user_property(name: str, read: Callable[[ChangedMessage], Any]) -> ActionStep:
    def change(message: ChangedMessage) -> ChangedMessage:
        properties = message.application_properties
        value = as_amqp(read(message))
        key = lookup(properties, name)
        if key is None:
            properties[name] = value
        else:
            properties[key] = _keep_type(properties[key], value)
        return message

    return change


def _remove_user_property(name: str) -> ActionStep:
    def change(message: ChangedMessage) -> ChangedMessage:
        key = lookup(message.application_properties, name)
        if key is not None:
            del message.application_properties[key]
        return message

    return change


def _text(value: Any) -> str | None:
    """System properties are strings: numbers and uuids are written as text, anything else clears them."""
    if isinstance(value, str):
        return str(value)
    readable = isinstance(value, (int, float, uuid.UUID)) and not isinstance(value, bool)
    return str(value) if readable else None


_RANGES: Final[dict[type, tuple[int, int]]] = {
    amqp.Byte: (-(2**7), 2**7 - 1),
    amqp.Short: (-(2**15), 2**15 - 1),
    amqp.Int: (-(2**31), 2**31 - 1),
    amqp.UByte: (0, 2**8 - 1),
    amqp.UShort: (0, 2**16 - 1),
    amqp.UInt: (0, 2**32 - 1),
    amqp.ULong: (0, 2**64 - 1),
}


def _keep_type(old: Any, new: Any) -> Any:
    if type(new) is int and type(old) in _RANGES:
        lowest, highest = _RANGES[type(old)]
        return type(old)(new) if lowest <= new <= highest else new
    if type(new) in (int, float) and isinstance(old, float) and math.isfinite(new):
        return type(old)(new)
    return new
