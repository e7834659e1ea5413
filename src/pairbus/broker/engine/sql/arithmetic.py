"""Arithmetic of rule expressions, as C# does it but without its exceptions.

Integers are 64 bits wide and divide towards zero; with a float the result is a float, by IEEE 754. Strings
are joined by `+`. What has no result (other types, overflow, division of an integer by zero) is unknown,
which is None: an expression must never fail because of what a message holds.
"""

import math
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from pairbus.broker.engine.typed_values import comparable

Number: TypeAlias = int | float

# Longer strings are unknown: the service takes no property of more than 64 KiB, and a row of "SET a = a + a"
# would otherwise double a string without end.
MAX_TEXT: Final = 65_536

LOWEST: Final = -(2**63)
HIGHEST: Final = 2**63 - 1


def calculate(operator: str, left: object, right: object) -> Any:
    """Apply a binary operator; None is unknown."""
    a, b = comparable(left), comparable(right)
    if a is None or b is None or a[0] != b[0]:
        return None
    if a[0] == "number":
        return _calculate_number(operator, a[1], b[1])
    if a[0] == "string" and operator == "+":
        return a[1] + b[1] if len(a[1]) + len(b[1]) <= MAX_TEXT else None
    return None


def negate(operand: object) -> Any:
    """Apply unary minus; None is unknown."""
    form = comparable(operand)
    if form is None or form[0] != "number":
        return None
    return -form[1] if isinstance(form[1], float) else _bounded(-form[1])


def _calculate_number(operator: str, left: Number, right: Number) -> Number | None:
    if isinstance(left, int) and isinstance(right, int):
        if right == 0 and operator in "/%":
            return None
        return _bounded(_INTEGER_OPERATORS[operator](left, right))
    # Both fit a float: integers of AMQP are at most 64 bits wide.
    return _FLOAT_OPERATORS[operator](float(left), float(right))


def _bounded(value: int) -> int | None:
    return int(value) if LOWEST <= value <= HIGHEST else None


def _divide(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _divide_floats(left: float, right: float) -> float:
    if right != 0.0:
        return left / right
    if left == 0.0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def _remainder_floats(left: float, right: float) -> float:
    if right == 0.0 or math.isinf(left):
        return math.nan
    return math.fmod(left, right)


_INTEGER_OPERATORS: Final[dict[str, Callable[[int, int], int]]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": _divide,
    "%": lambda left, right: left - right * _divide(left, right),
}
_FLOAT_OPERATORS: Final[dict[str, Callable[[float, float], float]]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": _divide_floats,
    "%": _remainder_floats,
}
