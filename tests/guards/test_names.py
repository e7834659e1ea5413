"""One name, one meaning; one way to write what every module writes."""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from .sources import ROOT, SRC, parse, python_files

# The synchronous client and its sender are facades of the asynchronous ones and bear their names.
TWINS = {"PairedSender", "PairedServiceBusClient"}

DOUBLE_BACKTICKS = re.compile(r"(?<!`)``[^`\n]+``(?!`)")
RULER = re.compile(r"^\s*#.*[-=─]{4,}")
PUT_OFF = "from __future__ import annotations\n\n"
LOGGER = re.compile(r"getLogger\((?!__name__\)|\"pairbus\"\)|\"azure)")


TYPE_NAME = re.compile(r"[A-Z]\w*[a-z]\w*")


def at_the_top(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, those below an `if` or a `try` too."""
    for node in body:
        yield node
        for name in ("body", "orelse", "finalbody") if isinstance(node, ast.If | ast.Try) else ():
            yield from at_the_top(getattr(node, name, []))


def types_of(tree: ast.Module) -> Iterator[str]:
    """Public names of classes and type aliases: what another module could import and take for its own."""
    for node in at_the_top(tree.body):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = (name for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
            yield from (name.id for name in names if TYPE_NAME.fullmatch(name.id))


def homes(files: list[Path]) -> dict[str, list[str]]:
    """The types that are defined more than once, and where."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in files:
        for name in set(types_of(parse(path.read_text(encoding="utf-8")))):
            found[name].append(path.name)
    return {name: where for name, where in found.items() if len(where) > 1}


def imports_of(tree: ast.Module) -> Iterator[tuple[bool, ast.alias]]:
    """Each type that a module imports, and whether it is one of ours."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            is_ours = bool(node.level) or str(node.module).partition(".")[0] == "pairbus"
            yield from ((is_ours, one) for one in node.names if TYPE_NAME.fullmatch(one.name))


def renamed(files: list[Path]) -> list[str]:
    """Types of ours that somebody imports under another name: one thing would have two."""
    return [
        f"{path.name}: {one.name} as {one.asname}"
        for path in files
        for is_ours, one in imports_of(parse(path.read_text(encoding="utf-8")))
        if is_ours and one.asname not in (None, one.name)
    ]


def mistakable(files: list[Path]) -> set[str]:
    """Types of these files, a room's, that share their name with one of a library that the room imports."""
    own: set[str] = set()
    foreign: set[str] = set()
    for path in files:
        tree = parse(path.read_text(encoding="utf-8"))
        own.update(types_of(tree))
        for is_ours, one in imports_of(tree):
            (own if is_ours else foreign).add(one.asname or one.name)
    return own & foreign


def test_a_type_has_a_name_of_its_own() -> None:
    assert homes(python_files(SRC)).keys() - TWINS == set()


def test_a_type_has_one_name() -> None:
    # Spark looks for this one under the name `DefaultSource`.
    files = [path for path in python_files(SRC) if path.name != "pyspark_servicebus.py"]
    assert renamed(files) == []


@pytest.mark.parametrize("room", sorted(path.name for path in (SRC / "pairbus").iterdir() if path.is_dir()))
def test_a_room_has_no_type_that_reads_like_a_librarys(room: str) -> None:
    assert mistakable(python_files(SRC / "pairbus" / room)) == set()


def test_the_guard_sees_a_name_with_two_meanings(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("class Line: ...\nclass _Own: ...\n", encoding="utf-8")
    (tmp_path / "two.py").write_text("Line = tuple[int, int]\nclass _Own: ...\nLIMIT = 1\n", encoding="utf-8")
    (tmp_path / "three.py").write_text("LIMIT = 2\n", encoding="utf-8")
    assert homes(python_files(tmp_path)) == {"Line": ["one.py", "two.py"]}


def test_the_guard_looks_below_conditions_and_into_tuples(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("if True:\n    class Line: ...\n", encoding="utf-8")
    (tmp_path / "two.py").write_text("Line, Lane = tuple[int], tuple[str]\n", encoding="utf-8")
    (tmp_path / "three.py").write_text("try:\n    Lane = int\nfinally:\n    pass\n", encoding="utf-8")
    assert homes(python_files(tmp_path)) == {"Line": ["one.py", "two.py"], "Lane": ["three.py", "two.py"]}


def test_the_guard_sees_other_names_and_those_of_libraries(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(
        "from .lines import Line as Lane\nfrom pairbus.x import Row as Row\n", encoding="utf-8"
    )
    (tmp_path / "two.py").write_text(
        "from library import Row\nfrom library.x import Queue as Line\nfrom typing import Any as Lane\n",
        encoding="utf-8",
    )
    assert renamed(python_files(tmp_path)) == ["one.py: Line as Lane"]
    assert mistakable(python_files(tmp_path)) == {"Row", "Lane"}


@pytest.mark.parametrize(
    ("pattern", "instead"),
    [
        (DOUBLE_BACKTICKS, "code in docstrings and comments stands in single backticks"),
        (RULER, "the parts of a long class are told apart by a line `# -- words`"),
        (LOGGER, "a module logs under its own name: logging.getLogger(__name__)"),
    ],
    ids=["backticks", "rulers", "loggers"],
)
def test_the_sources_speak_one_dialect(pattern: re.Pattern[str], instead: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in python_files(SRC)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == [], instead


def reads_ahead(tree: ast.Module) -> bool:
    """Whether an annotation names what is not there yet when its line runs: below it, or for types alone."""
    there_after: dict[str, int] = {}
    for node in ast.walk(tree):
        match node:
            case (
                ast.ClassDef(name=name, end_lineno=int(last))
                | ast.Assign(targets=[ast.Name(id=name)], end_lineno=int(last))
                | ast.AnnAssign(target=ast.Name(id=name), end_lineno=int(last))
            ):
                there_after[name] = max(last, there_after.get(name, 0))
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                for inner in ast.walk(node):
                    match inner:
                        case (
                            ast.alias(asname=str(name))
                            | ast.alias(name=name, asname=None)
                            | ast.Name(id=name, ctx=ast.Store())
                        ):
                            there_after[name] = sys.maxsize
    return any(
        isinstance(name, ast.Name) and name.lineno <= there_after.get(name.id, 0)
        for node in ast.walk(tree)
        for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if annotation is not None
        for name in ast.walk(annotation)
    )


def test_annotations_are_put_off_only_where_they_read_ahead() -> None:
    files = [path for room in ("src", "bench", "scripts", "tests") for path in python_files(ROOT / room)]
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    putting_off = [path for path, text in texts.items() if PUT_OFF in text]
    assert [str(path.relative_to(ROOT)) for path in putting_off if not reads_ahead(parse(texts[path]))] == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("class Line:\n    def copy(self) -> Line: ...", True),
        ("def find() -> list[Line]: ...\nclass Line: ...", True),
        ("if TYPE_CHECKING:\n    from lines import Line\ndef find(line: Line | None): ...", True),
        ("from lines import Line\nclass Row:\n    line: Line\ndef find(row: Row): ...", False),
        ("def find() -> int: ...", False),
    ],
)
def test_the_guard_sees_what_reads_ahead(source: str, expected: bool) -> None:
    assert reads_ahead(ast.parse(source)) is expected
