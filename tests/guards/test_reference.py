"""docs/reference.md is what `make reference` would write."""

import subprocess
import sys

from .sources import ROOT

SCRIPT = str(ROOT / "scripts" / "reference")


def test_the_reference_is_that_of_the_code() -> None:
    write = f"import runpy, sys; sys.stdout.write(runpy.run_path({SCRIPT!r})['page']())"
    command = [sys.executable, "-c", write]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=True)
    page = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    assert page == done.stdout, "run: make reference"
