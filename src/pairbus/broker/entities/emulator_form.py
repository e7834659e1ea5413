"""Entities as the official emulator's `Config.json` has them, read as it is.

Names of keys are compared without their case. A key that we do not know is passed over and told, since the
next version of the emulator may have more of them; a value that we do not understand is a mistake.
"""

from collections.abc import Mapping
from typing import Any, Final

from pairbus.broker.admin.settings import SettingsType, read_value, settings_of
from pairbus.broker.engine.actions import SqlAction
from pairbus.broker.engine.errors import Refused
from pairbus.broker.engine.filters import CORRELATED, CorrelationFilter, Filter, SqlFilter, TrueFilter
from pairbus.broker.engine.rules import Rule
from pairbus.broker.engine.settings import QueueSettings, SubscriptionSettings, TopicSettings
from pairbus.broker.engine.validity import pascal
from pairbus.errors import ConfigurationError, show_value
from pairbus.plumbing.json_text import parse_json
from pairbus.plumbing.toml_tables import TomlTable

from .declaration import DeclaredEntities, DeclaredSubscription, DeclaredTopic, EntityFile

# Element of a correlation filter -> field of ours.
_CORRELATED: Final = {"Label": "subject"} | {pascal(name): name for name in CORRELATED}
_SQL: Final = {"SqlExpression": None}
# What there may be below what; None is a value.
_RULE: Final = {
    "Name": None,
    "Properties": {
        "FilterType": None,
        "CorrelationFilter": {**dict.fromkeys(_CORRELATED), "Properties": None},
        "SqlFilter": _SQL,
        "Action": _SQL,
    },
}
_SUBSCRIPTION: Final = {
    "Name": None,
    "Properties": dict.fromkeys(settings_of(SubscriptionSettings)),
    "Rules": _RULE,
}
_TOPIC: Final = {
    "Name": None,
    "Properties": dict.fromkeys(settings_of(TopicSettings)),
    "Subscriptions": _SUBSCRIPTION,
}
_QUEUE: Final = {"Name": None, "Properties": dict.fromkeys(settings_of(QueueSettings))}
_SHAPE: Final = {
    "UserConfig": {
        "Namespaces": {"Name": None, "Queues": _QUEUE, "Topics": _TOPIC},
        "Logging": None,  # where the emulator writes its log; ours is told by --log-format
    }
}


def read_emulator_form(text: str, *, where: str) -> EntityFile:
    """What a `Config.json` says; ConfigurationError with all its mistakes."""
    try:
        document = parse_json(text.removeprefix("\ufeff"))
    except ValueError as error:
        raise ConfigurationError(f"{where}: is not JSON: {error}") from None
    passed_over: list[str] = []
    sifted = _sift(document, _SHAPE, "", passed_over)
    if not isinstance(sifted, Mapping) or "UserConfig" not in sifted:
        raise ConfigurationError(
            f'{where}: has no "UserConfig"; a Config.json of the official emulator has one, and in it '
            '"Namespaces" with their queues and topics'
        )
    top = TomlTable(sifted, where=where)
    config = top.table("UserConfig")
    config.take("Logging", None, lambda value: True, "")
    namespaces: dict[str, DeclaredEntities] = {}
    for table in config.rows("Namespaces"):
        name = _name(table, namespaces)
        namespaces[name] = _read_entities(table)
    top.refuse()
    if not namespaces:
        raise ConfigurationError(
            f'{where}: "UserConfig" has no "Namespaces": a list, each with its "Name", "Queues" and "Topics"'
        )
    return EntityFile(DeclaredEntities(), namespaces, tuple(passed_over))


def _sift(value: Any, shape: Any, place: str, passed_over: list[str]) -> Any:
    """A value with the keys that are known, in the spelling that they are known by."""
    if isinstance(value, list):
        return [
            _sift(one, shape, f"{place}[{number}]", passed_over) for number, one in enumerate(value, start=1)
        ]
    if shape is None or not isinstance(value, dict):
        return value
    known = {key.lower(): key for key in shape}
    sifted = {}
    for key, inner in value.items():
        below = f"{place}.{key}".removeprefix(".")
        spelled = known.get(key.lower())
        if spelled is None:
            passed_over.append(below)
        elif inner is not None:
            sifted[spelled] = _sift(inner, shape[spelled], below, passed_over)
    return sifted


def _name(table: TomlTable, taken: Mapping[str, Any]) -> str:
    table.need("Name")
    name = table.text("Name", "")
    if name.lower() in map(str.lower, taken):
        table.note(f"the name {name!r} was used before", "Name")
    return name


def _read_entities(table: TomlTable) -> DeclaredEntities:
    queues: dict[str, QueueSettings] = {}
    topics: dict[str, DeclaredTopic] = {}
    for one in table.rows("Queues"):
        queues[_name(one, queues)] = _read_settings(QueueSettings, one)
    for one in table.rows("Topics"):
        subscriptions: dict[str, DeclaredSubscription] = {}
        for below in one.rows("Subscriptions"):
            name = _name(below, subscriptions)
            settings = _read_settings(SubscriptionSettings, below)
            subscriptions[name] = DeclaredSubscription(settings, _read_rules(below))
        name = _name(one, {**queues, **topics})
        topics[name] = DeclaredTopic(_read_settings(TopicSettings, one), subscriptions)
    return DeclaredEntities(queues, topics)


def _read_settings(kind: type[SettingsType], table: TomlTable) -> SettingsType:
    read: dict[str, Any] = {}
    field_of = settings_of(kind)

    def find_mistake(element: str, value: Any) -> str | None:
        try:
            if value != "":  # the emulator's own example has empty texts where there is nothing to say
                read[field_of[element]] = read_value(field_of[element], _native(value))
        except ValueError as error:
            return f"{element}: {error}"
        return None

    table.table("Properties").checked(field_of, find_mistake)
    return kind(**read)


def _native(value: Any) -> Any:
    """.NET takes numbers and truth values that are written as texts too."""
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    digits = value.strip() if isinstance(value, str) else ""
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else value


def _read_rules(table: TomlTable) -> tuple[Rule, ...]:
    rules: dict[str, Rule] = {}
    for one in table.rows("Rules"):
        name, properties = _name(one, rules), one.table("Properties")
        kind = properties.take("FilterType", "", lambda value: isinstance(value, str), "a text")
        sql = properties.table("SqlFilter").text("SqlExpression", None)
        correlation = properties.table("CorrelationFilter")
        fields = {
            field: correlation.text(element, None)
            for element, field in _CORRELATED.items()
            if element in correlation
        }
        values = correlation.take("Properties", {}, lambda value: isinstance(value, Mapping), "an object")
        action = properties.table("Action").text("SqlExpression", None)
        try:
            chosen: Filter
            if kind.lower() == "sql" or (not kind and sql is not None):
                chosen = SqlFilter(sql or "")
            elif kind.lower() == "correlation" or (not kind and "CorrelationFilter" in properties):
                chosen = CorrelationFilter(**fields, properties=values)
            else:
                chosen = TrueFilter()
                if kind:
                    properties.note(f"FilterType must be Sql or Correlation, not {show_value(kind)}")
            rules[name] = Rule(name, chosen, SqlAction(action) if action is not None else None)
        except Refused as refused:
            one.note(refused.description)
    return tuple(rules.values())
