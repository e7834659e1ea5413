"""What is told of a table outside of the code is what the table says."""

import re
from collections.abc import Iterable

import pytest

from pairbus.broker.counters import OperationKind
from pairbus.cost.estimate import estimate
from pairbus.cost.sheet import default_sheet
from pairbus.cost.system import System
from pairbus.ledger.columns import columns_of
from pairbus.ledger.receipts import Receipt
from pairbus.spark.source.columns import COLUMNS
from pairbus.spark.source.options import OPTIONS
from pairbus.stages import ROLES, Stage, StageLook, stages_by_kind

from .sources import ROOT, SRC


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown."""
    names = list(head)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (names, ["---"] * len(names), *rows))


def test_every_stage_stands_in_the_document_as_it_is() -> None:
    doers = {"client": "client", "pump": "syphon", "lease": "syphon", "fleet": "client"}
    expected = table(
        ("stage", "in the ledger", "what it is", "who does it"),
        [
            (
                stage.words,
                f"`{stage.value}`",
                stage.traits.meaning,
                ", ".join(dict.fromkeys(doers[role] for role in ROLES if stage.kinds_of(role)))
                or "your receivers",
            )
            for stage in Stage
        ],
    )
    text = (ROOT / "docs" / "cost.md").read_text(encoding="utf-8")
    assert expected in text, f"docs/cost.md has to have this table:\n{expected}"


def test_every_stage_is_estimated_or_said_not_to_be() -> None:
    found = [row.stage for row in estimate(System(), default_sheet()).stages]
    assert found == [stage for stage in Stage if stage.traits.is_estimated]


def test_every_stage_is_recorded_by_kinds_that_namespaces_count() -> None:
    known = {kind.value for kind in OperationKind}
    counted = [stage for stage in Stage if not stage.traits.is_stored]  # no namespace counts the others
    assert {kind for stage in counted for role in ROLES for kind in stage.kinds_of(role)} <= known
    # A meter has nothing but the kind to tell by.
    for role in ("pump", "lease", "fleet"):
        assert stages_by_kind(role).keys() == {kind for stage in Stage for kind in stage.kinds_of(role)}


def test_what_a_stage_carries_goes_one_way() -> None:
    """Or no sum over a stage could tell which way its bytes went."""
    ways = dict.fromkeys(("send", "send_refused", "ping", "management", "admin"), "in") | {"delivery": "out"}
    for stage in Stage:
        kinds = {kind for role in ROLES for kind in stage.kinds_of(role)}
        assert {ways[kind] for kind in kinds & ways.keys()} <= {stage.traits.direction}, stage


def test_every_stage_is_drawn_unless_it_is_derived() -> None:
    css = (SRC / "pairbus" / "cost" / "page.css").read_text(encoding="utf-8")
    assert {look.style for look in StageLook} <= set(
        re.findall(r"^\.(\w+) \{ fill:", css, flags=re.MULTILINE)
    )
    assert {stage for stage in Stage if stage.traits.look is StageLook.DERIVED} == {
        stage for stage in Stage if stage.is_derived
    }


def test_a_stage_has_one_name() -> None:
    assert [stage.name.lower() for stage in Stage] == [stage.value for stage in Stage]
    assert len({stage.words for stage in Stage}) == len(Stage)


def test_every_column_of_a_receipt_stands_in_the_document() -> None:
    rows = [(f"`{column.name}`", column.meaning) for column in columns_of(Receipt).values()]
    assert all(meaning for _, meaning in rows)
    expected = table(("column", "meaning"), rows)
    text = (ROOT / "docs" / "syphon.md").read_text(encoding="utf-8")
    assert expected in text, f"docs/syphon.md has to have this table:\n{expected}"


def option_table() -> list[tuple[str, ...]]:
    uses = {"read": "read", "stream": "readStream", "write": "write, writeStream"}
    return [
        ("option", "for", "default"),
        *(
            (
                f"`{option.name}`",
                ", ".join(uses[use] for use in option.uses),
                "" if option.default is None else f"`{option.default}`",
            )
            for option in OPTIONS.values()
        ),
    ]


def column_table() -> list[tuple[str, ...]]:
    rows = [(f"`{column.name}`", f"`{column.sql_type}`", column.set_by) for column in COLUMNS.values()]
    return [("column", "type", "set by"), *rows]


@pytest.mark.parametrize("expected", [option_table(), column_table()], ids=["options", "columns"])
def test_every_option_and_column_of_the_source_is_explained_in_its_document(
    expected: list[tuple[str, ...]],
) -> None:
    text = (ROOT / "docs" / "spark-source.md").read_text(encoding="utf-8")
    begin = text.index(f"| {' | '.join(expected[0])} |")
    written, _, _ = text[begin:].partition("\n\n")
    rows = [tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]) for row in written.splitlines()]
    assert [row[:3] for row in rows if set(row) != {"---"}] == expected
    assert all(row[3] for row in rows), "each says what it means"
