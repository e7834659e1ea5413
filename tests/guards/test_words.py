"""The words of Service Bus stand in `conditions` and `words`, each once, and nowhere else in the source."""

import ast
from collections.abc import Iterator

import pytest

from pairbus import conditions, words

from .sources import ROOT, SRC, parse, python_files

HOMES = {SRC / "pairbus" / "conditions.py", SRC / "pairbus" / "words.py"}
#: Any word that begins like this is the service's, also one that its home does not have yet.
PREFIXES = ("x-opt-", "com.microsoft:", "$DeadLetter", "$Transfer", "$cbs", "$management")


def words_of(module: object) -> dict[str, str]:
    return {name: value for name, value in vars(module).items() if name.isupper() and isinstance(value, str)}


WORDS = {*words_of(conditions).values(), *words_of(words).values()}


def literals(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of every string and bytes literal, the parts of f-strings too; docstrings are prose."""
    tree = parse(source)
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in prose:
            if isinstance(node.value, str):
                yield node.lineno, node.value
            elif isinstance(node.value, bytes):
                yield node.lineno, node.value.decode("latin-1")


def repeated(source: str) -> list[tuple[int, str]]:
    """The literals that are one of the words, alone or as the step of a path; sentences may name them."""
    return [
        (line, text)
        for line, text in literals(source)
        for step in text.split("/")
        if (text in WORDS or step in WORDS or step.startswith(PREFIXES)) and " " not in text
    ]


def test_words_of_the_service_stand_in_one_place() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text!r}"
        for path in python_files(SRC)
        if path not in HOMES
        for line, text in repeated(path.read_text(encoding="utf-8"))
    ]
    assert found == [], "take these from pairbus.words or pairbus.conditions"


@pytest.mark.parametrize("module", [conditions, words])
def test_no_word_has_two_names(module: object) -> None:
    known = words_of(module)
    assert len(set(known.values())) == len(known)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("KEY = b'x-opt-sequence-number'", 1),
        ("path = f'{queue}/$DeadLetterQueue'", 1),
        ("condition = 'amqp:not-found'", 1),
        ("new = 'x-opt-brand-new'", 1),
        ("raise ValueError('put a token on $cbs first')", 0),
        ("'''The `x-opt-…` of a message: DeadLetterReason.'''", 0),
        ("name = 'amqp:open:list'", 0),
    ],
)
def test_the_guard_sees_a_repeated_word(source: str, expected: int) -> None:
    assert len(repeated(source)) == expected
