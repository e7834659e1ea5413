"""A message for filters to look at."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pairbus.amqp.message import Properties
from pairbus.broker.engine.filters import SqlFilter
from pairbus.broker.engine.sql.expression import compile_predicate


@dataclass
class Sample:
    properties: Properties = field(default_factory=Properties)
    application_properties: dict[str, Any] = field(default_factory=dict)
    annotations: Mapping[str, Any] = field(default_factory=dict)


def sample(**application_properties: Any) -> Sample:
    return Sample(application_properties=application_properties)


def truth_of(rule_filter: SqlFilter, message: Sample) -> bool | None:
    """What the expression gives, where a rule only asks whether it is true; None is unknown."""
    return compile_predicate(rule_filter.expression, rule_filter.parameters)(message)
