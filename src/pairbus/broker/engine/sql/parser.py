"""From the text of a filter or an action to its tree, by recursive descent.

Grammar, the loosest binding first (capitals are keywords, case does not matter):

    predicate  := conjunct { OR conjunct }
    conjunct   := term { AND term }
    term       := NOT term | test
    test       := sum [ ( "=" | "<>" | "!=" | "<" | "<=" | ">" | ">=" ) sum
                      | IS [NOT] NULL | [NOT] IN "(" sum { "," sum } ")" | [NOT] LIKE sum [ ESCAPE sum ] ]
    sum        := product { ( "+" | "-" ) product }
    product    := factor { ( "*" | "/" | "%" ) factor }
    factor     := ( "+" | "-" ) factor | primary
    primary    := constant | @parameter | property | newid() | property(sum) | p(sum)
                | EXISTS "(" property ")" | "(" predicate ")"
    property   := [ ( sys | user ) "." ] ( name | [name] | "name" )
    statements := statement { [ ";" | "," ] statement }
    statement  := SET property "=" sum | REMOVE property

Rules:
1. A predicate gives true, false or unknown; everything else gives a value. They do not mix: `(a = 1) + 2`
   and `'x' AND b = 1` are refused when the rule is made. A property or a parameter may stand for a
   predicate, since it may hold a boolean.
2. `sys` and `user` are scopes only before a dot; elsewhere they are names like others.
3. Nesting is limited, because each level costs the parser stack.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from . import tree
from .lexer import SqlToken, TokenKind, malformed, tokenize
from .tree import Property, SqlNode, Statement

# A level costs about nine Python frames; 32 stay far below the interpreter's limit of 1,000 even when the
# caller is deep already, and nobody reads an expression that is nested deeper.
MAX_DEPTH: Final = 32
# Integers are 64 bits wide, as in the service. The magnitude of the lowest one is one more than the highest.
MAX_INTEGER: Final = 2**63 - 1

COMPARISONS: Final = frozenset({"=", "<>", "!=", "<", "<=", ">", ">="})
FUNCTIONS: Final = frozenset({"newid", "property", "p"})


def parse_predicate(expression: str) -> SqlNode:
    """Parse the text of a filter."""
    parser = _Parser(expression)
    node = parser.condition()
    parser.expect_end("Join conditions with AND or OR.")
    return node


def parse_statements(expression: str) -> tuple[Statement, ...]:
    """Parse the text of an action."""
    return _Parser(expression).statements()


def _require_predicate(node: SqlNode, position: int) -> None:
    if isinstance(node, tree.Literal) and isinstance(node.value, bool):
        return
    if isinstance(node, (*tree.PREDICATES, Property, tree.PropertyCall, tree.Parameter)):
        return
    raise malformed("a condition is expected, not a value", position, "Compare it with something: a = 1.")


def _require_value(node: SqlNode, position: int) -> None:
    if isinstance(node, tree.PREDICATES):
        raise malformed("a value is expected, not a condition", position, "Join conditions with AND or OR.")


class _Parser:
    def __init__(self, expression: str) -> None:
        self._tokens = tokenize(expression)
        self._next = 0
        self._depth = 0

    # -- tokens

    def peek(self) -> SqlToken:
        return self._tokens[self._next]

    def _take(self) -> SqlToken:
        token = self._tokens[self._next]
        if token.kind is not TokenKind.END:
            self._next += 1
        return token

    def _follows(self, kind: TokenKind, *texts: str, ahead: int = 0) -> bool:
        index = min(self._next + ahead, len(self._tokens) - 1)
        token = self._tokens[index]
        return token.kind is kind and token.text in texts

    def _took(self, kind: TokenKind, text: str) -> bool:
        found = self._follows(kind, text)
        self._next += found
        return found

    def _took_keyword(self, text: str) -> bool:
        return self._took(TokenKind.KEYWORD, text)

    def _took_symbol(self, text: str) -> bool:
        return self._took(TokenKind.SYMBOL, text)

    def _expect_symbol(self, text: str, hint: str) -> None:
        if not self._took_symbol(text):
            raise malformed(f"'{text}' is expected, not {self.peek()}", self.peek().position, hint)

    def _expect_keyword(self, text: str, hint: str) -> None:
        if not self._took_keyword(text):
            raise malformed(f"{text} is expected, not {self.peek()}", self.peek().position, hint)

    def expect_end(self, hint: str) -> None:
        if self.peek().kind is not TokenKind.END:
            raise malformed(f"{self.peek()} is not expected", self.peek().position, hint)

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise malformed(
                f"it is nested deeper than {MAX_DEPTH} levels", self.peek().position, "Use fewer parentheses."
            )

    def _leave(self) -> None:
        self._depth -= 1

    # -- predicates

    def condition(self) -> SqlNode:
        return self._condition_of(self._predicate)

    def _predicate(self) -> SqlNode:
        return self._junction(conjunction=False)

    def _junction(self, *, conjunction: bool) -> SqlNode:
        word = "AND" if conjunction else "OR"
        read = self._term if conjunction else partial(self._junction, conjunction=True)
        start = self.peek().position
        first = read()
        if not self._follows(TokenKind.KEYWORD, word):
            return first
        _require_predicate(first, start)
        operands = [first]
        while self._took_keyword(word):
            operands.append(self._condition_of(read))
        return tree.Junction(conjunction, tuple(operands))

    def _condition_of(self, read: Callable[[], SqlNode]) -> SqlNode:
        start = self.peek().position
        node = read()
        _require_predicate(node, start)
        return node

    def _term(self) -> SqlNode:
        if not self._took_keyword("NOT"):
            return self._test()
        self._enter()
        operand = self._condition_of(self._term)
        self._leave()
        return tree.Negation(operand)

    def _test(self) -> SqlNode:
        start = self.peek().position
        left = self._sum()
        token = self.peek()
        if token.kind is TokenKind.SYMBOL and token.text in COMPARISONS:
            return self._comparison(left, start)
        if self._follows(TokenKind.KEYWORD, "IS", "IN", "LIKE", "NOT"):
            _require_value(left, start)
            return self._keyword_test(left)
        return left

    def _comparison(self, left: SqlNode, start: int) -> SqlNode:
        _require_value(left, start)
        operator = self._take().text
        right = self._value()
        token = self.peek()
        if token.kind is TokenKind.SYMBOL and token.text in COMPARISONS:
            raise malformed("comparisons do not chain", token.position, "Write a < b AND b < c.")
        return tree.Comparison("<>" if operator == "!=" else operator, left, right)

    def _keyword_test(self, left: SqlNode) -> SqlNode:
        if self._took_keyword("IS"):
            negated = self._took_keyword("NOT")
            self._expect_keyword("NULL", "Write IS NULL or IS NOT NULL.")
            return tree.NullTest(left, negated)
        negated = self._took_keyword("NOT")
        if self._took_keyword("IN"):
            return self._membership(left, negated=negated)
        position = self.peek().position
        self._expect_keyword("LIKE", "After a value NOT is followed by IN or LIKE.")
        pattern = self._value()
        escape = self._value() if self._took_keyword("ESCAPE") else None
        return tree.Like(left, pattern, escape, negated, position)

    def _membership(self, left: SqlNode, *, negated: bool) -> SqlNode:
        self._expect_symbol("(", "Write the choices as IN ('a', 'b').")
        choices = [self._value()]
        while self._took_symbol(","):
            choices.append(self._value())
        self._expect_symbol(")", "Close the list of IN with ')'.")
        return tree.Membership(left, tuple(choices), negated)

    # -- values

    def _value(self) -> SqlNode:
        return self._value_of(self._sum)

    def _value_of(self, read: Callable[[], SqlNode]) -> SqlNode:
        start = self.peek().position
        node = read()
        _require_value(node, start)
        return node

    def _sum(self) -> SqlNode:
        return self._chain(("+", "-"))

    def _chain(self, operators: tuple[str, ...]) -> SqlNode:
        read = partial(self._chain, ("*", "/", "%")) if operators == ("+", "-") else self._factor
        start = self.peek().position
        first = read()
        rest: list[tuple[str, SqlNode]] = []
        while self._follows(TokenKind.SYMBOL, *operators):
            _require_value(first, start)
            rest.append((self._take().text, self._value_of(read)))
        return tree.Arithmetic(first, tuple(rest)) if rest else first

    def _factor(self) -> SqlNode:
        if not self._follows(TokenKind.SYMBOL, "+", "-"):
            return self._primary()
        negative = self._take().text == "-"
        if self.peek().kind is TokenKind.INTEGER:
            # With its sign, so that the lowest 64-bit integer can be written.
            return self._integer(negative=negative)
        self._enter()
        operand = self._value_of(self._factor)
        self._leave()
        return tree.Sign(negative, operand)

    def _integer(self, *, negative: bool) -> SqlNode:
        token = self._take()
        value = int(token.text)
        if value > MAX_INTEGER + (1 if negative else 0):
            raise malformed(
                "the integer does not fit into 64 bits", token.position, "Write it with a point: 1.0E20."
            )
        return tree.Literal(-value if negative else value)

    def _primary(self) -> SqlNode:
        token = self.peek()
        if token.kind is TokenKind.INTEGER:
            return self._integer(negative=False)
        if token.kind in (TokenKind.NAME, TokenKind.DELIMITED_NAME):
            return self._call_or_property()
        if self._follows(TokenKind.SYMBOL, "("):
            return self._parenthesis()
        if self._follows(TokenKind.KEYWORD, "EXISTS"):
            return self._existence()
        if self._follows(TokenKind.KEYWORD, "TRUE", "FALSE", "NULL"):
            return tree.Literal({"TRUE": True, "FALSE": False, "NULL": None}[self._take().text])
        if token.kind in (TokenKind.TEXT, TokenKind.DECIMAL, TokenKind.PARAMETER):
            return self._simple(self._take())
        hint = "Write a constant, a property, a @parameter or a condition here."
        if token.kind is TokenKind.KEYWORD:
            hint = f"A property named like a keyword is written in brackets: [{token.text}]."
        raise malformed(f"{token} is not expected", token.position, hint)

    def _simple(self, token: SqlToken) -> SqlNode:
        if token.kind is TokenKind.TEXT:
            return tree.Literal(token.text)
        if token.kind is TokenKind.DECIMAL:
            return tree.Literal(float(token.text))
        return tree.Parameter(token.text, token.position)

    def _parenthesis(self) -> SqlNode:
        self._take()
        self._enter()
        node = self._predicate()
        self._expect_symbol(")", "Close every '(' with ')'.")
        self._leave()
        return node

    def _existence(self) -> SqlNode:
        self._take()
        self._expect_symbol("(", "Write EXISTS(property).")
        subject = self._property()
        self._expect_symbol(")", "EXISTS takes one property: EXISTS(property).")
        return tree.Existence(subject)

    def _call_or_property(self) -> SqlNode:
        token = self.peek()
        if token.kind is not TokenKind.NAME or not self._follows(TokenKind.SYMBOL, "(", ahead=1):
            return self._property()
        function = token.text.lower()
        if function not in FUNCTIONS:
            problem = f"there is no function {token.text}"
            raise malformed(problem, token.position, "Functions are newid(), property(name), p(name).")
        self._take()
        self._take()
        if function == "newid":
            self._expect_symbol(")", "newid() takes no argument.")
            return tree.NewId()
        self._enter()
        argument = self._value()
        self._expect_symbol(")", f"{token.text}() takes one argument.")
        self._leave()
        return tree.PropertyCall(argument)

    def _property(self) -> Property:
        scope = tree.Scope.USER
        token = self._take_name()
        if self._took_symbol("."):
            wanted = token.text.lower()
            if token.kind is not TokenKind.NAME or wanted not in ("sys", "user"):
                raise malformed(
                    f"{token.text!r} is no scope",
                    token.position,
                    "Scopes are sys and user; write a name with a dot in brackets: [a.b].",
                )
            scope = tree.Scope.SYSTEM if wanted == "sys" else tree.Scope.USER
            token = self._take_name()
        return Property(scope, token.text, token.position)

    def _take_name(self) -> SqlToken:
        token = self._take()
        if token.kind not in (TokenKind.NAME, TokenKind.DELIMITED_NAME):
            hint = 'Write a name, [a name] or "a name"; keywords need brackets.'
            raise malformed(f"a property name is expected, not {token}", token.position, hint)
        return token

    # -- statements

    def statements(self) -> tuple[Statement, ...]:
        statements = [self._statement()]
        while True:
            separated = self._took_symbol(";") or self._took_symbol(",")
            if self.peek().kind is TokenKind.END:
                return tuple(statements)
            if not separated and not self._follows(TokenKind.KEYWORD, "SET", "REMOVE"):
                self.expect_end("Write SET property = value or REMOVE property, with ';' between.")
            statements.append(self._statement())

    def _statement(self) -> Statement:
        if self._took_keyword("REMOVE"):
            return tree.RemoveProperty(self._property())
        self._expect_keyword("SET", "Write SET property = value or REMOVE property, with ';' between.")
        subject = self._property()
        self._expect_symbol("=", "Write SET property = value.")
        return tree.SetProperty(subject, self._value())
