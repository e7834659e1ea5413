"""What the page makes of figures, and of many pairs."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pairbus import dashboard

WEB = Path(dashboard.__file__).parent / "web"


def evaluated(node: Path, module: str, expression: str) -> Any:
    """An expression in one of the page's modules that import no others."""
    text = (WEB / module).read_text(encoding="utf-8")
    done = subprocess.run(
        [str(node), "--input-type=module"],
        input=f"{text}\nconsole.log(JSON.stringify({expression}))",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("size", "told"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_960, "1.0 MB"),
        (10**13, "10000.0 GB"),
    ],
)
def test_bytes_have_a_unit_in_which_they_are_short(node: Path, size: int, told: str) -> None:
    assert evaluated(node, "dom.js", f"bytes({size})") == told


def test_pairs_in_trouble_come_first(node: Path) -> None:
    state = {
        "pairs": [{"name": name} for name in "abcd"],
        "headline": {"said": [{"pair": "c"}, {"pair": ""}, {"pair": "b"}, {"pair": "c"}]},
    }
    found = evaluated(node, "known.js", f"worstFirst({json.dumps(state)})")
    assert [one["name"] for one in found] == ["c", "b", "a", "d"]
