"""What a module says it exports is there (ruff keeps it in order), and importing the package stays cheap."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from .sources import SRC, module_name, parse, python_files

FILES = python_files(SRC / "pairbus")
# A module that is run, not imported, exports nothing.
LIBRARY = [path for path in FILES if path.name != "__main__.py"]


def declared_exports(source: str) -> list[str] | None:
    for node in parse(source).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if isinstance(target, ast.Name) and target.id == "__all__":
                return [str(name) for name in ast.literal_eval(node.value)]
    return None


def is_bare(source: str) -> bool:
    """A package that holds its modules together and offers nothing itself: a docstring, no more."""
    return all(isinstance(node, ast.Expr) for node in parse(source).body)


@pytest.mark.parametrize("path", LIBRARY, ids=[module_name(path) for path in LIBRARY])
def test_exports_exist_once(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    exports = declared_exports(source)
    assert exports is not None or path.name != "__init__.py" or is_bare(source), (
        "a package says what it exports"
    )
    exports = exports or []
    assert len(set(exports)) == len(exports)
    module = import_module(module_name(path))
    assert [name for name in exports if not hasattr(module, name)] == []


@pytest.mark.parametrize("path", LIBRARY, ids=[module_name(path) for path in LIBRARY])
def test_only_who_hands_on_lists_it(path: Path) -> None:
    """A list beside the code has to be kept in step; in a module an underscore says what is its own."""
    tree = parse(path.read_text(encoding="utf-8"))
    exports = declared_exports(path.read_text(encoding="utf-8"))
    if exports is None or path.name == "__init__.py":
        return
    imported = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported & set(exports), "drop __all__: nothing of another module is handed on here"


def modules_loaded_by(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter holds after a statement."""
    code = f"import sys\n{statement}\nsys.stderr.write('\\n'.join(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return {name.split(".")[0] for name in done.stderr.split()}


HEAVY = {
    "aiohttp", "asyncio", "azure", "click", "cryptography", "h11", "http", "jwt", "opentelemetry", "pandas",
    "prometheus_client", "pyarrow", "pyspark", "pytest", "requests", "rich", "sqlite3", "ssl", "starlette",
    "typer", "wsproto",
}  # fmt: skip


def test_importing_the_package_imports_nothing_heavy() -> None:
    assert modules_loaded_by("import pairbus") & HEAVY == set()


def test_help_imports_nothing_heavy() -> None:
    """`pairbus --help` answers in under 0.3 s, seen from its cause: what takes the time is not loaded."""
    loaded = modules_loaded_by("from pairbus.cli.main import main\nassert main(['--help']) == 0")
    assert loaded & HEAVY == {"click"}


@pytest.mark.parametrize("module", ["task", "planner", "peeking", "source.source", "source.reader"])
def test_workers_of_spark_start_without_the_sdk(module: str) -> None:
    """Each of their processes imports it: half of their start was the SDK, which none of them calls."""
    assert not {"aiohttp", "azure", "pandas"} & modules_loaded_by(f"import pairbus.spark.{module}")
