"""Rules of subscriptions, between the engine's dataclasses and `RuleDescription`."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from pairbus.broker.engine import filters
from pairbus.broker.engine.actions import SqlAction
from pairbus.broker.engine.rules import Rule
from pairbus.broker.engine.validity import pascal
from pairbus.words import DEFAULT_RULE

from .atom import DESCRIPTION_SPACES
from .duration import format_instant
from .errors import AdminRefused
from .markup import XmlNode, branch, leaf
from .typed import read_pairs, write_pairs

# The only level that the service still knows, and what every client sends.
_COMPATIBILITY_LEVEL = "20"

_CORRELATION_ELEMENTS: Final = {
    "Label" if name == "subject" else pascal(name): name for name in filters.CORRELATED
}


def describe_rule(rule: Rule) -> XmlNode:
    children = [
        _describe_filter(rule.filter),
        _describe_action(rule.action),
        leaf("CreatedAt", format_instant(rule.created_at)),
        leaf("Name", rule.name),
    ]
    return branch("RuleDescription", children, DESCRIPTION_SPACES)


def read_rule(description: XmlNode, *, name: str | None = None, created_at: float) -> Rule:
    """The rule as described; `name` is that of the request's address, which counts for more."""
    return Rule(
        name=name or description.text_of("Name") or DEFAULT_RULE,
        filter=_read_filter(description.find("Filter")),
        action=_read_action(description.find("Action")),
        created_at=created_at,
    )


def _describe_filter(rule_filter: filters.Filter) -> XmlNode:
    if isinstance(rule_filter, filters.CorrelationFilter):
        children = [
            leaf(element, value)
            for element, field in _CORRELATION_ELEMENTS.items()
            if (value := getattr(rule_filter, field)) is not None
        ]
        children.append(write_pairs("Properties", rule_filter.properties))
        return branch("Filter", children, {"i:type": "CorrelationFilter"})
    parameters = rule_filter.parameters if isinstance(rule_filter, filters.SqlFilter) else {}
    return _sql_node("Filter", type(rule_filter).__name__, rule_filter.expression, parameters)


def _describe_action(action: SqlAction | None) -> XmlNode:
    if action is None:
        return branch("Action", [], {"i:type": "EmptyRuleAction"})
    return _sql_node("Action", "SqlRuleAction", action.expression, action.parameters)


def _sql_node(name: str, kind: str, expression: str, parameters: Mapping[str, Any]) -> XmlNode:
    children = [
        leaf("SqlExpression", expression),
        leaf("CompatibilityLevel", _COMPATIBILITY_LEVEL),
        write_pairs("Parameters", parameters),
    ]
    return branch(name, children, {"i:type": kind})


def _read_filter(node: XmlNode | None) -> filters.Filter:
    if node is None:
        return filters.TrueFilter()
    kind = node.attributes.get("type", "").rpartition(":")[2]
    reader = _FILTERS.get(kind)
    if reader is None:
        raise AdminRefused(400, f"There is no filter of type '{kind}'; known are {', '.join(_FILTERS)}.")
    return reader(node)


def _read_correlation_filter(node: XmlNode) -> filters.CorrelationFilter:
    fields = {field: node.text_of(element) for element, field in _CORRELATION_ELEMENTS.items()}
    return filters.CorrelationFilter(**fields, properties=read_pairs(node.find("Properties")))


_FILTERS: Final[dict[str, Callable[[XmlNode], filters.Filter]]] = {
    "SqlFilter": lambda node: filters.SqlFilter(
        _expression(node, "SqlFilter"), read_pairs(node.find("Parameters"))
    ),
    "CorrelationFilter": _read_correlation_filter,
    "TrueFilter": lambda node: filters.TrueFilter(),
    "FalseFilter": lambda node: filters.FalseFilter(),
}


def _read_action(node: XmlNode | None) -> SqlAction | None:
    kind = "EmptyRuleAction" if node is None else node.attributes.get("type", "").rpartition(":")[2]
    if node is None or kind == "EmptyRuleAction":
        return None
    if kind != "SqlRuleAction":
        raise AdminRefused(
            400, f"There is no action of type '{kind}'; known are SqlRuleAction and EmptyRuleAction."
        )
    return SqlAction(_expression(node, kind), read_pairs(node.find("Parameters")))


def _expression(node: XmlNode, kind: str) -> str:
    expression = node.text_of("SqlExpression")
    if expression is None:
        raise AdminRefused(400, f"A {kind} needs a SqlExpression.")
    return expression
