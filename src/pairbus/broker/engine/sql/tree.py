"""What the parser makes of an expression.

Chains (`a AND b AND c`, `1 + 2 + 3`) are one node with many operands, never a tree leaning to one side:
the depth of a tree is then the depth of its parentheses, which the parser limits, and nothing that walks a
tree can run out of stack.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TypeAlias


class Scope(enum.Enum):
    USER = "user"
    SYSTEM = "sys"


@dataclass(frozen=True, slots=True)
class Literal:
    value: str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    position: int


@dataclass(frozen=True, slots=True)
class Property:
    scope: Scope
    name: str
    position: int


@dataclass(frozen=True, slots=True)
class PropertyCall:
    """`property(expression)` or `p(expression)`: the name is known only when a message is there."""

    name: SqlNode


@dataclass(frozen=True, slots=True)
class NewId:
    """`newid()`"""


@dataclass(frozen=True, slots=True)
class Sign:
    """Unary `+` or `-`."""

    negative: bool
    operand: SqlNode


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`first op operand op operand …`, worked off from the left."""

    first: SqlNode
    rest: tuple[tuple[str, SqlNode], ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    operator: str
    left: SqlNode
    right: SqlNode


@dataclass(frozen=True, slots=True)
class NullTest:
    operand: SqlNode
    negated: bool


@dataclass(frozen=True, slots=True)
class Existence:
    subject: Property


@dataclass(frozen=True, slots=True)
class Membership:
    operand: SqlNode
    choices: tuple[SqlNode, ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class Like:
    operand: SqlNode
    pattern: SqlNode
    escape: SqlNode | None
    negated: bool
    position: int


@dataclass(frozen=True, slots=True)
class Negation:
    operand: SqlNode


@dataclass(frozen=True, slots=True)
class Junction:
    """`AND` (conjunction) or `OR` of two or more operands."""

    conjunction: bool
    operands: tuple[SqlNode, ...]


SqlNode: TypeAlias = (
    Literal
    | Parameter
    | Property
    | PropertyCall
    | NewId
    | Sign
    | Arithmetic
    | Comparison
    | NullTest
    | Existence
    | Membership
    | Like
    | Negation
    | Junction
)

#: What gives true, false or unknown, whatever it is made of.
PREDICATES = (Comparison, NullTest, Existence, Membership, Like, Negation, Junction)


@dataclass(frozen=True, slots=True)
class SetProperty:
    subject: Property
    value: SqlNode


@dataclass(frozen=True, slots=True)
class RemoveProperty:
    subject: Property


Statement: TypeAlias = SetProperty | RemoveProperty
