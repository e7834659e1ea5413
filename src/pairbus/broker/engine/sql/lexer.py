"""Words of the SQL that subscription rules are written in.

An expression is at most `MAX_EXPRESSION` characters, so the lexer reads it whole. Every refusal names the
position (counted from 1) and says how to mend the text, because the person who wrote it sees nothing else.
"""

import enum
import math
from dataclasses import dataclass
from typing import Final

from pairbus.broker.engine.errors import Refused, bad_argument
from pairbus.broker.engine.typed_values import HALF_CHARACTER

# The service's own limit on the text of a filter or an action.
MAX_EXPRESSION: Final = 1024

KEYWORDS: Final = frozenset(
    {"AND", "OR", "NOT", "IS", "NULL", "EXISTS", "IN", "LIKE", "ESCAPE", "TRUE", "FALSE", "SET", "REMOVE"}
)
# Longest first, so that "<=" is not read as "<" and "=".
SYMBOLS: Final = ("<>", "!=", "<=", ">=", "=", "<", ">", "+", "-", "*", "/", "%", "(", ")", ",", ".", ";")
CLOSING: Final = {"'": "'", '"': '"', "[": "]"}


class TokenKind(enum.Enum):
    KEYWORD = "keyword"
    NAME = "name"
    DELIMITED_NAME = "delimited name"
    PARAMETER = "parameter"
    TEXT = "text"
    INTEGER = "integer"
    DECIMAL = "decimal"
    SYMBOL = "symbol"
    END = "end"


@dataclass(frozen=True, slots=True)
class SqlToken:
    """One word. `text` is a keyword in capitals, a name or string without its quotes, digits, or a sign."""

    kind: TokenKind
    text: str
    position: int

    def __str__(self) -> str:
        return "the end of the expression" if self.kind is TokenKind.END else repr(self.text)


def malformed(problem: str, position: int, hint: str) -> Refused:
    """Build (not raise) the refusal of an expression, so that callers write `raise malformed(...)`."""
    text = f"The SQL expression is malformed at position {position + 1}: {problem}. {hint}"
    return bad_argument(text)


def tokenize(expression: str) -> list[SqlToken]:
    """Split the expression into tokens; the last is always of kind END."""
    if len(expression) > MAX_EXPRESSION:
        raise malformed(
            f"it has {len(expression)} characters and {MAX_EXPRESSION} are allowed",
            MAX_EXPRESSION,
            "Shorten it, or spread it over several rules.",
        )
    if (half := HALF_CHARACTER.search(expression)) is not None:
        raise malformed("there is half of a character", half.start(), "Write it whole, or leave it out.")
    tokens: list[SqlToken] = []
    position = 0
    while position < len(expression):
        if expression[position].isspace():
            position += 1
            continue
        token, position = _read_token(expression, position)
        tokens.append(token)
    tokens.append(SqlToken(TokenKind.END, "", position))
    return tokens


def _read_token(expression: str, start: int) -> tuple[SqlToken, int]:
    first = expression[start]
    if first in CLOSING:
        text, end = _read_quoted(expression, start)
        kind = TokenKind.TEXT if first == "'" else TokenKind.DELIMITED_NAME
        return SqlToken(kind, text, start), end
    if first.isalpha():
        return _read_word(expression, start)
    if first == "@":
        return _read_parameter(expression, start)
    if _is_digit(first) or (first == "." and _is_digit(expression[start + 1 : start + 2])):
        return _read_number(expression, start)
    for symbol in SYMBOLS:
        if expression.startswith(symbol, start):
            return SqlToken(TokenKind.SYMBOL, symbol, start), start + len(symbol)
    raise malformed(
        f"{first!r} has no meaning here", start, "Names with such characters are written in brackets: [a-b]."
    )


def _read_quoted(expression: str, start: int) -> tuple[str, int]:
    closing = CLOSING[expression[start]]
    parts: list[str] = []
    position = start + 1
    while True:
        end = expression.find(closing, position)
        if end < 0:
            raise malformed(
                f"the {expression[start]} is never closed",
                start,
                f"Close it with {closing}; inside, write {closing} twice.",
            )
        parts.append(expression[position:end])
        if not expression.startswith(closing, end + 1):
            break
        parts.append(closing)
        position = end + 2
    text = "".join(parts)
    if not text and closing != "'":
        raise malformed("a property name is empty", start, "Write the name between the quotes.")
    return text, end + 1


def _read_word(expression: str, start: int) -> tuple[SqlToken, int]:
    end = _end_of_word(expression, start)
    word = expression[start:end]
    if word.upper() in KEYWORDS:
        return SqlToken(TokenKind.KEYWORD, word.upper(), start), end
    return SqlToken(TokenKind.NAME, word, start), end


def _read_parameter(expression: str, start: int) -> tuple[SqlToken, int]:
    end = _end_of_word(expression, start + 1)
    if end == start + 1:
        raise malformed("'@' has no name after it", start, "Write a parameter as @name.")
    return SqlToken(TokenKind.PARAMETER, expression[start + 1 : end], start), end


def _read_number(expression: str, start: int) -> tuple[SqlToken, int]:
    end = _end_of_digits(expression, start)
    kind = TokenKind.INTEGER
    if expression.startswith(".", end):
        kind, end = TokenKind.DECIMAL, _end_of_digits(expression, end + 1)
    if expression[end : end + 1] in ("e", "E"):
        exponent = end + 2 if expression[end + 1 : end + 2] in ("+", "-") else end + 1
        kind, end = TokenKind.DECIMAL, _end_of_digits(expression, exponent)
        if end == exponent:
            raise malformed("the exponent has no digits", start, "Write it as in 1.5E3.")
    if _end_of_word(expression, end) != end:
        raise malformed("a number runs into a word", start, "Put a space after it; write a name as [1name].")
    text = expression[start:end]
    if kind is TokenKind.DECIMAL and math.isinf(float(text)):
        raise malformed("the number is too large", start, "It must fit a 64-bit float.")
    return SqlToken(kind, text, start), end


def _is_digit(character: str) -> bool:
    # ASCII only: str.isdigit also takes superscripts, which int() refuses.
    return len(character) == 1 and "0" <= character <= "9"


def _end_of_digits(expression: str, position: int) -> int:
    while position < len(expression) and _is_digit(expression[position]):
        position += 1
    return position


def _end_of_word(expression: str, position: int) -> int:
    while position < len(expression) and (expression[position].isalnum() or expression[position] == "_"):
        position += 1
    return position
