"""Malformed expressions are refused when the rule is made, with the place and a way to mend them."""

import pickle
from typing import Any

import pytest

from pairbus.broker.engine.actions import SqlAction
from pairbus.broker.engine.errors import Refused
from pairbus.broker.engine.filters import CorrelationFilter, SqlFilter
from pairbus.conditions import ARGUMENT_ERROR

# Expression, position (from 1), a word of the problem or the hint.
FILTERS: list[tuple[str, int, str]] = [
    ("", 1, "the end"),
    ("   ", 4, "the end"),
    ("a =", 4, "the end"),
    ("a = 1 b = 2", 7, "AND or OR"),
    ("a == 1", 4, "'='"),
    ("a = 1 = 1", 7, "chain"),
    ("a < b < c", 7, "a < b AND b < c"),
    ("(a = 1", 7, "')'"),
    ("a = 1)", 6, "')'"),
    ("a = 'x", 5, "never closed"),
    ("[a = 1", 1, "never closed"),
    ('"a = 1', 1, "never closed"),
    ("[] = 1", 1, "empty"),
    ("a = #", 5, "brackets"),
    ("a = 1x", 5, "number"),
    ("a = 1E", 5, "exponent"),
    ("a = 1E999", 5, "too large"),
    ("a = 9223372036854775808", 5, "64 bits"),
    ("a = -9223372036854775809", 6, "64 bits"),
    ("a = @", 5, "@name"),
    ("a = @x", 5, "no value"),
    ("a = ²", 5, "brackets"),
    ("'text'", 1, "condition"),
    ("1", 1, "condition"),
    ("NULL", 1, "condition"),
    ("a + 1", 1, "condition"),
    ("newid()", 1, "condition"),
    ("a = 1 AND 'b'", 11, "condition"),
    ("'b' OR a = 1", 1, "condition"),
    ("NOT 5", 5, "condition"),
    ("(a = 1) + 1 = 2", 1, "value"),
    ("1 + (a = 1) = 2", 5, "value"),
    ("a = (b = 1)", 5, "value"),
    ("-(a = 1) = 1", 2, "value"),
    ("(a = 1) IS NULL", 1, "value"),
    ("a IN ()", 7, "not expected"),
    ("a IN (1", 8, "')'"),
    ("a IN 1", 6, "'('"),
    ("a IN (b = 1)", 9, "')'"),
    ("a NOT 5", 7, "IN or LIKE"),
    ("a IS 5", 6, "IS NULL"),
    ("a LIKE 5", 3, "no string"),
    ("a LIKE 'x' ESCAPE 'ab'", 3, "one character"),
    ("a LIKE 'x' ESCAPE ''", 3, "one character"),
    ("a = 'x\ud800'", 7, "half of a character"),
    ("a LIKE 'x' ESCAPE 5", 3, "one character"),
    ("a LIKE 'x!' ESCAPE '!'", 3, "escape character"),
    ("EXISTS a", 8, "EXISTS(property)"),
    ("EXISTS(1)", 8, "property name"),
    ("EXISTS(a", 9, "')'"),
    ("EXISTS(a + 1)", 10, "one property"),
    ("upper(a) = 'A'", 1, "newid()"),
    ("newid(1) IS NULL", 7, "no argument"),
    ("p() IS NULL", 3, "not expected"),
    ("p('a', 'b') IS NULL", 6, "one argument"),
    ("other.a = 1", 1, "scope"),
    ("[sys].a = 1", 1, "scope"),
    ("sys. = 1", 6, "property name"),
    ("user.[a].b = 1", 9, "not expected"),
    ("sys.Nothing = 1", 5, "MessageId"),
    ("EXISTS(sys.Nothing)", 12, "MessageId"),
    ("and = 1", 1, "[AND]"),
    ("user.and = 1", 6, "property name"),
    ("a; b", 2, "not expected"),
    ("(" * 33 + "a=1" + ")" * 33, 34, "nested"),
    ("NOT " * 33 + "a=1", 133, "nested"),
    ("a=" + "-" * 34 + "b", 36, "nested"),
    ("p(" * 33 + "a" + ")" * 33 + "=1", 67, "nested"),
    ("a=1 OR " * 200, 1025, "1024"),
]


@pytest.mark.parametrize(("expression", "position", "word"), FILTERS)
def test_malformed_filter(expression: str, position: int, word: str) -> None:
    with pytest.raises(Refused) as caught:
        SqlFilter(expression)
    assert caught.value.condition == ARGUMENT_ERROR
    assert f"at position {position}:" in caught.value.description
    assert word in caught.value.description
    assert pickle.loads(pickle.dumps(caught.value)).description == caught.value.description


ACTIONS: list[tuple[str, int, str]] = [
    ("", 1, "SET property"),
    ("a = 1", 1, "SET property"),
    ("SET a", 6, "'='"),
    ("SET a =", 8, "the end"),
    ("SET a = 1 b = 2", 11, "SET property"),
    ("SET a = (b = 1)", 9, "value"),
    ("SET a = 1;; SET b = 2", 11, "SET"),
    ("SET sys.Nothing = 1", 9, "MessageId"),
    ("SET sys.EnqueuedTimeUtc = 1", 9, "cannot be changed"),
    ("REMOVE sys.SequenceNumber", 12, "cannot be changed"),
    ("REMOVE", 7, "property name"),
    ("SET a = @x", 9, "no value"),
    ("SET 'a' = 1", 5, "property name"),
    ("SET a = 1 AND b = 2", 11, "SET property"),
]


@pytest.mark.parametrize(("expression", "position", "word"), ACTIONS)
def test_malformed_action(expression: str, position: int, word: str) -> None:
    with pytest.raises(Refused) as caught:
        SqlAction(expression)
    assert caught.value.condition == ARGUMENT_ERROR
    assert f"at position {position}:" in caught.value.description
    assert word in caught.value.description


@pytest.mark.parametrize(
    ("parameters", "word"),
    [
        ({"@x": []}, "list"),
        ({"@x": 2**64}, "64 bits"),
        ({"@": 1}, "name"),
        ({"": 1}, "name"),
        ({5: 1}, "name"),
        ({"@x": "\ud800"}, "half of a character"),
        ({"\ud800": "x"}, "half of a character"),
    ],
)
def test_unusable_parameters(parameters: dict[Any, Any], word: str) -> None:
    for make in (SqlFilter, SqlAction):
        with pytest.raises(Refused, match=word):
            make("SET a = @x" if make is SqlAction else "a = @x", parameters)
    with pytest.raises(Refused, match=word):
        CorrelationFilter(properties=parameters)


def test_a_correlation_filter_compares_something() -> None:
    with pytest.raises(Refused) as caught:
        CorrelationFilter()
    assert caught.value.condition == ARGUMENT_ERROR


def test_the_deepest_nesting_that_is_allowed() -> None:
    assert SqlFilter("(" * 32 + "1=1" + ")" * 32)
    assert SqlFilter("a=1" + " OR a=1" * 145)
