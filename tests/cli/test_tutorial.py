"""docs/tutorial.md, typed in from top to bottom."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from .process import COMMAND, PATIENCE

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"


def test_the_tutorial_works_as_it_stands(tmp_path: Path) -> None:
    blocks = re.findall(
        r"^```sh\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    # Whoever follows the page has `pairbus` and a python3 with it on the path.
    for name, command in (("pairbus", COMMAND), ("python3", [sys.executable])):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n', encoding="utf-8")
        program.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PAIRBUS_")}
    done = subprocess.run(
        # Job control, since the page speaks of %1; nothing of it may fail, and nothing is left running.
        ["bash", "-c", "set -em\ntrap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n" + "\n".join(blocks)],
        cwd=tmp_path,
        env={**environment, "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    assert "contoso/x-servicebus-transfer/2  created" in done.stdout
    assert "contoso: nothing found" in done.stdout
    *changes, last = (tmp_path / "app.log").read_text(encoding="utf-8").splitlines()
    assert changes == [
        "sending",
        "orders: healthy -> suspect",
        "orders: suspect -> failed_over",
        "orders: failed_over -> healthy",
    ]
    sent = int(last.removeprefix("sent "))
    shown = [line for line in done.stdout.splitlines() if line.startswith("backlog of contoso")]
    waiting = [int(line.split()[3]) for line in shown]
    assert len(waiting) == 2
    assert 0 < waiting[0] <= waiting[1] < sent
    assert "orders: 3 sent (3 to the primary)" in done.stdout
