from __future__ import annotations

from pathlib import Path

from pairbus.options import EntityState
from pairbus.pairing.diagram import render_page
from pairbus.pairing.health import TABLE

PAGE = Path(__file__).parents[2] / "docs" / "states.md"


def test_the_page_is_drawn_from_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == render_page(), (
        "run: python -m pairbus.pairing.diagram > docs/states.md"
    )


def test_the_picture_has_every_change_of_state() -> None:
    page = render_page()
    for (state, given), row in TABLE.items():
        arrow = f"    {state.name} --> {row.to.name}: {given.value}\n"
        assert (arrow in page) is (row.to is not state)


def test_every_state_can_be_reached_and_left() -> None:
    edges = {(state, row.to) for (state, _), row in TABLE.items() if row.to is not state}
    assert {target for _, target in edges} == {source for source, _ in edges} == set(EntityState)
