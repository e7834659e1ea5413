"""The table of `make coverage` has every module in it, and adds up."""

import json
import runpy
from pathlib import Path

import pytest

from tests.guards.sources import ROOT, SRC, python_files

TABLE = runpy.run_path(str(ROOT / "scripts" / "coverage_by_room.py"))["main"]


def test_every_module_is_of_a_room(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [str(path.relative_to(ROOT)) for path in python_files(SRC)]
    summary = {"num_statements": 4, "missing_lines": 1}
    report = tmp_path / "coverage.json"
    report.write_text(json.dumps({"files": {name: {"summary": summary} for name in names}}))
    TABLE(report)
    _, *rows, last = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert {"broker.engine", "client", "options", "pyspark_servicebus"} <= {row[0] for row in rows}
    assert last == ["all", str(4 * len(names)), str(len(names)), "75.0%"]
    assert sum(int(row[1]) for row in rows) == 4 * len(names)
