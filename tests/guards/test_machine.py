"""What a machine lacks is said, once and clearly."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .sources import ROOT

DOCTOR = ROOT / "scripts" / "doctor"


def doctor(python: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", str(DOCTOR), python], capture_output=True, text=True, timeout=30)


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


NEEDS_NODE = """
def test_with_node(node):
    assert node.name == "node"

def test_without():
    assert True
"""


def run_without_node(directory: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run two tests, one of which needs Node, where no program but Python can be found."""
    shutil.copy(ROOT / "tests" / "conftest.py", directory / "conftest.py")
    (directory / "test_sample.py").write_text(NEEDS_NODE, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "PAIRBUS_REQUIRE_ALL"}
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            str(directory),
            str(directory),
        ],
        cwd=directory,
        env={**environment, "PATH": str(directory), **variables},
        capture_output=True,
        text=True,
        timeout=50,
    )


def test_without_node_the_tests_that_need_it_are_left_out_and_listed(tmp_path: Path) -> None:
    done = run_without_node(tmp_path)
    assert done.returncode == 0, done.stdout
    assert "1 passed, 1 deselected" in done.stdout
    assert "left out for want of Node: 1" in done.stdout


def test_where_all_is_required_a_missing_tool_is_an_error(tmp_path: Path) -> None:
    done = run_without_node(tmp_path, PAIRBUS_REQUIRE_ALL="1")
    assert done.returncode != 0
    assert "not installed: Node" in done.stderr + done.stdout


@pytest.mark.parametrize("script", [".ci/run", "scripts/doctor"])
def test_scripts_can_be_run(script: str) -> None:
    assert os.access(ROOT / script, os.X_OK)
    assert subprocess.run(["bash", "-n", str(ROOT / script)], timeout=30).returncode == 0
