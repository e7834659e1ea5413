import runpy
from collections.abc import Callable
from pathlib import Path

from pairbus.options import EntityState
from pairbus.pairing.health import TABLE

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "states.md"
render_page: Callable[[], str] = runpy.run_path(str(ROOT / "scripts" / "states_page.py"))["render_page"]


def test_the_page_is_drawn_from_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == render_page(), "run: scripts/states_page.py > docs/states.md"


def test_the_picture_has_every_change_of_state() -> None:
    page = render_page()
    for (state, given), row in TABLE.items():
        arrow = f"    {state.name} --> {row.to.name}: {given.value}\n"
        assert (arrow in page) is (row.to is not state)


def test_every_state_can_be_reached_and_left() -> None:
    edges = {(state, row.to) for (state, _), row in TABLE.items() if row.to is not state}
    assert {target for _, target in edges} == {source for source, _ in edges} == set(EntityState)
