"""Prints constraints that choose the lowest version that pyproject.toml allows of what a user installs."""

import re
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
BOUND = re.compile(r"(?P<name>[\w.-]+)(?:\[[\w,]+\])?>=(?P<version>[^,;\s]+)")
# They check the project and never meet a user's program, so `make lock` alone chooses them.
TOOLS = {
    "coverage",
    "hypothesis",
    "mypy",
    "pytest",
    "pytest-asyncio",
    "pytest-timeout",
    "pytest-xdist",
    "ruff",
}


def lowest() -> Iterator[str]:
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    for requirement in chain(project["dependencies"], *project["optional-dependencies"].values()):
        found = BOUND.match(requirement)
        if found and found["name"] not in TOOLS:
            yield f"{found['name']}=={found['version']}"


if __name__ == "__main__":
    print("\n".join(sorted(set(lowest()))))
