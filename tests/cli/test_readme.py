"""The example of the README does what it says."""

import subprocess
import sys

from tests.guards.documents import code_blocks
from tests.guards.sources import ROOT


def test_the_example_of_the_readme_fails_over() -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    (example,), (shown,) = code_blocks(page, "python"), code_blocks(page, "text")
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout, done.stderr) == (0, shown, "")
