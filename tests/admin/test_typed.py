"""Typed values of filters."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pairbus.amqp import types as amqp
from pairbus.broker.admin.errors import AdminRefused
from pairbus.broker.admin.markup import XmlNode, parse, render
from pairbus.broker.admin.typed import read_pairs, write_pairs

SPACES = 'xmlns:i="http://www.w3.org/2001/XMLSchema-instance"'


def pairs(kind: str, text: str) -> XmlNode:
    value = f'<Value i:type="x:{kind}">{text}</Value>'
    pair = f"<KeyValueOfstringanyType><Key>k</Key>{value}</KeyValueOfstringanyType>"
    return parse(f"<Properties {SPACES}>{pair}</Properties>".encode())


@pytest.mark.parametrize(
    "value",
    [
        "text",
        "",
        True,
        False,
        2.5,
        float("inf"),
        amqp.Float(1.5),
        7,
        -(2**63),
        amqp.Int(-3),
        amqp.UInt(3),
        amqp.Short(3),
        amqp.UShort(3),
        amqp.Byte(-3),
        amqp.UByte(3),
        amqp.ULong(2**64 - 1),
        amqp.Char("é"),
        datetime(2020, 1, 1, 12, 30),
        datetime(2020, 1, 1, 12, 30, 1, 5, UTC),
        timedelta(hours=3, microseconds=5),
        timedelta(seconds=-90),
        uuid.UUID(int=7),
        b"\x00\xff",
        None,
    ],
    ids=repr,
)
def test_every_type_reads_back_as_itself(value: Any) -> None:
    written = render(write_pairs("Properties", {"k": value})).replace(
        b"<Properties>", f"<Properties {SPACES}>".encode()
    )
    back = read_pairs(parse(written))["k"]
    assert (back, type(back)) == (value, type(value))


def test_types_of_amqp_alone_are_written_as_their_neighbour() -> None:
    written = render(write_pairs("P", {"k": amqp.Timestamp(1_700_000_000_000), "s": amqp.Symbol("sym")}))
    assert b'd6p1:dateTime" xmlns:d6p1="http://www.w3.org/2001/XMLSchema">2023-11-14T22:13:20' in written
    assert b"d6p1:string" in written


def test_a_number_that_python_calls_int_may_need_more_bits() -> None:
    assert read_pairs(pairs("int", "-3000000000")) == {"k": -3_000_000_000}


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("int", "3000000000"),
        ("int", "one"),
        ("long", "9" * 5000),
        ("unsignedInt", "-1"),
        ("boolean", "perhaps"),
        ("double", "x"),
        ("dateTime", "yesterday"),
        ("duration", "soon"),
        ("guid", "x"),
        ("char", "99999999999"),
        ("base64Binary", "*"),
        ("base64Binary", "é"),
        ("sesame", "x"),
    ],
)
def test_values_that_are_not_of_their_type_are_refused(kind: str, text: str) -> None:
    with pytest.raises(AdminRefused, match="'k'") as caught:
        read_pairs(pairs(kind, text))
    assert caught.value.status == 400


def test_a_pair_without_key_or_value_is_refused() -> None:
    with pytest.raises(AdminRefused, match="Key and a Value"):
        read_pairs(parse(b"<P><KeyValueOfstringanyType><Key>k</Key></KeyValueOfstringanyType></P>"))
