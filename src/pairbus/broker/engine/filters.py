"""Filters of subscription rules.

A filter is a frozen value: it can be compared, pickled, and turned into a plain dict for a store and back.
A wrong one cannot be made: its constructor refuses with the condition that the service has for bad arguments.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeAlias

from .errors import bad_argument
from .sql.expression import Predicate, compile_predicate
from .system_properties import Filterable, identifier_text, lookup
from .typed_values import check_values, equal, from_plain, to_plain


@dataclass(frozen=True)
class TrueFilter:
    """Takes every message."""

    expression: ClassVar[str] = "1=1"

    def matches(self, message: Filterable) -> bool:
        """Whether the subscription takes the message."""
        del message
        return True

    def to_dict(self) -> dict[str, Any]:
        """Plain form for a store."""
        return {"kind": "true"}


@dataclass(frozen=True)
class FalseFilter:
    """Takes no message."""

    expression: ClassVar[str] = "1=0"

    def matches(self, message: Filterable) -> bool:
        """Whether the subscription takes the message."""
        del message
        return False

    def to_dict(self) -> dict[str, Any]:
        """Plain form for a store."""
        return {"kind": "false"}


#: What is compared: field of the filter -> field of the AMQP properties. In the order of the wire.
CORRELATED: Final = {
    "correlation_id": "correlation_id",
    "message_id": "message_id",
    "to": "to",
    "reply_to": "reply_to",
    "subject": "subject",
    "session_id": "group_id",
    "reply_to_session_id": "reply_to_group_id",
    "content_type": "content_type",
}


@dataclass(frozen=True, kw_only=True)
class CorrelationFilter:
    """Takes messages with all these values, case included; numbers are the same whatever their types."""

    correlation_id: str | None = None
    message_id: str | None = None
    to: str | None = None
    reply_to: str | None = None
    subject: str | None = None
    session_id: str | None = None
    reply_to_session_id: str | None = None
    content_type: str | None = None
    properties: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        checked = check_values(self.properties, what="The property")
        object.__setattr__(self, "properties", checked)
        if not checked and not self.fields():
            raise bad_argument("A correlation filter needs a field or a property to compare.")

    def fields(self) -> dict[str, str]:
        """The fields that are set, by the names they have here."""
        found = {name: getattr(self, name) for name in CORRELATED}
        return {name: value for name, value in found.items() if value is not None}

    def matches(self, message: Filterable) -> bool:
        """Whether the subscription takes the message."""
        for name, source in CORRELATED.items():
            wanted = getattr(self, name)
            if wanted is not None and identifier_text(getattr(message.properties, source)) != wanted:
                return False
        properties = message.application_properties
        return all(_has(properties, name, wanted) for name, wanted in self.properties.items())

    def to_dict(self) -> dict[str, Any]:
        """Plain form for a store."""
        properties = {name: to_plain(value) for name, value in self.properties.items()}
        return {"kind": "correlation", "fields": self.fields(), "properties": properties}


def _has(properties: Mapping[str, Any], name: str, wanted: object) -> bool:
    key = lookup(properties, name)
    if key is None:
        return False
    found = properties[key]
    return bool(equal(found, wanted)) if wanted is not None else found is None


@dataclass(frozen=True)
class SqlFilter:
    """Takes the messages for which an SQL expression is true. Parameters are named with or without `@`."""

    expression: str
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    _predicate: Predicate = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checked = check_values(self.parameters, what="The parameter")
        object.__setattr__(self, "parameters", checked)
        object.__setattr__(self, "_predicate", compile_predicate(self.expression, checked))

    def __reduce__(self) -> tuple[Any, ...]:
        # The compiled form is a closure, which pickle cannot carry; it is made again.
        return SqlFilter, (self.expression, dict(self.parameters))

    def matches(self, message: Filterable) -> bool:
        """Whether the subscription takes the message: the expression must be true, not unknown."""
        return self._predicate(message) is True

    def to_dict(self) -> dict[str, Any]:
        """Plain form for a store."""
        parameters = {name: to_plain(value) for name, value in self.parameters.items()}
        return {"kind": "sql", "expression": self.expression, "parameters": parameters}


Filter: TypeAlias = TrueFilter | FalseFilter | CorrelationFilter | SqlFilter


def filter_from_dict(plain: Mapping[str, Any]) -> Filter:
    """Give back the filter whose `to_dict` this is."""
    match plain["kind"]:
        case "true":
            return TrueFilter()
        case "false":
            return FalseFilter()
        case "correlation":
            return CorrelationFilter(**plain["fields"], properties=_values(plain["properties"]))
        case "sql":
            return SqlFilter(plain["expression"], _values(plain["parameters"]))
        case kind:
            raise bad_argument(f"There is no filter of kind {kind!r}.")


def _values(plain: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {name: from_plain(value) for name, value in plain.items()}
