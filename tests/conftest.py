"""Tests that need a tool beyond Python, and what happens where the tool is missing.

A test asks for the tool by its fixture (`node`, `java`, `chromium`, `connect`). Where it is not
installed the test is left out at collection and listed at the end of the run, so that a machine with Python
alone still checks all it can and nothing goes missing silently. With PAIRBUS_REQUIRE_ALL=1, as in CI, a
missing tool is an error.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest_plugins = ["pairbus.testing.fixtures"]

NODE_PROJECT = Path(__file__).parent / "node"
# A cold cache has to fetch some sixty small packages.
NPM_TIMEOUT = 300.0


@dataclass(frozen=True)
class Tool:
    """Something that has to be installed, and the programs and modules that show that it is."""

    name: str
    programs: tuple[str, ...]
    modules: tuple[str, ...] = ()

    def is_missing(self) -> bool:
        return any(shutil.which(program) is None for program in self.programs) or any(
            find_spec(module) is None for module in self.modules
        )


# By the fixture that a test asks for.
TOOLS = {
    "node": Tool("Node", ("node", "npm")),
    "java": Tool("Java", ("java",)),
    "chromium": Tool("Chromium", ("chromium",)),
    "connect": Tool("Spark Connect", ("java",), ("grpc",)),
}

LEFT_OUT = pytest.StashKey[dict[str, int]]()
NPM_FAILURE = pytest.StashKey[str]()


def tool_missing_for(item: pytest.Item) -> Tool | None:
    wanted = (TOOLS[name] for name in getattr(item, "fixturenames", ()) if name in TOOLS)
    return next((tool for tool in wanted if tool.is_missing()), None)


def count_names(tools: Iterable[Tool]) -> dict[str, int]:
    return dict(Counter(tool.name for tool in tools))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    missing = {item: tool for item in items if (tool := tool_missing_for(item))}
    left_out = count_names(missing.values())
    config.stash[LEFT_OUT] = left_out
    if not missing:
        return
    if os.environ.get("PAIRBUS_REQUIRE_ALL") == "1":
        raise pytest.UsageError(f"PAIRBUS_REQUIRE_ALL=1, but not installed: {', '.join(sorted(left_out))}")
    config.hook.pytest_deselected(items=list(missing))
    items[:] = [item for item in items if item not in missing]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Install the Node packages before the first test, outside any test's timeout."""
    wants_node = any("node" in getattr(item, "fixturenames", ()) for item in session.items)
    if wants_node and not session.config.option.collectonly:
        try:
            install_node_packages()
        except (OSError, subprocess.SubprocessError) as error:
            output = getattr(error, "stderr", None) or ""
            session.config.stash[NPM_FAILURE] = f"npm ci failed: {error}\n{output}"


def install_node_packages() -> None:
    """Run `npm ci` unless what is installed came from the same lock, or nothing has to be installed."""
    lock_file = NODE_PROJECT / "package-lock.json"
    if not lock_file.exists():
        return
    lock = hashlib.sha256(lock_file.read_bytes()).hexdigest()
    stamp = NODE_PROJECT / "node_modules" / ".lock-sha256"
    if stamp.exists() and stamp.read_text(encoding="ascii") == lock:
        return
    subprocess.run(
        ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"],
        cwd=NODE_PROJECT,
        check=True,
        capture_output=True,
        text=True,
        timeout=NPM_TIMEOUT,
    )
    stamp.write_text(lock, encoding="ascii")


@pytest.fixture(scope="session")
def node(pytestconfig: pytest.Config) -> Path:
    """The Node binary; the packages of tests/node are installed."""
    failure = pytestconfig.stash.get(NPM_FAILURE, None)
    if failure is not None:
        pytest.fail(failure, pytrace=False)
    found = shutil.which("node")
    assert found is not None
    return Path(found)


@pytest.fixture(scope="session")
def java() -> Path:
    """The Java binary, without which Spark does not run."""
    found = shutil.which("java")
    assert found is not None
    return Path(found)


@pytest.fixture(scope="session")
def chromium() -> Path:
    """The Chromium binary, in which pages are looked at."""
    found = shutil.which("chromium")
    assert found is not None
    return Path(found)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    left_out = config.stash.get(LEFT_OUT, {})
    if left_out:
        terminalreporter.section("tests left out")
        for tool, count in sorted(left_out.items()):
            terminalreporter.line(f"left out for want of {tool}: {count}")
