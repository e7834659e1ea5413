"""Rules as the management node speaks of them: described lists, as the JavaScript SDK sends and expects them.

The numbers are Microsoft's. Those of filters have one zero fewer than the others; that is no slip of ours.
"""

from typing import Any

from pairbus.amqp.types import Described, Timestamp, ULong
from pairbus.broker.engine import filters
from pairbus.broker.engine.actions import SqlAction
from pairbus.broker.engine.errors import bad_argument
from pairbus.broker.engine.rules import Rule

from .wire import milliseconds

_RULE = ULong(0x0000013700000004)
_EMPTY_ACTION = ULong(0x0000013700000005)
_SQL_ACTION = ULong(0x0000013700000006)
_SQL_FILTER = ULong(0x000001370000006)
_TRUE_FILTER = ULong(0x000001370000007)
_FALSE_FILTER = ULong(0x000001370000008)
_CORRELATION_FILTER = ULong(0x000001370000009)
_SQL_COMPATIBILITY = 20  # the level that every current client and service writes


def encode_rule(rule: Rule) -> Described:
    """A rule as enumerate-rules lists it: filter, action, name, creation time."""
    action = (
        Described(_EMPTY_ACTION, [])
        if rule.action is None
        else Described(_SQL_ACTION, [rule.action.expression, _SQL_COMPATIBILITY])
    )
    created = Timestamp(milliseconds(rule.created_at))
    return Described(_RULE, [_encode_filter(rule.filter), action, rule.name, created])


def _encode_filter(rule_filter: filters.Filter) -> Described:
    match rule_filter:
        case filters.TrueFilter():
            return Described(_TRUE_FILTER, [])
        case filters.FalseFilter():
            return Described(_FALSE_FILTER, [])
        case filters.SqlFilter():
            return Described(_SQL_FILTER, [rule_filter.expression, _SQL_COMPATIBILITY])
        case filters.CorrelationFilter():
            fields = [getattr(rule_filter, name) for name in filters.CORRELATED]
            return Described(_CORRELATION_FILTER, [*fields, dict(rule_filter.properties)])


def decode_rule(name: str, description: Any, *, created_at: float) -> Rule:
    """A rule as add-rule describes it: a map with one filter, and perhaps an action."""
    if not isinstance(description, dict):
        raise bad_argument("add-rule needs a map 'rule-description'.")
    action = description.get("sql-rule-action")
    expression = action.get("expression") if isinstance(action, dict) else None
    return Rule(
        name=name,
        filter=_decode_filter(description),
        action=SqlAction(expression=str(expression)) if expression else None,
        created_at=created_at,
    )


def _decode_filter(description: dict[Any, Any]) -> filters.Filter:
    if isinstance(sql := description.get("sql-filter"), dict):
        return filters.SqlFilter(expression=str(sql.get("expression")))
    if isinstance(correlation := description.get("correlation-filter"), dict):
        return _decode_correlation(correlation)
    if description.get("false-filter") is not None:
        return filters.FalseFilter()
    return filters.TrueFilter()


def _decode_correlation(fields: dict[Any, Any]) -> filters.CorrelationFilter:
    """The wire's names are ours with dashes, but for `label`, which is the subject."""
    given = {str(key).replace("-", "_"): value for key, value in fields.items()}
    given["subject"] = given.get("subject", given.get("label"))
    properties = given.get("properties") or {}
    if not isinstance(properties, dict):
        raise bad_argument("The properties of a correlation filter are a map.")
    return filters.CorrelationFilter(
        **{name: _text(given.get(name)) for name in filters.CORRELATED},
        properties={str(key): value for key, value in properties.items()},
    )


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
