"""What expressions give, row by row. None is unknown."""

import datetime
import time
import uuid
from typing import Any

import pytest

from pairbus.amqp.message import Properties
from pairbus.amqp.types import Decimal64, Described, Float, Int, Symbol, Timestamp, UInt, ULong
from pairbus.broker.engine.filters import SqlFilter

from .sample import Sample, sample, truth_of

MOMENT = 1_700_000_000_000

MESSAGE = Sample(
    properties=Properties(
        message_id=uuid.UUID(int=7),
        to="store",
        subject="bus stop",
        reply_to="desk",
        correlation_id=ULong(41),
        content_type=Symbol("text/plain"),
        group_id="s1",
        reply_to_group_id="s2",
        absolute_expiry_time=MOMENT + 60_000,
        creation_time=MOMENT,
    ),
    application_properties={
        "one": Int(1),
        "two": 2,
        "half": 0.5,
        "third": Float(0.25),
        "big": ULong(2**64 - 1),
        "name": "Anna",
        "empty": "",
        "yes": True,
        "no": False,
        "nothing": None,
        "id": uuid.UUID(int=1),
        "raw": b"ab",
        "at": Timestamp(MOMENT),
        "span": Described(Symbol("com.microsoft:timespan"), 10_000_000),
        "link": Described(Symbol("com.microsoft:uri"), "http://x"),
        "offset": Described(
            Symbol("com.microsoft:datetime-offset"), 621_355_968_000_000_000 + MOMENT * 10_000
        ),
        "decimal": Decimal64(b"\x00" * 8),
        "Camel Case": "yes",
        "order": "keyword-like",
        "a.b": 3,
        "it's]": 4,
        "x_1": 5,
        "größe": 6,
    },
    annotations={"x-opt-enqueued-time": Timestamp(MOMENT), "x-opt-partition-key": "p"},
)

TABLE: list[tuple[str, bool | None]] = [
    # comparisons
    ("one = 1", True),
    ("one <> 1", False),
    ("one != 1", False),
    ("one < 2 AND one <= 1 AND two > 1 AND two >= 2", True),
    ("one = 1.0", True),
    ("half = .5 and half = 5E-1 and third = 0.25", True),
    ("big > 9223372036854775807", True),
    ("-9223372036854775808 < one", True),
    ("name = 'Anna'", True),
    ("name = 'anna'", False),
    ("name < 'B'", True),
    ("empty = ''", True),
    ("'it''s' = 'it''s'", True),
    ("yes = TRUE", True),
    ("yes = false", False),
    ("yes > no", None),
    ("id = id", True),
    ("id < id", None),
    ("raw = raw", True),
    ("raw >= raw", None),
    ("decimal = decimal", None),
    ("link = 'http://x'", True),
    ("offset = at", True),
    ("at >= at", True),
    # kinds that do not go together are unknown, for = and <> alike
    ("name = 1", None),
    ("name <> 1", None),
    ("one = '1'", None),
    ("yes = 1", None),
    ("id = '00000000-0000-0000-0000-000000000001'", None),
    ("at > 5", None),
    # null and missing
    ("missing = 1", None),
    ("missing <> 1", None),
    ("nothing = NULL", None),
    ("one = NULL", None),
    ("missing IS NULL", True),
    ("nothing IS NULL", True),
    ("one IS NULL", False),
    ("one IS NOT NULL", True),
    ("missing is not null", False),
    ("EXISTS(one)", True),
    ("EXISTS(nothing)", True),
    ("EXISTS(missing)", False),
    ("NOT EXISTS(missing)", True),
    ("exists(sys.Label)", True),
    ("EXISTS(sys.DeadLetterSource)", False),
    ("sys.DeadLetterSource IS NULL", True),
    # three-valued logic
    ("missing = 1 AND FALSE", False),
    ("missing = 1 AND TRUE", None),
    ("missing = 1 OR TRUE", True),
    ("missing = 1 OR FALSE", None),
    ("NOT missing = 1", None),
    ("NOT one = 2", True),
    ("NOT NOT one = 1", True),
    ("one = 1 OR one = 2 AND one = 3", True),
    ("(one = 1 OR one = 2) AND one = 3", False),
    ("yes", True),
    ("NOT yes", False),
    ("name", None),
    ("NOT name", None),
    ("TRUE", True),
    ("FALSE OR yes", True),
    ("1=1", True),
    ("1 = 0", False),
    # membership
    ("name IN ('Bert', 'Anna')", True),
    ("name IN ('Bert')", False),
    ("name NOT IN ('Bert')", True),
    ("name NOT IN ('Anna')", False),
    ("missing IN (1, 2)", None),
    ("missing NOT IN (1, 2)", None),
    ("one IN (missing, 1)", True),
    ("one IN (missing, 2)", None),
    ("one NOT IN (missing, 2)", None),
    ("one + 1 IN (two)", True),
    # arithmetic
    ("one + two * 3 = 7", True),
    ("(one + two) * 3 = 9", True),
    ("10 - 3 - 2 = 5", True),
    ("20 / 2 / 5 = 2", True),
    ("7 / 2 = 3", True),
    ("-7 / 2 = -3", True),
    ("7 / -2 = -3", True),
    ("7 / 2.0 = 3.5", True),
    ("7 % 3 = 1", True),
    ("-7 % 3 = -1", True),
    ("7 % -3 = 1", True),
    ("7.5 % 2 = 1.5", True),
    ("- two = -2", True),
    ("+two = 2", True),
    ("- - two = 2", True),
    ("2--1 = 3", True),
    ("one / 0 = 1", None),
    ("one % 0 = 1", None),
    ("1.0 / 0 > 1E300", True),
    ("-1.0 / 0 < -1E300", True),
    ("0.0 / 0 = 0.0", False),
    ("1.0 % 0 = 1.0", False),
    ("9223372036854775807 + 1 = 0", None),
    ("-(-9223372036854775808) = 0", None),
    ("name + '!' = 'Anna!'", True),
    ("name + 1 = 'Anna1'", None),
    ("name - 'a' = 'Ann'", None),
    ("-name = 1", None),
    ("+name = name", None),
    ("-yes = 1", None),
    ("yes + 1 = 2", None),
    ("missing + 1 = 1", None),
    ("at + 1 = at", None),
    # system properties
    ("sys.MessageId = '00000000-0000-0000-0000-000000000007'", True),
    ("sys.CorrelationId = '41'", True),
    ("sys.Label = 'bus stop' AND sys.Subject = sys.label", True),
    ("SYS.TO = 'store' AND sys.ReplyTo = 'desk'", True),
    ("sys.ContentType = 'text/plain'", True),
    ("sys.SessionId = 's1' AND sys.ReplyToSessionId = 's2'", True),
    ("sys.EnqueuedTimeUtc = at", True),
    ("sys.ExpiresAtUtc > at", True),
    ("sys.PartitionKey = 'p'", True),
    ("sys.DeliveryCount = 0", True),
    ("sys.[Label] = 'bus stop'", True),
    # names
    ("user.one = 1 AND USER.ONE = 1 AND One = 1", True),
    ("[Camel Case] = 'yes' AND \"camel case\" = 'yes'", True),
    ("[a.b] = 3 AND user.[a.b] = 3", True),
    ("[it's]]] = 4", True),
    ("x_1 = 5", True),
    ("größe = 6 AND GRÖSSE IS NULL", True),
    ("user IS NULL AND sys IS NULL", True),
    # functions
    ("property('one') = 1 AND p('two') = 2", True),
    ("p('o' + 'ne') = 1", True),
    ("p('sys.Label') = 'bus stop' AND p('user.one') = 1", True),
    ("p('sys.Nothing') IS NULL AND p('a.b') = 3", True),
    ("p(one) IS NULL", True),
    ("newid() = newid()", False),
    ("newid() IS NOT NULL", True),
    # white space
    ("\n one\t=\r\n1 ", True),
]


@pytest.mark.parametrize(("expression", "expected"), TABLE, ids=[row[0] for row in TABLE])
def test_expression_gives(expression: str, expected: bool | None) -> None:
    assert truth_of(SqlFilter(expression), MESSAGE) is expected
    assert SqlFilter(expression).matches(MESSAGE) is (expected is True)


LIKE_TABLE: list[tuple[str, str, bool | None]] = [
    ("Anna", "'Anna'", True),
    ("Anna", "'anna'", False),
    ("Anna", "'A%'", True),
    ("Anna", "'%a'", True),
    ("Anna", "'%nn%'", True),
    ("Anna", "'A%n%a'", True),
    ("Anna", "'A%n%n%n%a'", False),
    ("Anna", "'____'", True),
    ("Anna", "'___'", False),
    ("Anna", "'_nn_'", True),
    ("Anna", "'%_n_%'", True),
    ("Anna", "'_____%'", False),
    ("Anna", "'%%%'", True),
    ("", "'%'", True),
    ("", "'_'", False),
    ("", "''", True),
    ("a\nb", "'a_b'", True),
    ("a\nb", "'%b'", True),
    ("a\n", "'a'", False),
    ("ABC%", "'ABC\\%' ESCAPE '\\'", True),
    ("ABCD", "'ABC\\%' ESCAPE '\\'", False),
    ("a_b", "'a!_b' ESCAPE '!'", True),
    ("axb", "'a!_b' ESCAPE '!'", False),
    ("a!", "'a!!' ESCAPE '!'", True),
    ("a.b*", "'a.b*'", True),
    ("axbb", "'a.b*'", False),
    ("[a]", "'[a]'", True),
    ("a%b", "'a%%b' ESCAPE '%'", True),
    ("aba", "'ab%ba'", False),
    ("x", "NULL + 'a'", None),
    ("Anna", "wanted", True),
    ("Anna", "wanted ESCAPE one", None),
    ("Anna", "one", None),
]


@pytest.mark.parametrize(("text", "pattern", "expected"), LIKE_TABLE)
def test_like(text: str, pattern: str, expected: bool | None) -> None:
    message = sample(text=text, wanted="A_n%", one=1)
    assert truth_of(SqlFilter(f"text LIKE {pattern}"), message) is expected
    negated = None if expected is None else not expected
    assert truth_of(SqlFilter(f"text NOT LIKE {pattern}"), message) is negated


def test_like_needs_a_string() -> None:
    assert truth_of(SqlFilter("one LIKE '1'"), sample(one=1)) is None
    assert truth_of(SqlFilter("one NOT LIKE '1'"), sample(one=1)) is None


def test_like_takes_linear_time_for_the_text() -> None:
    hostile = sample(text="a" * 60_000, pattern="%a" * 400 + "b")
    started = time.thread_time()
    assert truth_of(SqlFilter("text LIKE pattern"), hostile) is False
    assert truth_of(SqlFilter(f"text LIKE '%{'a_' * 200}b%'"), hostile) is False
    assert truth_of(SqlFilter(f"text LIKE '{'%a_' * 200}b'"), hostile) is False
    # Backtracking would take longer than the universe has; a generous bound keeps slow machines out of it.
    assert time.thread_time() - started < 5


def test_patterns_and_texts_beyond_the_limits_are_unknown() -> None:
    assert truth_of(SqlFilter("text LIKE p('pattern')"), sample(text="a", pattern="%" * 1025)) is None
    assert truth_of(SqlFilter("text LIKE '%'"), sample(text="a" * 65_537)) is None


PARAMETERS: list[tuple[str, dict[str, Any], bool | None]] = [
    ("one = @x", {"@x": 1}, True),
    ("one = @x", {"x": 1}, True),
    ("one = @X", {"@x": Int(1)}, True),
    ("name = @n", {"@n": "Anna"}, True),
    ("yes = @y", {"@y": True}, True),
    ("@y", {"@y": True}, True),
    ("half = @f", {"@f": 0.5}, True),
    ("at = @t", {"@t": datetime.datetime(2023, 11, 14, 22, 13, 20, tzinfo=datetime.UTC)}, True),
    ("at < @t", {"@t": datetime.datetime(2023, 11, 14, 22, 13, 20, 1)}, True),
    ("sys.TimeToLive = @d", {"@d": datetime.timedelta(seconds=60)}, True),
    ("span <= @d", {"@d": datetime.timedelta(seconds=1)}, True),
    ("id = @u", {"@u": uuid.UUID(int=1)}, True),
    ("one = @x", {"@x": None}, None),
    ("one = @x", {"@x": "1"}, None),
    ("one < @x", {"@x": UInt(5)}, True),
]


@pytest.mark.parametrize(("expression", "parameters", "expected"), PARAMETERS)
def test_parameters(expression: str, parameters: dict[str, Any], expected: bool | None) -> None:
    assert truth_of(SqlFilter(expression, parameters), MESSAGE) is expected


def test_names_are_found_without_regard_to_case_but_an_exact_one_wins() -> None:
    message = Sample(application_properties={"COLOR": "red", "color": "blue"})
    assert SqlFilter("color = 'blue'").matches(message)
    assert SqlFilter("COLOR = 'red'").matches(message)
    assert SqlFilter("Color = 'red'").matches(message)


def test_keys_that_are_no_strings_do_no_harm() -> None:
    message = Sample(application_properties={7: "seven", "Color": "red"})  # type: ignore[dict-item]
    assert SqlFilter("color = 'red'").matches(message)


def test_long_chains_need_no_stack() -> None:
    assert SqlFilter("+".join(["1"] * 500) + "=500").matches(MESSAGE)
    assert SqlFilter(" OR ".join(["one=2"] * 100) + " OR one=1").matches(MESSAGE)
