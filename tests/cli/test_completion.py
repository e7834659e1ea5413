"""Completion, asked for by a real bash."""

import json
import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from .process import COMMAND, PATIENCE, call

CONFIG = """
[pairs.shop]
primary_env = "P"
secondary_env = "S"
[pairs.shop.entities.orders]
[pairs.shop.entities."billing/invoices"]
[pairs.archive]
primary_env = "P"
secondary_env = "S"
[pairs.archive.entities.old-orders]
"""

ASK = """
eval "$(pairbus completion bash)"
ask() {
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
    _pairbus_completion pairbus
    printf '%s ' "${COMPREPLY[@]}"; echo
}
"""


def complete(
    directory: Path, lines: list[str], variables: Mapping[str, str] | None = None
) -> list[list[str]]:
    """What bash offers for the last word of each line; a line may end in an empty one."""
    program = directory / "bin" / "pairbus"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    asked = "\n".join(f"ask {shlex.join(line.split(' '))}" for line in lines)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PAIRBUS_")}
    done = subprocess.run(
        ["bash", "--norc", "-c", ASK + asked],
        cwd=directory,
        env={**environment, "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}", **(variables or {})},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [line.split() for line in done.stdout.splitlines()]


def test_bash_completes_commands_options_and_what_this_machine_knows(tmp_path: Path) -> None:
    (tmp_path / "pairbus.toml").write_text(CONFIG, encoding="utf-8")
    ready = tmp_path / "ready.json"
    ready.write_text(json.dumps({"contoso": {}, "contoso-dr": {}, "control": {}}), encoding="utf-8")
    asked = {
        "pairbus co": ["completion", "config", "cost", "counters"],
        "pairbus syphon p": ["pause", "plan"],
        "pairbus check --out": ["--outage"],
        "pairbus check --pair ": ["shop", "archive"],
        "pairbus send --pair shop ": ["orders", "billing/invoices"],
        "pairbus provision --primary-env P": ["PRIMARY_STRING"],
        "pairbus check --option on_su": ["on_suspect=hold", "on_suspect=raise"],
        "pairbus fault clear ": ["contoso", "contoso-dr"],
        "pairbus fault set contoso re": ["refuse", "reset"],
    }
    variables = {
        "PAIRBUS_READY_FILE": str(ready),
        "PRIMARY_STRING": "Endpoint=sb://a;SharedAccessKeyName=a;SharedAccessKey=b",
        "P_OTHER": "else",
    }
    assert dict(zip(asked, complete(tmp_path, list(asked), variables), strict=True)) == asked


def test_what_cannot_be_read_offers_nothing(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("[", encoding="utf-8")
    lines = [
        "pairbus check --pair ",
        f"pairbus check --config {broken} --pair ",
        f"pairbus fault clear --ready-file {broken} ",
        "pairbus counters ",
    ]
    assert complete(tmp_path, lines) == [[]] * len(lines)


@pytest.mark.parametrize(
    ("shell", "words"),
    [("bash", "complete -o nosort -F"), ("zsh", "#compdef pairbus"), ("fish", "complete --no-files")],
)
def test_each_shell_has_its_script(shell: str, words: str) -> None:
    done = call("completion", shell)
    assert (done.returncode, done.stderr) == (0, "")
    assert words in done.stdout
    assert "_PAIRBUS_COMPLETE=" in done.stdout


def test_another_shell_is_told_which_there_are() -> None:
    done = call("completion", "tcsh")
    assert done.returncode == 2
    assert "'bash', 'zsh', 'fish'" in done.stderr
