"""ARCHITECTURE.md is a map of the tree that there is: its rooms, its rows, and the places that it names."""

import re

from .documents import code_blocks
from .sources import ROOT, SRC
from .test_layers import ROWS

PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
PACKAGE = SRC / "pairbus"


def section(title: str) -> str:
    return re.split(r"^## ", PAGE.split(f"\n## {title}\n")[1], flags=re.MULTILINE)[0]


def table(title: str) -> list[list[str]]:
    """The cells of a section's table, without its head."""
    lines = [line for line in section(title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_table_of_rooms_names_those_that_exist() -> None:
    named = [room for first, *_ in table("Rooms") for room in re.findall(r"`(\w+)`", first)]
    there = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    there |= {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    assert sorted(named) == sorted(there)


def test_the_rows_are_those_that_the_guard_of_layers_knows() -> None:
    (block,) = code_blocks(PAGE, "rows")
    assert [set(line.split(", ")) for line in block.splitlines()] == list(ROWS)


def test_every_subpackage_is_on_the_map() -> None:
    text = section("Where does it go?") + section("Rooms")
    inner = {
        path.parent.relative_to(PACKAGE)
        for path in PACKAGE.rglob("__init__.py")
        if len(path.relative_to(PACKAGE).parts) > 2
    }
    missing = [str(path) for path in inner if f"`{path}" not in text and f"`{path.name}`" not in text]
    assert missing == []


def test_every_place_that_is_named_exists() -> None:
    cells = [cells[1] for cells in table("Where does it go?")] + [cells[2] for cells in table("Glossary")]
    places = [place for cell in cells for place in re.findall(r"`([\w/]+(?:\.py)?)`", cell) if "/" in place]
    assert places
    assert [place for place in places if not (PACKAGE / place).exists()] == []


def test_every_word_of_the_glossary_is_spoken_where_it_sends_its_reader() -> None:
    missing = []
    for words, _, where in table("Glossary"):
        places = [PACKAGE / place for place in re.findall(r"`([\w/]+(?:\.py)?)`", where)]
        files = [file for place in places for file in ([place] if place.is_file() else place.glob("*.py"))]
        spoken = re.sub(r"[\s_]", "", "".join(file.read_text(encoding="utf-8") for file in files)).lower()
        plain = [re.sub(r"^to | of a \w+$| ", "", word) for word in words.split(", ") if places]
        missing += [word for word in plain if word not in spoken]
    assert missing == []
