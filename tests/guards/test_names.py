"""One name, one meaning; one way to write what every module writes."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from .sources import ROOT, SRC, parse, python_files

# The synchronous client and its sender are facades of the asynchronous ones and bear their names.
TWINS = {"PairedSender", "PairedServiceBusClient"}

DOUBLE_BACKTICKS = re.compile(r"(?<!`)``[^`\n]+``(?!`)")
RULER = re.compile(r"^\s*#.*[-=─]{4,}$")
LOGGER = re.compile(r"getLogger\((?!__name__\)|\"pairbus\"\)|\"azure)")


def types_of(tree: ast.Module) -> Iterator[str]:
    """Public names of classes and type aliases: what another module could import and take for its own."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (
                target.id
                for target in targets
                if isinstance(target, ast.Name) and re.fullmatch(r"[A-Z]\w*[a-z]\w*", target.id)
            )


def homes(files: list[Path]) -> dict[str, list[str]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in files:
        for name in set(types_of(parse(path.read_text(encoding="utf-8")))):
            found[name].append(path.name)
    return {name: where for name, where in found.items() if len(where) > 1}


def test_a_type_has_a_name_of_its_own() -> None:
    assert homes(python_files(SRC)).keys() - TWINS == set()


def test_the_guard_sees_a_name_with_two_meanings(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("class Line: ...\nclass _Own: ...\n", encoding="utf-8")
    (tmp_path / "two.py").write_text("Line = tuple[int, int]\nclass _Own: ...\nLIMIT = 1\n", encoding="utf-8")
    (tmp_path / "three.py").write_text("LIMIT = 2\n", encoding="utf-8")
    assert homes(python_files(tmp_path)) == {"Line": ["one.py", "two.py"]}


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
