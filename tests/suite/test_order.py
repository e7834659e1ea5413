"""What is long begins early, and the names by which that is said are those of files that are there."""

import pytest

from tests.guards.sources import ROOT
from tests.order import IN_THIS_ORDER, LONG, PARCELS, began_late, parcel_of, parcels_before

ORDEAL = "tests/ordeal/test_ordeals.py::test_a"


def test_parcels_are_made_of_files() -> None:
    assert [file for file in PARCELS if not (ROOT / file).is_file()] == []


def test_the_order_names_parcels_files_and_directories_once() -> None:
    names = [name for name in IN_THIS_ORDER if name not in PARCELS.values()]
    strange = [
        name
        for name in names
        if not (ROOT / "tests" / f"{name}.py").is_file() and not (ROOT / "tests" / name).is_dir()
    ]
    assert strange == []
    assert len(set(IN_THIS_ORDER)) == len(IN_THIS_ORDER)


def test_no_file_that_is_named_comes_after_its_directory() -> None:
    files = [name for name in IN_THIS_ORDER if "/" in name]
    assert [name for name in files if f"tests/{name}.py" in PARCELS] == []
    assert [
        name
        for name in files
        if (room := name.partition("/")[0]) in IN_THIS_ORDER
        and IN_THIS_ORDER.index(room) < IN_THIS_ORDER.index(name)
    ] == []


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("tests/spark/test_verdict.py::test_a", ORDEAL),
        (ORDEAL, "tests/client/test_fleet.py::test_a"),
        ("tests/client/test_fleet.py::test_a", "tests/client/test_spool.py::test_a[b::c]"),
        ("tests/client/test_spool.py::test_a", "tests/ledger/test_kills.py::test_a"),
        ("tests/ledger/test_kills.py::test_a", "tests/charts/test_marks.py::test_a"),
    ],
)
def test_what_is_named_first_begins_first(first: str, then: str) -> None:
    assert parcels_before(first) < parcels_before(then)


def test_guards_go_together() -> None:
    assert parcel_of("tests/guards/test_layers.py::test_a") == parcel_of("tests/guards/test_size.py::test_a")


def test_what_took_long_and_has_no_place_is_told() -> None:
    seconds = {
        parcel_of(ORDEAL): LONG * 9,
        "Spark": LONG * 8,
        "guards": LONG * 7,
        "tests/ledger/test_kills.py": LONG + 1,
        "tests/charts/test_marks.py": LONG + 2,
        "tests/charts/test_axes.py": LONG - 1,
    }
    assert began_late(seconds) == ["tests/charts/test_marks.py", "tests/ledger/test_kills.py"]
