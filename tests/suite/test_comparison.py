"""The page that compares: what it says of us is shown by tests that exist."""

import re

from tests.guards.sources import ROOT

ROWS = [
    line.split(" | ")
    for line in (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| ---")
]


def test_every_row_that_claims_something_names_tests_that_exist() -> None:
    assert len(ROWS) > 15
    for row in ROWS[1:]:
        named = re.findall(r"`(tests/[\w/.]+)`", row[2])
        assert named or row[1] == "no", row
        assert [name for name in named if not (ROOT / name).is_file()] == []
