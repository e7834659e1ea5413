"""docs/tutorial.md, typed in from top to bottom; what it shows is what comes out."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import IS_CI
from tests.guards.documents import code_blocks

from .process import COMMAND

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "tutorial.md").read_text(encoding="utf-8")
DRAIN = "pairbus syphon run --once"
# Two Spark jobs or three, each with a Java of its own; on a busy machine, a multiple of a minute.
LIMIT = 900.0


def shape(line: str) -> str:
    """A line without its figures, which differ from run to run, and the space that they take up."""
    figures = " ".join(re.sub(r"(?:up to )?[0-9][0-9,.]*", "N", line).split())
    return re.sub(r"(?:N (?:s|min|h)\b ?)+", "N s", figures)


@pytest.mark.timeout(LIMIT + 30)
@pytest.mark.usefixtures("java")
def test_the_tutorial_works_as_it_stands(tmp_path: Path) -> None:
    # Whoever follows the page has `pairbus` and a python3 with it on the path.
    for name, command in (("pairbus", COMMAND), ("python3", [sys.executable])):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n', encoding="utf-8")
        program.chmod(0o755)
    # What others have set is not theirs, but for an archive by which Java starts faster.
    known = {name for name in os.environ if not name.startswith("PAIRBUS_")} | {"PAIRBUS_CLASS_ARCHIVE"}
    environment = {name: os.environ[name] for name in known}
    typed = "\n".join(code_blocks(PAGE, "sh"))
    assert DRAIN in typed
    if not IS_CI:  # as the page says below: the same without Java, of which the next two commands have theirs
        typed = typed.replace(DRAIN, f"{DRAIN} --engine local")
    done = subprocess.run(
        # Nothing of it may fail, and nothing is left running.
        ["bash", "-c", f"set -e\ntrap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n{typed}"],
        cwd=tmp_path,
        env={**environment, "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    assert "contoso: nothing found" in done.stdout
    assert_shown(done.stdout)
    assert_figures(done.stdout, (tmp_path / "app.log").read_text(encoding="utf-8"))
    assert (tmp_path / "cost-report" / "report.html").exists()


def assert_shown(output: str) -> None:
    """Every line that the page shows has come out, figures aside."""
    printed = {shape(line) for line in output.splitlines()}
    shown = [line for block in code_blocks(PAGE, "text") for line in block.splitlines()]
    assert len(shown) > 30
    missing = [line for line in shown if not any(known.startswith(shape(line)) for known in printed)]
    assert missing == []


def assert_figures(output: str, log: str) -> None:
    """Nothing was lost on the way, and the figures of the commands agree."""
    sent = int(log.splitlines()[-1].removeprefix("sent "))
    during, after = [
        int(line.split()[3]) for line in output.splitlines() if line.startswith("backlog of contoso")
    ]
    assert 0 < during <= after < sent
    figures = dict(re.findall(r"^([a-z-]+) +([0-9,]+)$", output, flags=re.MULTILINE))
    assert {name: int(figures[name]) for name in ("redirected", "delivered", "lost")} == {
        "redirected": after,
        "delivered": after,
        "lost": 0,
    }
    assert f"moved {after} (" in output
