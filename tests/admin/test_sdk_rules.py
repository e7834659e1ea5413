"""Rules through the official synchronous client: each kind of filter goes there and back."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus.management import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    RuleProperties,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

from pairbus.amqp import types as amqp
from pairbus.broker.engine.actions import SqlAction
from pairbus.broker.engine.filters import SqlFilter
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.rules import Rule

VALUES: dict[str, Any] = {
    "text": "a < b & c",
    "number": 7,
    "large": 2**40,
    "real": 2.5,
    "yes": True,
    "no": False,
    "moment": datetime(2020, 7, 5, 11, 12, 13),
    "span": timedelta(days=1, hours=2, seconds=3),
}


@pytest.fixture
def rules(admin: ServiceBusAdministrationClient) -> ServiceBusAdministrationClient:
    """A client that has a topic and a subscription to make rules on."""
    admin.create_topic("news")
    admin.create_subscription("news", "mine")
    return admin


def everywhere(client: ServiceBusAdministrationClient, created: RuleProperties) -> list[RuleProperties]:
    """The rule as each operation shows it."""
    listed = [rule for rule in client.list_rules("news", "mine") if rule.name == created.name]
    return [created, client.get_rule("news", "mine", created.name), *listed]


def test_correlation_filters(rules: ServiceBusAdministrationClient) -> None:
    given = CorrelationRuleFilter(
        correlation_id="a",
        message_id="b",
        to="c",
        reply_to="d",
        label="e",
        session_id="f",
        reply_to_session_id="g",
        content_type="h",
        properties=VALUES,
    )
    seen = everywhere(rules, rules.create_rule("news", "mine", "all", filter=given))
    assert len(seen) == 3
    for rule in seen:
        assert isinstance(rule.filter, CorrelationRuleFilter)
        assert (rule.filter.correlation_id, rule.filter.message_id, rule.filter.to) == ("a", "b", "c")
        assert (rule.filter.reply_to, rule.filter.label, rule.filter.session_id) == ("d", "e", "f")
        assert (rule.filter.reply_to_session_id, rule.filter.content_type) == ("g", "h")
        assert rule.filter.properties == VALUES
        assert rule.action is None
        assert rule.created_at_utc is not None


def test_sql_filters_and_actions(rules: ServiceBusAdministrationClient, namespace: Namespace) -> None:
    parameters = {f"@{name}": value for name, value in VALUES.items()}
    seen = everywhere(
        rules,
        rules.create_rule(
            "news",
            "mine",
            "sql",
            filter=SqlRuleFilter("colour = @text AND price > @number", parameters=parameters),
            action=SqlRuleAction("SET seen = @yes", parameters=parameters),
        ),
    )
    for rule in seen:
        assert isinstance(rule.filter, SqlRuleFilter)
        assert rule.filter.sql_expression == "colour = @text AND price > @number"
        assert rule.filter.parameters == parameters
        assert isinstance(rule.action, SqlRuleAction)
        assert rule.action.sql_expression == "SET seen = @yes"
        assert rule.action.parameters == parameters
    stored = namespace.get_subscription("news", "mine").get_rule("sql")
    assert isinstance(stored.filter, SqlFilter)
    assert isinstance(stored.filter.parameters["@number"], amqp.Int)


@pytest.mark.parametrize("kind", [TrueRuleFilter, FalseRuleFilter])
def test_filters_without_conditions(rules: ServiceBusAdministrationClient, kind: type[SqlRuleFilter]) -> None:
    for rule in everywhere(rules, rules.create_rule("news", "mine", "plain", filter=kind())):
        assert type(rule.filter) is kind
        assert rule.action is None


def test_a_rule_without_a_filter_takes_everything(rules: ServiceBusAdministrationClient) -> None:
    assert isinstance(rules.create_rule("news", "mine", "open").filter, TrueRuleFilter)


def test_update(rules: ServiceBusAdministrationClient, namespace: Namespace) -> None:
    rule = rules.create_rule("news", "mine", "changing", filter=SqlRuleFilter("a = 1"))
    rule.filter = CorrelationRuleFilter(label="x", properties={"k": 1})
    rule.action = SqlRuleAction("REMOVE k")
    rules.update_rule("news", "mine", rule)
    changed = rules.get_rule("news", "mine", "changing")
    assert isinstance(changed.filter, CorrelationRuleFilter)
    assert changed.filter.properties == {"k": 1}
    assert namespace.get_subscription("news", "mine").get_rule("changing").action == SqlAction("REMOVE k")
    assert changed.created_at_utc == rule.created_at_utc


def test_rules_come_and_go(rules: ServiceBusAdministrationClient) -> None:
    with pytest.raises(ResourceNotFoundError):
        rules.get_rule("news", "mine", "nobody")
    with pytest.raises(ResourceNotFoundError):
        rules.delete_rule("news", "mine", "nobody")
    with pytest.raises(ResourceNotFoundError):
        rules.create_rule("news", "nobody", "rule")
    rule = rules.create_rule("news", "mine", "rule")
    with pytest.raises(ResourceExistsError):
        rules.create_rule("news", "mine", "Rule")
    rules.delete_rule("news", "mine", "rule")
    with pytest.raises(ResourceNotFoundError):
        rules.update_rule("news", "mine", rule)
    rules.delete_rule("news", "mine", "$Default")
    assert list(rules.list_rules("news", "mine")) == []
    with pytest.raises(ResourceNotFoundError):
        list(rules.list_rules("news", "nobody"))


@pytest.mark.parametrize(
    "arguments",
    [
        {"filter": SqlRuleFilter("a = = 1")},
        {"filter": SqlRuleFilter("a = @missing")},
        {"filter": CorrelationRuleFilter()},
        {"action": SqlRuleAction("DROP TABLE x")},
    ],
    ids=["syntax", "parameter", "empty", "action"],
)
def test_wrong_rules_are_refused(rules: ServiceBusAdministrationClient, arguments: dict[str, Any]) -> None:
    with pytest.raises(HttpResponseError) as caught:
        rules.create_rule("news", "mine", "wrong", **arguments)
    assert caught.value.status_code == 400
    assert [rule.name for rule in rules.list_rules("news", "mine")] == ["$Default"]


def test_rules_are_paged(rules: ServiceBusAdministrationClient, namespace: Namespace) -> None:
    for number in range(120):
        namespace.create_rule("news", "mine", Rule(name=f"r{number:03}"), 0.0)
    names = [rule.name for rule in rules.list_rules("news", "mine")]
    assert names == ["$Default", *(f"r{number:03}" for number in range(120))]
