"""Decimal numbers among the application properties, as the service hands them on.

It reads them into a number of .NET, 96 bits and a scale of at most 28, and writes that anew: with the upper
bits of the exponent two places further to the right than IEEE 754 has them. The official Python client reads
that form alone: a receiver that is given what the sender wrote fails, each time it is given it. A number that
.NET has no room for stays as it came.
"""

from collections.abc import Mapping
from typing import Any, Final

from pairbus.amqp.message import encode_application_properties
from pairbus.amqp.types import Decimal128

_CODE: Final = b"\x94"
_BIAS: Final = 6176
_MOST_SCALE: Final = 28
_COEFFICIENTS: Final = 1 << 96


def rewrite_decimals(raw: bytes, properties: Mapping[str, Any]) -> bytes:
    """The section of application properties to hand on, of the one that came and what it says."""
    if _CODE not in raw:  # which no ASCII text has in it
        return raw
    changed = {
        key: _rewrite(value) if isinstance(value, Decimal128) else value for key, value in properties.items()
    }
    return raw if changed == properties else encode_application_properties(changed)


def _rewrite(value: Decimal128) -> Decimal128:
    """A number in the service's form; itself if it has that form, which .NET has no other number in."""
    sign, whole = value[0] & 0x80, int.from_bytes(value)
    exponent, coefficient = (whole >> 113 & 0x3FFF) - _BIAS, whole & (1 << 113) - 1
    if not -_MOST_SCALE <= exponent <= _MOST_SCALE:  # also if it is infinite, or none
        return value
    coefficient *= 10 ** max(0, exponent)
    if coefficient >= _COEFFICIENTS:
        return value
    written = _BIAS + min(0, exponent)
    return Decimal128(bytes((sign | written >> 9, (written & 0x7F) << 1, 0, 0)) + coefficient.to_bytes(12))
