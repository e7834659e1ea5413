"""Habits that the tree keeps: small modules, nothing unfinished, nothing of one machine."""

import re
from pathlib import Path

import pytest

from .documents import make_targets, mentioned_commands, mentioned_targets
from .sources import ROOT, SRC, project_files, python_files
from .test_documentation import commands

LONGEST_MODULE = 600
# Written in two halves, so that this file does not find itself.
UNFINISHED = re.compile("TO" + "DO|FIX" + "ME|X" + "XX|Not" + "ImplementedError")
LEFT_OUT = re.compile(r"mark\.(sk" + r"ip|xf" + r"ail)|pytest\.(sk" + r"ip|xf" + r"ail|importor" + r"skip)\b")
MACHINE_PATH = re.compile("(?<![\\w.:/~-])/(" + "work|root|home|opt|Users|tm" + "p)/[\\w.]")
PACKAGE_INDEX = re.compile(
    "pypi" + r"\.org|python" + r"hosted\.org|registry\." + r"(npmjs|yarnpkg)\.|--(extra-)?in" + "dex-url"
)
PAGES = sorted((ROOT / "docs").glob("*.md"))
VAGUE = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}


def lines_matching(pattern: re.Pattern[str], name: str, text: str) -> list[str]:
    return [
        f"{name}:{number}: {line}" for number, line in enumerate(text.splitlines(), 1) if pattern.search(line)
    ]


def test_modules_stay_small() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_bytes().splitlines()) for path in python_files(SRC)}
    assert {name: length for name, length in lengths.items() if length > LONGEST_MODULE} == {}


def test_pages_are_written_in_lines_that_can_be_read() -> None:
    """What ruff holds for Python."""
    pages = [path for path in SRC.rglob("*") if path.suffix in {".js", ".css", ".html"}]
    assert len(pages) > 10
    lines = [(path, line) for path in pages for line in path.read_text(encoding="utf-8").splitlines()]
    assert [(path.name, line) for path, line in lines if len(line) > 120] == []


def test_nothing_is_left_unfinished() -> None:
    files = [*python_files(SRC), *python_files(ROOT / "examples")]
    assert [
        hit for path in files for hit in lines_matching(UNFINISHED, str(path), path.read_text("utf-8"))
    ] == []


def test_no_test_is_skipped() -> None:
    files = python_files(ROOT / "tests")
    assert [
        hit for path in files for hit in lines_matching(LEFT_OUT, str(path), path.read_text("utf-8"))
    ] == []


def test_modules_have_telling_names() -> None:
    files = [*python_files(SRC), *python_files(ROOT / "tests")]
    assert [path for path in files if VAGUE & {path.stem, path.parent.name}] == []


@pytest.mark.parametrize("pattern", [MACHINE_PATH, PACKAGE_INDEX], ids=["machine-path", "package-index"])
def test_nothing_depends_on_one_machine(pattern: re.Pattern[str]) -> None:
    assert [hit for name, text in project_files() for hit in lines_matching(pattern, name, text)] == []


def test_every_package_directory_is_a_package() -> None:
    directories = {path.parent for path in [*python_files(SRC / "pairbus"), *python_files(ROOT / "tests")]}
    assert [path for path in directories if not (path / "__init__.py").exists()] == []


DOCUMENTS = ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", *(f"docs/{path.name}" for path in PAGES)]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_in_the_documents_exist(document: str) -> None:
    text = Path(ROOT / document).read_text(encoding="utf-8")
    assert mentioned_targets(text) <= make_targets()
    known = {path for path, _ in commands()}
    assert {command for command in mentioned_commands(text) if command not in known} == set()


def test_the_map_of_the_tests_is_whole() -> None:
    """Every room has its tests in the table of CONTRIBUTING.md, every directory of tests its place."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.partition("| room | directories of `tests` |\n")[2].partition("\n\n")[0]
    rows = [line.split("|")[1:3] for line in table.splitlines()[1:]]
    package = SRC / "pairbus"
    rooms = {path.parent.relative_to(package) for path in package.glob("*/__init__.py")}
    rooms |= {path.parent.relative_to(package) for path in package.glob("broker/*/__init__.py")}
    assert {".".join(room.parts) for room in rooms} == {
        name for room, _ in rows for name in CODE.findall(room)
    }
    directories = {path.parent.name for path in (ROOT / "tests").glob("*/__init__.py")}
    assert directories == {name for _, tests in rows for name in CODE.findall(tests)}


CODE = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]*)(?:#([^)\s]+))?\)")


def anchors(text: str) -> set[str]:
    """The names by which the headings of a page can be linked to."""
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_between_the_documents_lead_somewhere(document: str) -> None:
    source = ROOT / document
    for path, anchor in LINK.findall(source.read_text(encoding="utf-8")):
        target = (source.parent / path).resolve() if path else source
        assert target.exists(), path
        if anchor:
            assert anchor in anchors(target.read_text(encoding="utf-8")), f"{path}#{anchor}"
