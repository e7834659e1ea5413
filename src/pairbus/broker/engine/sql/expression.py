"""SQL of subscription rules: filters and actions, compiled once into closures and run for every message.

Theory of operation:
1. A closure takes a message and gives a value. None is *unknown*: a property that is missing, a null, an
   operation between types that do not go together. Nothing that a message holds makes a closure raise.
2. Predicates are three-valued. AND is false if any operand is false, else unknown if any is unknown; OR is
   its mirror; NOT of unknown is unknown. A filter takes a message only when its predicate is true.
3. Comparisons need two values of one kind (`typed_values`): a string compared with a number is unknown, for
   `=` and for `<>` alike. Booleans, uuids and binaries have no order, so `<` between them is unknown.
   Strings compare by code point and with regard to case.
4. `x IN (a, b)` is `x = a OR x = b` and `NOT IN` its negation: an unknown choice can make it unknown.
5. `IS NULL` and `EXISTS` are never unknown. They differ for a property that is there and holds null.
6. Names of properties, parameters, functions and keywords are found without regard to case.
7. What can be known without a message is refused when the rule is made: syntax, system properties that do not
   exist, parameters without a value, escapes that are not one character.
"""

import operator
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from pairbus.broker.engine.breath import breathe
from pairbus.broker.engine.system_properties import SYSTEM_PROPERTIES, Filterable, SystemProperty, lookup
from pairbus.broker.engine.typed_values import comparable, equal

from . import tree
from .arithmetic import MAX_TEXT, calculate, negate
from .lexer import MAX_EXPRESSION, malformed
from .like import compile_pattern
from .parser import parse_predicate
from .tree import SqlNode

Evaluator: TypeAlias = Callable[[Filterable], Any]
Predicate: TypeAlias = Callable[[Filterable], bool | None]
Parameters: TypeAlias = Mapping[str, Any]

ORDERED_KINDS: Final = frozenset({"string", "number", "time", "duration"})
COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def compile_predicate(expression: str, parameters: Parameters) -> Predicate:
    """Compile the text of a filter; raises Refused where the text is wrong."""
    return _Compiler(parameters).predicate(parse_predicate(expression))


def compile_value(node: SqlNode, parameters: Parameters) -> Evaluator:
    """Compile one value of an action; raises Refused where it is wrong."""
    return _Compiler(parameters).value(node)


def find_system_property(subject: tree.Property) -> SystemProperty:
    """Find what `sys.name` means; raises Refused if it means nothing."""
    found = SYSTEM_PROPERTIES.get(subject.name.lower())
    if found is None:
        names = ", ".join(each.name for each in SYSTEM_PROPERTIES.values())
        problem = f"there is no system property {subject.name!r}"
        raise malformed(problem, subject.position, f"There are: {names}.")
    return found


class _Compiler:
    def __init__(self, parameters: Parameters) -> None:
        # Clients write the names with or without their "@".
        self._parameters = {name.removeprefix("@").lower(): value for name, value in parameters.items()}

    # -- predicates

    def predicate(self, node: SqlNode) -> Predicate:
        match node:
            case tree.Junction():
                operands = [self.predicate(each) for each in node.operands]
                return _junction(operands, decisive=not node.conjunction)
            case tree.Negation():
                return _negation(self.predicate(node.operand))
            case tree.Comparison():
                return _comparison(node.operator, self.value(node.left), self.value(node.right))
            case tree.NullTest():
                return _null_test(self.value(node.operand), negated=node.negated)
            case tree.Existence():
                return self._existence(node.subject)
            case tree.Membership():
                return self._membership(node)
            case tree.Like():
                return self._like(node)
            case _:
                return _truth(self.value(node))

    def _existence(self, subject: tree.Property) -> Predicate:
        if subject.scope is tree.Scope.SYSTEM:
            read = find_system_property(subject).read
            return lambda message: read(message) is not None
        name = subject.name
        return lambda message: lookup(message.application_properties, name) is not None

    def _membership(self, node: tree.Membership) -> Predicate:
        operand = self.value(node.operand)
        choices = [self.value(choice) for choice in node.choices]

        def contains(message: Filterable) -> bool | None:
            value = operand(message)
            unknown = False
            for choice in choices:
                same = equal(value, choice(message))
                if same:
                    return True
                unknown = unknown or same is None
            return None if unknown else False

        return _negation(contains) if node.negated else contains

    def _like(self, node: tree.Like) -> Predicate:
        self._check_constant_pattern(node)
        operand, pattern = self.value(node.operand), self.value(node.pattern)
        escape = self.value(node.escape) if node.escape is not None else None

        def like(message: Filterable) -> bool | None:
            escape_character = escape(message) if escape is not None else ""
            return _match_pattern(operand(message), pattern(message), escape_character)

        return _negation(like) if node.negated else like

    def _check_constant_pattern(self, node: tree.Like) -> None:
        escape = node.escape.value if isinstance(node.escape, tree.Literal) else ""
        if isinstance(node.escape, tree.Literal) and not (isinstance(escape, str) and len(escape) == 1):
            raise malformed("the escape is not one character", node.position, "Write it as in ESCAPE '\\'.")
        if not isinstance(node.pattern, tree.Literal):
            return
        if not isinstance(node.pattern.value, str):
            raise malformed("the pattern is no string", node.position, "Write it in quotes: LIKE 'ab%'.")
        known_escape = node.escape is None or isinstance(node.escape, tree.Literal)
        if known_escape and compile_pattern(node.pattern.value, str(escape) or None) is None:
            problem = "the pattern ends with its escape character"
            raise malformed(problem, node.position, "Write the escape character twice.")

    # -- values

    def value(self, node: SqlNode) -> Evaluator:
        match node:
            case tree.Literal():
                return _constant(node.value)
            case tree.Parameter():
                return _constant(self._parameter(node))
            case tree.Property(scope=tree.Scope.SYSTEM):
                return find_system_property(node).read
            case tree.Property():
                return _user_property(node.name)
            case tree.PropertyCall():
                return _named_property(self.value(node.name))
            case tree.NewId():
                return lambda _: uuid.uuid4()
            case tree.Sign():
                return _sign(self.value(node.operand), negative=node.negative)
            case tree.Arithmetic():
                return _arithmetic(self.value(node.first), [(op, self.value(each)) for op, each in node.rest])
            case _:
                return self.predicate(node)

    def _parameter(self, node: tree.Parameter) -> Any:
        try:
            return self._parameters[node.name.lower()]
        except KeyError:
            problem = f"the parameter @{node.name} has no value"
            raise malformed(problem, node.position, "Give it among the rule's parameters.") from None


def _constant(value: Any) -> Evaluator:
    return lambda _: value


def _user_property(name: str) -> Evaluator:
    def read(message: Filterable) -> Any:
        properties = message.application_properties
        if name in properties:
            return properties[name]
        key = lookup(properties, name)
        return properties[key] if key is not None else None

    return read


def _named_property(name: Evaluator) -> Evaluator:
    def read(message: Filterable) -> Any:
        text = name(message)
        if not isinstance(text, str):
            return None
        scope, dot, rest = text.partition(".")
        if dot and scope.lower() == "sys":
            system = SYSTEM_PROPERTIES.get(rest.lower())
            return system.read(message) if system is not None else None
        return _user_property(rest if dot and scope.lower() == "user" else text)(message)

    return read


def _sign(operand: Evaluator, *, negative: bool) -> Evaluator:
    if negative:
        return lambda message: negate(operand(message))
    # Plus changes nothing but still needs a number.
    return lambda message: calculate("+", 0, operand(message))


def _arithmetic(first: Evaluator, rest: list[tuple[str, Evaluator]]) -> Evaluator:
    def work_off(message: Filterable) -> Any:
        result = first(message)
        for symbol, operand in rest:
            if result is None:
                return None
            result = calculate(symbol, result, operand(message))
        return result

    return work_off


def _truth(value: Evaluator) -> Predicate:
    def read(message: Filterable) -> bool | None:
        found = value(message)
        return found if isinstance(found, bool) else None

    return read


def _negation(operand: Predicate) -> Predicate:
    def negated(message: Filterable) -> bool | None:
        truth = operand(message)
        return None if truth is None else not truth

    return negated


def _junction(operands: list[Predicate], *, decisive: bool) -> Predicate:
    """AND, decided by the first false, or OR, decided by the first true."""

    def join(message: Filterable) -> bool | None:
        unknown = False
        for operand in operands:
            truth = operand(message)
            if truth is decisive:
                return decisive
            unknown = unknown or truth is None
        return None if unknown else not decisive

    return join


def _comparison(symbol: str, left: Evaluator, right: Evaluator) -> Predicate:
    compare = COMPARE[symbol]
    ordering = symbol not in ("=", "<>")

    def test(message: Filterable) -> bool | None:
        a, b = comparable(left(message)), comparable(right(message))
        if a is None or b is None or a[0] != b[0] or (ordering and a[0] not in ORDERED_KINDS):
            return None
        return compare(a[1], b[1])

    return test


def _null_test(operand: Evaluator, *, negated: bool) -> Predicate:
    return lambda message: (operand(message) is None) is not negated


def _match_pattern(text: object, pattern: object, escape: object) -> bool | None:
    if not isinstance(text, str) or not isinstance(pattern, str) or not isinstance(escape, str):
        return None
    # Bounds the work: patterns may come from messages too.
    if len(text) > MAX_TEXT or len(pattern) > MAX_EXPRESSION or len(escape) > 1:
        return None
    breathe()
    matches = compile_pattern(pattern, escape or None)
    return matches(text) if matches is not None else None
