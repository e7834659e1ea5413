"""Decimals among the application properties: the number stays, its form becomes the service's."""

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from pairbus.amqp.message import encode_application_properties, scan
from pairbus.amqp.types import Decimal128
from pairbus.broker.engine.decimals import rewrite_decimals

WIDEST = (1 << 96) - 1


def ieee(sign: int, coefficient: int, exponent: int) -> Decimal128:
    """A number as the standard has it: a sign, 14 bits of exponent, 113 of coefficient."""
    return Decimal128((sign << 127 | (exponent + 6176) << 113 | coefficient).to_bytes(16))


def rewritten(value: Decimal128) -> Decimal128:
    raw = encode_application_properties({"price": value, "other": "t\u0094"})
    found = scan(rewrite_decimals(raw, scan(raw).application_properties)).application_properties
    assert list(found) == ["price", "other"]
    assert found["other"] == "t\u0094"
    assert type(found["price"]) is Decimal128
    return found["price"]


def as_the_client_reads_it(value: Decimal128) -> Decimal:
    """By the rule of the official Python client."""
    exponent = (value[0] & 0x7F) << 9 | value[1] >> 1
    found = int.from_bytes(value[4:]) * Decimal(10) ** (exponent - 6176)
    return -found if value[0] & 0x80 else found


@given(st.integers(0, 1), st.integers(0, WIDEST), st.integers(-28, 0))
def test_what_dotnet_has_room_for_keeps_its_value(sign: int, coefficient: int, exponent: int) -> None:
    found = rewritten(ieee(sign, coefficient, exponent))
    assert as_the_client_reads_it(found) == [1, -1][sign] * coefficient * Decimal(10) ** exponent
    assert rewritten(found) == found


@given(st.integers(0, 10**9), st.integers(1, 18))
def test_an_exponent_above_nought_is_multiplied(coefficient: int, exponent: int) -> None:
    assert as_the_client_reads_it(rewritten(ieee(0, coefficient, exponent))) == coefficient * 10**exponent


@given(
    st.builds(ieee, st.just(0), st.integers(0, WIDEST), st.integers(-60, -29))
    | st.builds(ieee, st.just(1), st.integers(1, WIDEST), st.integers(29, 6111))
    | st.builds(ieee, st.just(0), st.integers(WIDEST + 1, (1 << 113) - 1), st.integers(-28, 28))
    | st.just(Decimal128(b"\x7c" + bytes(15)))
)
def test_what_dotnet_has_no_room_for_stays_as_it_came(value: Decimal128) -> None:
    assert rewritten(value) == value
