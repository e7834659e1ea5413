"""Entities in a TOML of our own: settings by the names of the official Python administration client.

docs/broker.md has an example of the form.
"""

from collections.abc import Mapping
from typing import Any

from pairbus.broker.admin.settings import SettingsType, read_value, settings_of
from pairbus.broker.engine.actions import SqlAction
from pairbus.broker.engine.errors import Refused
from pairbus.broker.engine.filters import CORRELATED, CorrelationFilter, Filter, SqlFilter, TrueFilter
from pairbus.broker.engine.rules import Rule
from pairbus.broker.engine.settings import QueueSettings, SubscriptionSettings, TopicSettings
from pairbus.plumbing.toml_tables import TomlTable, parse_toml

from .declaration import DeclaredEntities, DeclaredSubscription, DeclaredTopic, EntityFile


def read_toml_form(text: str, *, where: str) -> EntityFile:
    """What a file says; ConfigurationError with all its mistakes."""
    top = parse_toml(text, where=where)
    everywhere = _read_entities(top)
    namespaces = {name: _read_entities(table) for name, table in top.tables("namespaces").items()}
    top.refuse()
    return EntityFile(everywhere, namespaces)


def _read_entities(table: TomlTable) -> DeclaredEntities:
    queues = {name: _read_settings(QueueSettings, one) for name, one in table.tables("queues").items()}
    topics = {}
    for name, one in table.tables("topics").items():
        subscriptions = {
            inner: DeclaredSubscription(_read_settings(SubscriptionSettings, below), _read_rules(below))
            for inner, below in one.tables("subscriptions").items()
        }
        topics[name] = DeclaredTopic(_read_settings(TopicSettings, one), subscriptions)
    for name in queues.keys() & topics.keys():
        table.note(f"{name} is a queue and a topic; they share their names", "topics", name)
    return DeclaredEntities(queues, topics)


def _read_settings(kind: type[SettingsType], table: TomlTable) -> SettingsType:
    read: dict[str, Any] = {}

    def find_mistake(name: str, value: Any) -> str | None:
        try:
            read[name] = read_value(name, value)
        except ValueError as error:
            return f"{name}: {error}"
        return None

    table.checked(list(settings_of(kind).values()), find_mistake)
    return kind(**read)


def _read_rules(table: TomlTable) -> tuple[Rule, ...]:
    rules = []
    for name, one in table.tables("rules").items():
        kinds = [kind for kind in ("sql", "correlation") if kind in one]
        if len(kinds) != 1:
            one.note("a rule has either sql or correlation")
        sql, parameters = one.text("sql", None), one.take("parameters", {}, _is_map, "a table of values")
        correlation, action = one.table("correlation"), one.text("action", None)
        try:
            chosen: Filter = TrueFilter()
            if sql is not None:
                chosen = SqlFilter(sql, parameters)
            elif "correlation" in one:
                chosen = _read_correlation(correlation)
            rules.append(Rule(name, chosen, SqlAction(action) if action is not None else None))
        except Refused as refused:
            one.note(refused.description)
    return tuple(rules)


def _read_correlation(table: TomlTable) -> CorrelationFilter:
    properties = table.take("properties", {}, _is_map, "a table of values")
    return CorrelationFilter(
        **{name: table.text(name, None) for name in CORRELATED if name in table}, properties=properties
    )


def _is_map(value: object) -> bool:
    return isinstance(value, Mapping)
