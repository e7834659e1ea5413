"""The model against months that were worked out by hand; the files say how."""

import tomllib
from decimal import Decimal
from pathlib import Path

import pytest

from pairbus.cost.estimate import estimate
from pairbus.cost.sheet import default_sheet
from pairbus.cost.system import System

FILES = sorted((Path(__file__).parent / "golden").glob("*.toml"))


def test_there_are_examples() -> None:
    assert len(FILES) >= 3


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_month_costs_what_a_hand_reckons(file: Path) -> None:
    golden = tomllib.loads(file.read_text(encoding="utf-8"))
    reckoned = estimate(System(**golden["system"]), default_sheet())
    assert {row.stage.words: row.operations for row in reckoned.stages if row.operations} == golden[
        "operations"
    ]
    assert {name: Decimal(amount) for name, amount in golden["money"].items()} == {
        "base": reckoned.base,
        "operations": reckoned.operations_cost,
        "bandwidth": reckoned.bandwidth_cost,
        "total": reckoned.total,
    }
