"""Nothing stands in the source that nobody uses, and the script that looks for it finds what it should."""

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

from .sources import ROOT, parse

SCRIPT = runpy.run_path(str(ROOT / "scripts" / "unused.py"))
EXCEPTIONS: dict[str, str] = SCRIPT["EXCEPTIONS"]
unused: Callable[..., list[str]] = SCRIPT["unused"]


def test_everything_in_the_source_is_used() -> None:
    assert unused(ROOT, EXCEPTIONS, parse) == [], "delete these, or say in scripts/unused.py why they stay"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "src" / "pairbus" / "broker").mkdir(parents=True)
    (tmp_path / "src" / "pairbus" / "broker" / "__init__.py").write_text('__all__ = ["Broker"]\n')
    return tmp_path


def found_in(project: Path, source: str) -> list[str]:
    (project / "src" / "pairbus" / "broker" / "broker.py").write_text(source)
    return [line.rpartition(": ")[2] for line in unused(project, {})]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def lost(): ...", ["lost"]),
        ("def lost():\n    return lost()", ["lost"]),
        ("LIMIT, MOST = 3, 4\nprint(MOST)", ["LIMIT"]),
        ("__all__ = ['lost']\nclass lost: ...", ["lost"]),
        ("from .other import lost\ndef lost(): ...", ["lost"]),
        ("class Broker:\n    def start(self): ...\n    def _lost(self): ...", ["Broker._lost"]),
        ("class Held:\n    @property\n    def lost(self): ...\nHeld()", ["Held.lost"]),
        ("import ast\nclass Held(ast.NodeVisitor):\n    def visit_Name(self): ...\nHeld()", []),
        ("import ast\nclass Held(ast.NodeVisitor):\n    def generic_visit(self): ...\nHeld()", []),
        (
            "import ast\nclass A(ast.NodeVisitor): ...\nclass B(A):\n    def generic_visit(self): ...\nB()",
            [],
        ),
        ("import pytest\n@pytest.fixture\ndef broker(): ...", []),
        ("def __getattr__(name): ...", []),
        ("def named(): ...\ngetattr(print, 'named')", []),
        ("class Kept: ...\ndef _use(of: 'list[Kept]'): ...\n_use()", []),
    ],
)
def test_what_is_found(project: Path, source: str, found: list[str]) -> None:
    assert found_in(project, source) == found


def test_examples_and_the_code_of_documents_are_use(project: Path) -> None:
    (project / "README.md").write_text("Call `told()`, or mention prose.\n")
    (project / "examples").mkdir()
    (project / "examples" / "shop.py").write_text("from pairbus.broker.broker import shown\nshown()\n")
    source = "def told(): ...\ndef shown(): ...\ndef prose(): ..."
    assert found_in(project, source) == ["prose"]


def test_an_exception_that_is_none_any_more_is_told(project: Path) -> None:
    (project / "src" / "pairbus" / "broker" / "broker.py").write_text("def lost(): ...\n")
    assert unused(project, {"pairbus.broker.broker:lost": "a reason"}) == []
    (complaint,) = unused(project, {"pairbus.broker.broker:lost": "", "pairbus.broker.broker:gone": ""})
    assert "pairbus.broker.broker:gone" in complaint
