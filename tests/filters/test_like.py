"""`LIKE` finds what it should, and whatever text and pattern are, in a few reads of the text."""

import re

from hypothesis import given
from hypothesis import strategies as st

from pairbus.broker.engine.sql.like import LONG, _LongPiece, compile_pattern

ALPHABET = "ab"
TEXTS = st.text(ALPHABET, max_size=4 * LONG)
# Pieces with `_` that are longer than a regular expression is trusted with.
LONG_PIECES = st.lists(st.sampled_from([*ALPHABET, "_", "_"]), min_size=LONG + 1, max_size=2 * LONG).map(
    "".join
)


def is_like(text: str, pattern: str) -> bool:
    """By the book: any way to read the pattern will do."""
    source = pattern.replace("_", ".").replace("%", ".*")
    return re.fullmatch(source, text, re.DOTALL) is not None


@given(TEXTS, st.text(ALPHABET + "%_", max_size=8))
def test_short_patterns_match_as_they_should(text: str, pattern: str) -> None:
    matches = compile_pattern(pattern)
    assert matches is not None
    assert matches(text) is is_like(text, pattern)


@given(TEXTS, LONG_PIECES, st.sampled_from(["%{}%", "{}%", "%{}", "{}", "%{}%a", "%b%{}%"]))
def test_long_pieces_match_as_they_should(text: str, piece: str, form: str) -> None:
    pattern = form.format(piece)
    matches = compile_pattern(pattern)
    assert matches is not None
    assert matches(text) is is_like(text, pattern)


@given(LONG_PIECES, st.text(ALPHABET, max_size=20), st.text(ALPHABET, max_size=20))
def test_a_long_piece_is_found_where_it_was_put(piece: str, before: str, after: str) -> None:
    matches = compile_pattern(f"%{piece}%")
    assert matches is not None
    assert matches(before + piece.replace("_", "c") + after)


def test_each_character_is_looked_at_once() -> None:
    """Where a search that begins anew at each place would take their product."""
    looked = 0

    class Masks(dict[str, int]):
        def get(self, character: str, default: int) -> int:  # type: ignore[override]
            nonlocal looked
            looked += 1
            return super().get(character, default)

    piece = _LongPiece([*["a"] * 5000, None, "b"])
    piece._masks = Masks(piece._masks)
    assert piece.find("a" * 60_000, 0) == -1
    assert looked == 60_000
