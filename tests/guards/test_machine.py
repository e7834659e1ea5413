"""What a machine lacks is said, once and clearly."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .sources import ROOT

DOCTOR = ROOT / "scripts" / "doctor"


def doctor(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", str(DOCTOR), *arguments], capture_output=True, text=True, timeout=30)


def fake_python(directory: Path, script: str) -> str:
    path = directory / "python of a test"
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_a_good_python_passes_silently() -> None:
    done = doctor(sys.executable)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_missing_python_is_named() -> None:
    done = doctor("python-of-nowhere")
    assert done.returncode == 1
    assert "'python-of-nowhere' is not installed" in done.stderr


def test_an_old_python_is_told_apart(tmp_path: Path) -> None:
    done = doctor(fake_python(tmp_path, 'case "$1" in --version) echo Python 3.9.2;; *) exit 1;; esac'))
    assert done.returncode == 1
    assert "is Python 3.9.2, but Pairbus needs Python 3.11 or newer" in done.stderr


def test_a_missing_venv_module_is_told(tmp_path: Path) -> None:
    done = doctor(fake_python(tmp_path, 'case "$2" in *ensurepip*) exit 1;; *) exit 0;; esac'))
    assert done.returncode == 1
    assert "apt-get install python3-venv" in done.stderr


def test_an_environment_that_others_use_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "ours").symlink_to(tmp_path / "theirs")
    done = doctor(sys.executable, str(tmp_path / "ours"))
    assert done.returncode == 1
    assert "is a link to" in done.stderr
    assert doctor(sys.executable, str(tmp_path / "theirs")).returncode == 0


@pytest.mark.parametrize("script", [".ci/run", "scripts/doctor"])
def test_scripts_can_be_run(script: str) -> None:
    assert os.access(ROOT / script, os.X_OK)
    assert subprocess.run(["bash", "-n", str(ROOT / script)], timeout=30).returncode == 0
