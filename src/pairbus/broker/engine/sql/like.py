"""Patterns of `LIKE`: `%` is any text, `_` any one character.

Rules:
1. A pattern is cut at its `%` into pieces of fixed length. The first and the last are tied to the ends of
   the text; each of the others is taken at the leftmost place where it fits. Leftmost is never wrong, since
   what follows may start anywhere later: there is no backtracking.
2. A piece without `_` is found by `str.find`, which is linear. One with `_` is found by a regular expression
   without repetition, which is as many steps a character of the text as the piece is long; so only if that
   is short. A long one is found by numbers whose bits tell how much of it has been seen (`_LongPiece`): one
   step a character, and a step is of as many machine words as the piece has times 64 characters.
3. Pattern and text may both come with a message, as properties: whatever they are, the work is that of a few
   reads of the text.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeAlias

from pairbus.broker.engine.breath import breathe

Matcher: TypeAlias = Callable[[str], bool]

# Patterns that are not constants (a property, a parameter) are compiled when a message comes.
CACHED_PATTERNS: Final = 256
# Pieces with `_` that are longer are not left to a regular expression.
LONG: Final = 32
# Characters that are looked at in a moment.
_AT_ONCE: Final = 256


class _Piece:
    """Text between two `%`; None stands for `_`."""

    __slots__ = ("_expression", "_long", "_plain", "length")

    def __init__(self, characters: list[str | None]) -> None:
        self.length = len(characters)
        plain = [character for character in characters if character is not None]
        self._plain = "".join(plain) if len(plain) == len(characters) else None
        self._long = _LongPiece(characters) if self._plain is None and self.length > LONG else None
        source = "".join("." if character is None else re.escape(character) for character in characters)
        self._expression = re.compile(source, re.DOTALL)

    def find(self, text: str, start: int, end: int) -> int:
        """Where the piece first fits between start and end; -1 if nowhere."""
        if self._plain is not None:
            return text.find(self._plain, start, end)
        if self._long is not None:
            return self._long.find(text[start:end], start)
        found = self._expression.search(text, start, end)
        return found.start() if found is not None else -1

    def fits(self, text: str, start: int) -> bool:
        return self._expression.match(text, start) is not None


class _LongPiece:
    """Finds a piece by bits: bit i is set while its first i + 1 characters are those read last."""

    __slots__ = ("_last", "_length", "_masks", "_others")

    def __init__(self, characters: list[str | None]) -> None:
        self._length = len(characters)
        self._last = 1 << self._length - 1
        # Where any character fits, and where each of those that the piece names does.
        self._others = _bits(characters, None)
        named = {character for character in characters if character is not None}
        self._masks = {character: self._others | _bits(characters, character) for character in named}

    def find(self, text: str, offset: int) -> int:
        """Where it first fits, counted from `offset`; -1 if nowhere. Each character is looked at once."""
        seen, last, masks, others = 0, self._last, self._masks, self._others
        for few in range(0, len(text), _AT_ONCE):
            breathe()
            for at, character in enumerate(text[few : few + _AT_ONCE], offset + few + 1):
                seen = (seen << 1 | 1) & masks.get(character, others)
                if seen & last:
                    return at - self._length
        return -1


def _bits(characters: list[str | None], wanted: str | None) -> int:
    return int("".join("01"[character == wanted] for character in reversed(characters)), 2)


@lru_cache(maxsize=CACHED_PATTERNS)
def compile_pattern(pattern: str, escape: str | None = None) -> Matcher | None:
    """Compile a pattern; None if it ends with a lone escape character, which means nothing."""
    pieces: list[list[str | None]] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            literal = next(characters, None)
            if literal is None:
                return None
            pieces[-1].append(literal)
        elif character == "%":
            pieces.append([])
        else:
            pieces[-1].append(None if character == "_" else character)
    return _matcher([_Piece(piece) for piece in pieces])


def _matcher(pieces: list[_Piece]) -> Matcher:
    first, *middle = pieces
    if not middle:
        return lambda text: len(text) == first.length and first.fits(text, 0)
    last = middle.pop()
    inner = [piece for piece in middle if piece.length]

    def matches(text: str) -> bool:
        end = len(text) - last.length
        position = first.length
        if end < position or not first.fits(text, 0) or not last.fits(text, end):
            return False
        for piece in inner:
            found = piece.find(text, position, end)
            if found < 0:
                return False
            position = found + piece.length
        return True

    return matches
