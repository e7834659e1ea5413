"""Tests for which there is no tool, or no time, are left out, and the run says so, with workers or not."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDS_NODE = """
def test_with_node(node):
    assert node.name == "node"

def test_with_lines(lines):
    assert lines

def test_without():
    assert True
"""


def run_without_node(directory: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run two tests, one of which needs Node, where no program but Python can be found."""
    shutil.copy(ROOT / "tests" / "conftest.py", directory / "conftest.py")
    (directory / "test_sample.py").write_text(NEEDS_NODE, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "PAIRBUS_REQUIRE_ALL"}
    modules = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            str(directory),
            *arguments,
            str(directory),
        ],
        cwd=directory,
        env={**environment, "PATH": str(directory), "PYTHONPATH": os.pathsep.join(modules), **variables},
        capture_output=True,
        text=True,
        timeout=100,
    )


# In one process, and in workers that report to one that has collected nothing.
@pytest.mark.parametrize("arguments", [(), ("-n", "2")], ids=["alone", "workers"])
def test_without_node_the_tests_that_need_it_are_left_out_and_listed(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    done = run_without_node(tmp_path, *arguments)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
    assert done.stdout.count("left out for want of Node: 1") == 1
    assert done.stdout.count("left out for want of the rights of root: 1") == 1


def test_where_all_is_required_a_missing_tool_is_an_error(tmp_path: Path) -> None:
    """Before there is any worker."""
    done = run_without_node(tmp_path, "-n", "2", PAIRBUS_REQUIRE_ALL="1")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "not installed: Chromium, Java, Node" in done.stderr + done.stdout


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({}, ("for CI: hosts, executors;", "for `make soak`: cluster,")),
        ({"PAIRBUS_SYPHON_MESSAGES": "100000"}, ()),
    ],
    ids=["short", "long"],
)
def test_what_is_for_ci_or_a_soak_is_told_by_who_does_without(
    variables: dict[str, str], told: tuple[str, ...]
) -> None:
    ours = ("PAIRBUS_REQUIRE_ALL", "PAIRBUS_SYPHON_MESSAGES")
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "--collect-only",
            "-q",
            "tests/spark/test_epochs.py",
        ],
        cwd=ROOT,
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout
    assert ("tests of Spark left out" in done.stdout) == bool(told)
    assert [line for line in told if line not in done.stdout] == []
