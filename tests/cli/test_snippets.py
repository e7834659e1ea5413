"""The Python of the how-to pages does what the pages say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.guards.documents import code_blocks
from tests.guards.sources import ROOT

PAGE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")


def test_the_example_with_the_sdk() -> None:
    example, _ = code_blocks(PAGE, "python")
    (shown,) = code_blocks(PAGE, "text")
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout, done.stderr) == (0, shown, "")


def test_the_example_with_pytest(tmp_path: Path) -> None:
    _, example = code_blocks(PAGE, "python")
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["pairbus.testing"]\n', encoding="utf-8")
    (tmp_path / "test_order.py").write_text(example, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
