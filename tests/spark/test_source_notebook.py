"""The notebook of the examples runs from beginning to end, and says what it says in the file."""

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.guards.sources import ROOT

NOTEBOOK = ROOT / "examples" / "servicebus.ipynb"


def printed(notebook: Any) -> list[str]:
    """What each cell with code has printed."""
    return [
        "".join(output["text"] for output in cell["outputs"] if output.get("name") == "stdout")
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]


@pytest.mark.timeout(600)
def test_the_notebook_shows_what_it_does(java: Path) -> None:
    stored = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    expected = printed(stored)
    assert sum(map(bool, expected)) >= 4
    NotebookClient(stored, timeout=500, kernel_name="python3").execute()
    assert printed(stored) == expected
