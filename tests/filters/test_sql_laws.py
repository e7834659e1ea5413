"""Laws that hold for any expression: a plainly written evaluator agrees, and no input breaks a rule."""

import contextlib
import uuid
from collections.abc import Callable
from typing import Any, TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.amqp.types import Decimal32, Described, Float, Int, Symbol, Timestamp, ULong
from pairbus.broker.engine.actions import SqlAction
from pairbus.broker.engine.errors import Refused
from pairbus.broker.engine.filters import SqlFilter
from tests.examples import examples

from .sample import Sample, truth_of

Truth: TypeAlias = bool | None
# The text of an expression, and what it must give for the properties of a message.
Pair: TypeAlias = tuple[str, Callable[[dict[str, Any]], Any]]

NAMES = ("a", "b", "c", "d")


def constant(value: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda _: value


def quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def kind(value: Any) -> str | None:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    return "string" if isinstance(value, str) else None


def same_kind(left: Any, right: Any) -> bool:
    return kind(left) is not None and kind(left) == kind(right)


integers = st.integers(-20, 20)
texts = st.text("ab'%_", max_size=4)

literals: st.SearchStrategy[Pair] = st.one_of(
    integers.map(lambda n: (str(n), constant(n))),
    texts.map(lambda t: (quote(t), constant(t))),
    st.booleans().map(lambda b: (str(b).upper(), constant(b))),
    st.just(("NULL", constant(None))),
)
references: st.SearchStrategy[Pair] = st.sampled_from(NAMES).map(
    lambda name: (f"[{name}]", lambda m: m.get(name))
)


def add(operator: str, left: Pair, right: Pair) -> Pair:
    def evaluate(message: dict[str, Any]) -> Any:
        x, y = left[1](message), right[1](message)
        if not same_kind(x, y) or kind(x) == "boolean":
            return None
        if kind(x) == "string":
            return x + y if operator == "+" else None
        return {"+": x + y, "-": x - y, "*": x * y}[operator]

    return f"({left[0]} {operator} {right[0]})", evaluate


values: st.SearchStrategy[Pair] = st.recursive(
    st.one_of(literals, references),
    lambda inner: st.builds(add, st.sampled_from("+-*"), inner, inner),
    max_leaves=4,
)


def compare(operator: str, left: Pair, right: Pair) -> Pair:
    def evaluate(message: dict[str, Any]) -> Truth:
        x, y = left[1](message), right[1](message)
        if not same_kind(x, y):
            return None
        if operator in ("=", "<>", "!="):
            return bool(x == y) is (operator == "=")
        if kind(x) == "boolean":
            return None
        return bool({"<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y}[operator])

    return f"{left[0]} {operator} {right[0]}", evaluate


def negate(truth: Truth) -> Truth:
    return None if truth is None else not truth


def disjoin(truths: list[Truth]) -> Truth:
    if True in truths:
        return True
    return None if None in truths else False


def conjoin(truths: list[Truth]) -> Truth:
    return negate(disjoin([negate(truth) for truth in truths]))


def belong(left: Pair, choices: list[Pair], negated: bool) -> Pair:
    equalities = [compare("=", left, choice)[1] for choice in choices]

    def evaluate(message: dict[str, Any]) -> Truth:
        truth = disjoin([equality(message) for equality in equalities])
        return negate(truth) if negated else truth

    word = "NOT IN" if negated else "IN"
    return f"{left[0]} {word} ({', '.join(choice[0] for choice in choices)})", evaluate


def like(text: str, pattern: str) -> bool:
    """The definition of LIKE, as slow as it is plain."""
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(like(text[start:], pattern[1:]) for start in range(len(text) + 1))
    return bool(text) and pattern[0] in ("_", text[0]) and like(text[1:], pattern[1:])


def resemble(name: str, pattern: str, negated: bool) -> Pair:
    def evaluate(message: dict[str, Any]) -> Truth:
        text = message.get(name)
        if not isinstance(text, str):
            return None
        return like(text, pattern) is not negated

    return f"{name} {'NOT LIKE' if negated else 'LIKE'} {quote(pattern)}", evaluate


def is_null(operand: Pair, negated: bool) -> Pair:
    word = "IS NOT NULL" if negated else "IS NULL"
    return f"{operand[0]} {word}", lambda message: (operand[1](message) is None) is not negated


tests: st.SearchStrategy[Pair] = st.one_of(
    st.builds(compare, st.sampled_from(["=", "<>", "!=", "<", "<=", ">", ">="]), values, values),
    st.builds(belong, values, st.lists(values, min_size=1, max_size=3), st.booleans()),
    st.builds(resemble, st.sampled_from(NAMES), texts, st.booleans()),
    st.builds(is_null, values, st.booleans()),
    st.sampled_from(NAMES).map(lambda name: (f"EXISTS({name})", lambda message: name in message)),
    st.sampled_from(NAMES).map(
        lambda name: (name, lambda m: m.get(name) if isinstance(m.get(name), bool) else None)
    ),
)


def join(conjunction: bool, operands: list[Pair]) -> Pair:
    rule = conjoin if conjunction else disjoin
    text = (" AND " if conjunction else " OR ").join(f"({operand[0]})" for operand in operands)
    return text, lambda message: rule([operand[1](message) for operand in operands])


predicates: st.SearchStrategy[Pair] = st.recursive(
    tests,
    lambda inner: st.one_of(
        st.builds(join, st.booleans(), st.lists(inner, min_size=2, max_size=3)),
        inner.map(lambda operand: (f"NOT ({operand[0]})", lambda message: negate(operand[1](message)))),
    ),
    max_leaves=6,
).filter(lambda pair: len(pair[0]) <= 1024)

messages = st.dictionaries(st.sampled_from(NAMES), st.one_of(st.none(), st.booleans(), integers, texts))


def evaluate(expression: str, message: dict[str, Any]) -> Truth:
    return truth_of(SqlFilter(expression), Sample(application_properties=message))


@settings(max_examples=examples(200))
@given(predicates, messages)
def test_a_plain_evaluator_agrees(pair: Pair, message: dict[str, Any]) -> None:
    text, expected = pair
    assert evaluate(text, message) is expected(message)


@settings(max_examples=examples(60))
@given(tests, tests, tests, messages)
def test_three_valued_logic(p: Pair, q: Pair, r: Pair, message: dict[str, Any]) -> None:
    def gives(template: str) -> Truth:
        return evaluate(template.format(p=f"({p[0]})", q=f"({q[0]})", r=f"({r[0]})"), message)

    assert gives("NOT NOT {p}") is gives("{p}")
    assert gives("NOT ({p} AND {q})") is gives("NOT {p} OR NOT {q}")
    assert gives("NOT ({p} OR {q})") is gives("NOT {p} AND NOT {q}")
    assert gives("{p} AND {q}") is gives("{q} AND {p}")
    assert gives("{p} OR {q}") is gives("{q} OR {p}")
    assert gives("{p} AND ({q} OR {r})") is gives("{p} AND {q} OR {p} AND {r}")
    assert gives("{p} OR {q} AND {r}") is gives("({p} OR {q}) AND ({p} OR {r})")
    assert gives("{p} AND FALSE") is False
    assert gives("{p} OR TRUE") is True
    assert gives("{p} AND TRUE") is gives("{p}") is gives("{p} OR FALSE")


@settings(max_examples=examples(200))
@given(st.text("ab%_!", max_size=7), st.text("ab%_!", max_size=6))
def test_like_is_its_definition(text: str, pattern: str) -> None:
    assert truth_of(
        SqlFilter(f"a LIKE {quote(pattern)}"), Sample(application_properties={"a": text})
    ) is like(text, pattern)


VOCABULARY = """
    AND OR NOT IS NULL EXISTS IN LIKE ESCAPE TRUE FALSE SET REMOVE ( ) , . ; = <> < + - * / % a [b] "c" 'd'
    1 2.5 @x sys user sys.Label sys.TimeToLive sys.EnqueuedTimeUtc newid() p( property(
"""
words = st.sampled_from(VOCABULARY.split())
soup = st.lists(words, max_size=14).map(" ".join) | st.text(max_size=60)
anything: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**64 - 1).map(ULong),
    st.integers(-(2**31), 2**31 - 1).map(Int),
    st.integers(-(2**63), 2**63 - 1).map(Timestamp),
    st.floats(),
    st.floats(width=32).map(Float),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.uuids(),
    st.just(Decimal32(b"1234")),
    st.just(Described(Symbol("x:y"), [1])),
    st.lists(st.integers(), max_size=2),
)
any_message = st.builds(
    Sample,
    application_properties=st.dictionaries(st.sampled_from("abcd"), anything),
    annotations=st.dictionaries(st.just("x-opt-enqueued-time"), anything),
)


@settings(max_examples=examples(200))
@given(soup, anything.filter(lambda value: not isinstance(value, list)), any_message)
def test_no_text_and_no_message_breaks_a_rule(text: str, parameter: Any, message: Sample) -> None:
    with contextlib.suppress(Refused):
        assert truth_of(SqlFilter(text, {"@x": parameter}), message) in (True, False, None)
    with contextlib.suppress(Refused):
        assert isinstance(SqlAction(text, {"@x": parameter}).apply(message).application_properties, dict)


operands = st.sampled_from(
    ["a", "b", "c", "d", "1", "-2.5", "'x'", "@x", "sys.EnqueuedTimeUtc", "p(a)", "newid()"]
)
sums = st.lists(operands, min_size=1, max_size=4).flatmap(
    lambda parts: st.lists(st.sampled_from("+-*/%"), min_size=len(parts), max_size=len(parts)).map(
        lambda signs: " ".join(f"{sign} {part}" for sign, part in zip(signs, parts, strict=True))[2:]
    )
)


@settings(max_examples=examples(200))
@given(sums, st.sampled_from(["=", "<>", "<", ">=", "LIKE"]), sums, any_message)
def test_no_arithmetic_raises(left: str, operator: str, right: str, message: Sample) -> None:
    # A constant pattern that is no string is refused, rightly; a sum is none.
    pattern = f"{right} + ''" if operator == "LIKE" else right
    rule_filter = SqlFilter(f"{left} {operator} {pattern}", {"x": 3})
    assert truth_of(rule_filter, message) in (True, False, None)
    SqlAction(f"SET a = {left}; SET sys.Label = {right}", {"x": uuid.UUID(int=1)}).apply(message)
