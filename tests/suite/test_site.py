"""The documents as a site: every link leads somewhere, and nothing comes from another machine."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.guards.sources import ROOT


def test_the_site_is_whole_and_needs_no_network(tmp_path: Path) -> None:
    done = subprocess.run(
        # Strict: a page without a place, or a link or an anchor that leads nowhere, is an error.
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    pages = [*(tmp_path / "site").rglob("*.html")]
    assert len(pages) > 30
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert (
            re.findall(r"<(?:script|img|iframe|link)[^>]+(?:src|href)=\"?(?:https?:)?//[^\" >]+", text) == []
        ), page
        # A list that goes on behind a paragraph needs an empty line there, or its items run into the text.
        paragraphs = re.findall(r"<p>(.*?)</p>", text, flags=re.DOTALL)
        assert [one for one in paragraphs if re.search(r"\n *(?:[-*|]|\d+\.|```) ", one)] == [], page


def test_what_belongs_to_an_item_of_a_list_is_indented_by_four() -> None:
    """With less the site ends the list before it, and the steps behind it begin at 1 again."""
    for path in sorted((ROOT / "docs").glob("*.md")):
        text = path.read_text(encoding="utf-8")
        assert re.findall(r"^ {1,3}(?:```|\|).*$", text, flags=re.MULTILINE) == [], path
