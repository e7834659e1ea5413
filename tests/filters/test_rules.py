"""Filters, actions and rules as values: matching, changing, comparing, pickling, and plain dicts."""

import datetime
import json
import math
import pickle
import uuid
from typing import Any

import pytest

from pairbus.amqp.message import MessageSections, Properties
from pairbus.amqp.types import (
    Byte,
    Char,
    Decimal128,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from pairbus.broker.engine.actions import SqlAction
from pairbus.broker.engine.errors import Refused
from pairbus.broker.engine.filters import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    SqlFilter,
    TrueFilter,
    filter_from_dict,
)
from pairbus.broker.engine.message import View
from pairbus.broker.engine.rules import Rule
from pairbus.broker.engine.typed_values import from_plain, to_plain
from tests.engine.samples import message

from .sample import Sample, sample

VALUES: list[Any] = [
    None,
    True,
    False,
    5,
    -(2**63),
    UByte(5),
    UShort(5),
    UInt(5),
    ULong(2**64 - 1),
    Byte(-5),
    Short(-5),
    Int(-5),
    Timestamp(1_700_000_000_123),
    0.1,
    math.inf,
    -math.inf,
    Float(0.25),
    "text",
    "",
    Symbol("sym"),
    Char("c"),
    uuid.UUID(int=3),
    b"\x00\xff",
    datetime.datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=datetime.UTC),
    datetime.datetime(2024, 2, 29),
    datetime.timedelta(days=-1, microseconds=7),
    Decimal128(bytes(range(16))),
    Described(Symbol("com.microsoft:timespan"), 10_000_000),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_keeps_its_type_in_a_plain_dict(value: Any) -> None:
    plain = json.loads(json.dumps(to_plain(value), allow_nan=False))
    back = from_plain(plain)
    assert back == value
    assert type(back) is type(value)


def test_nan_survives_too() -> None:
    assert math.isnan(from_plain(json.loads(json.dumps(to_plain(math.nan), allow_nan=False))))


FILTERS: list[Filter] = [
    TrueFilter(),
    FalseFilter(),
    CorrelationFilter(correlation_id="c", subject="s"),
    CorrelationFilter(
        correlation_id="1",
        message_id="2",
        to="3",
        reply_to="4",
        subject="5",
        session_id="6",
        reply_to_session_id="7",
        content_type="8",
        properties={"a": Int(1), "b": uuid.UUID(int=1), "c": None},
    ),
    SqlFilter("a = 1"),
    SqlFilter("a = @x AND b = @y", {"@x": Int(1), "@y": datetime.datetime(2024, 1, 1)}),
]


@pytest.mark.parametrize("rule_filter", FILTERS, ids=repr)
def test_a_filter_is_a_value(rule_filter: Filter) -> None:
    plain = json.loads(json.dumps(rule_filter.to_dict()))
    for back in (filter_from_dict(plain), pickle.loads(pickle.dumps(rule_filter))):
        assert back == rule_filter
        assert hash(back) == hash(rule_filter)
        assert repr(back) == repr(rule_filter)
    assert sum(other == rule_filter for other in FILTERS) == 1


def test_a_rule_is_a_value() -> None:
    rule = Rule("r", SqlFilter("a = @x", {"@x": 1}), SqlAction("SET b = @y", {"@y": Int(2)}), 1_700_000_000.5)
    plain = json.loads(json.dumps(rule.to_dict()))
    for back in (Rule.from_dict(plain), pickle.loads(pickle.dumps(rule))):
        assert back == rule
        assert back.matches(sample(a=1))
        changed = back.apply(sample(a=1))
        assert changed is not None
        assert changed.application_properties == {"a": 1, "b": 2}
        assert type(changed.application_properties["b"]) is Int
    assert rule != Rule("r", SqlFilter("a = @x", {"@x": 2}), rule.action, rule.created_at)


def test_the_default_rule_takes_everything_and_changes_nothing() -> None:
    rule = Rule()
    assert rule.name == "$Default"
    assert rule.matches(sample())
    assert rule.apply(sample()) is None
    assert Rule.from_dict(rule.to_dict()) == rule


def test_an_unknown_kind_of_filter_is_refused() -> None:
    with pytest.raises(Refused, match="kind"):
        filter_from_dict({"kind": "other"})


def test_true_and_false_filters() -> None:
    assert TrueFilter().matches(sample()) is True
    assert FalseFilter().matches(sample()) is False
    assert (TrueFilter().expression, FalseFilter().expression) == ("1=1", "1=0")


def test_parameters_are_copied() -> None:
    parameters = {"@x": 1}
    rule_filter = SqlFilter("a = @x", parameters)
    parameters["@x"] = 2
    assert rule_filter.parameters == {"@x": 1}


FIELDS = {
    "correlation_id": "correlation_id",
    "message_id": "message_id",
    "to": "to",
    "reply_to": "reply_to",
    "subject": "subject",
    "session_id": "group_id",
    "reply_to_session_id": "reply_to_group_id",
    "content_type": "content_type",
}


@pytest.mark.parametrize(("own", "amqp"), FIELDS.items())
def test_each_correlation_field(own: str, amqp: str) -> None:
    fields: dict[str, Any] = {own: "v"}
    rule_filter = CorrelationFilter(**fields)
    message = Sample()
    setattr(message.properties, amqp, "v")
    assert rule_filter.matches(message)
    setattr(message.properties, amqp, "V")
    assert not rule_filter.matches(message)
    assert not rule_filter.matches(Sample())
    assert rule_filter.fields() == {own: "v"}


def test_correlation_ids_of_other_types_compare_as_text() -> None:
    identity = uuid.UUID(int=9)
    assert CorrelationFilter(message_id=str(identity)).matches(
        Sample(properties=Properties(message_id=identity))
    )
    assert CorrelationFilter(message_id="9").matches(Sample(properties=Properties(message_id=ULong(9))))
    assert CorrelationFilter(message_id="ff").matches(Sample(properties=Properties(message_id=b"\xff")))


@pytest.mark.parametrize(
    ("wanted", "found", "expected"),
    [
        ({"a": 1}, {"a": Int(1)}, True),
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": 1}, {"a": "1"}, False),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, {}, False),
        ({"a": 1}, {"A": 1}, True),
        ({"a": "x"}, {"a": "X"}, False),
        ({"a": None}, {"a": None}, True),
        ({"a": None}, {}, False),
        ({"a": None}, {"a": 1}, False),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ({"a": 1, "b": 2}, {"a": 1, "b": 2, "c": 3}, True),
    ],
)
def test_correlation_properties(wanted: dict[str, Any], found: dict[str, Any], expected: bool) -> None:
    assert CorrelationFilter(properties=wanted).matches(sample(**found)) is expected


ACTIONS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("SET a = 1", {}, {"a": 1}),
    ("SET a = 'x'; SET b = a + 'y'; REMOVE c;", {"c": 1, "d": 2}, {"a": "x", "b": "xy", "d": 2}),
    ("SET a = 1 SET b = 2", {}, {"a": 1, "b": 2}),
    ("SET a = 1, REMOVE b", {"b": 1}, {"a": 1}),
    ("SET user.[a b] = TRUE", {}, {"a b": True}),
    ("SET A = 2", {"a": 1}, {"a": 2}),
    ("REMOVE A", {"a": 1}, {}),
    ("REMOVE missing", {"a": 1}, {"a": 1}),
    ("SET a = NULL", {"a": 1}, {"a": None}),
    ("SET a = missing + 1", {}, {"a": None}),
    ("SET a = a + 1", {"a": Int(1)}, {"a": Int(2)}),
    ("SET a = b", {"b": Timestamp(5)}, {"a": Timestamp(5), "b": Timestamp(5)}),
    ("SET a = sys.Label", {}, {"a": "label"}),
    ("SET a = p('b')", {"b": 7}, {"a": 7, "b": 7}),
]


@pytest.mark.parametrize(("expression", "before", "after"), ACTIONS)
def test_action(expression: str, before: dict[str, Any], after: dict[str, Any]) -> None:
    message = Sample(properties=Properties(subject="label"), application_properties=dict(before))
    changed = SqlAction(expression).apply(message)
    assert changed.application_properties == after
    assert message.application_properties == before
    assert changed.properties == message.properties


@pytest.mark.parametrize(
    ("old", "expression", "kind"),
    [
        (Int(1), "a + 1", Int),
        (Int(2**31 - 1), "a + 1", int),
        (UByte(255), "a - 1", UByte),
        (UByte(0), "a - 1", int),
        (Float(1.0), "a * 2", Float),
        (1.5, "2", float),
        (Int(1), "1.5", float),
        (Int(1), "'x'", str),
        ("x", "1", int),
        (True, "1", int),
    ],
)
def test_a_property_keeps_its_numeric_type_while_the_number_fits(
    old: Any, expression: str, kind: type
) -> None:
    changed = SqlAction(f"SET a = {expression}").apply(sample(a=old))
    assert type(changed.application_properties["a"]) is kind


def test_an_action_changes_system_properties_of_the_copy_alone() -> None:
    message = Sample(properties=Properties(subject="old", to="there", message_id="m", group_id="s"))
    action = SqlAction(
        "SET sys.Label = sys.Label + '!'; REMOVE sys.To; SET sys.MessageId = newid(); SET sys.ReplyTo = 5"
    )
    changed = action.apply(message).properties
    assert changed.subject == "old!"
    assert changed.to is None
    assert str(uuid.UUID(str(changed.message_id))) == changed.message_id
    assert changed.reply_to == "5"
    assert changed.group_id == "s"
    assert message.properties == Properties(subject="old", to="there", message_id="m", group_id="s")


def test_a_string_does_not_double_without_end() -> None:
    expression = "SET a = a + a;" * 70
    assert SqlAction(expression).apply(sample(a="x" * 100)).application_properties == {"a": None}


def test_properties_are_read_once_for_all_that_look_at_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred that are not there, of a message with thousands of others."""
    reads = 0
    real = MessageSections._map

    def read(sections: MessageSections, section: int) -> dict[Any, Any]:
        nonlocal reads
        reads += 1
        return real(sections, section)

    incoming = message(properties={f"Name {number}": number for number in range(2000)})
    wanted = SqlFilter(" OR ".join([*(f"x{number} = 1" for number in range(90)), "[NAME 7] = 7"]))
    monkeypatch.setattr(MessageSections, "_map", read)
    assert wanted.matches(incoming)
    assert wanted.matches(View(incoming.store(1, 0.0, None)))
    assert reads <= 2


def test_names_are_found_after_each_change() -> None:
    action = SqlAction("REMOVE a; SET b = 1; SET B = 2; SET C = 4; REMOVE c; SET c = 5; SET A = 6")
    changed = action.apply(message(properties={"A": 1, "c": 3}))
    assert changed.application_properties == {"b": 2, "c": 5, "A": 6}
