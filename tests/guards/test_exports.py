"""What a module says it exports is there (ruff keeps it in order), and importing the package stays cheap."""

import ast
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from .sources import SRC, module_name, parse, python_files

#: What others may import from: these alone hand on what their modules define.
PUBLIC = {SRC / "pairbus" / name / "__init__.py" for name in ("", "aio", "broker", "spark", "testing")}
# The asynchronous face as a whole, which the synchronous one repeats name by name.
PUBLIC.add(SRC / "pairbus" / "client" / "aio.py")


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


def complaint_about(path: Path) -> str | None:
    """What is wrong with the exports of a module."""
    source = path.read_text(encoding="utf-8")
    exports = declared_exports(source)
    if path not in PUBLIC:
        # A second way to import a thing, and a list to be kept in step; an underscore says what is private.
        if exports is not None:
            return "is not public: drop __all__"
        return "hands on names" if path.name == "__init__.py" and not is_bare(source) else None
    if exports is None:
        return "says nothing"
    if len(set(exports)) < len(exports):
        return "says something twice"
    missing = [name for name in exports if not hasattr(import_module(module_name(path)), name)]
    return f"lacks {', '.join(missing)}" if missing else None


def test_public_packages_alone_export_and_what_they_say_is_there() -> None:
    found = {module_name(path): complaint_about(path) for path in python_files(SRC / "pairbus")}
    assert {name: complaint for name, complaint in found.items() if complaint} == {}


def modules_loaded_by(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter holds after a statement."""
    code = f"import sys\n{statement}\nsys.stderr.write('\\n'.join(sorted(sys.modules)))"
    # What measures coverage is loaded into every process otherwise.
    plain = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=plain)
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


def test_pumps_of_a_drain_start_without_arrow() -> None:
    """And what is imported while Java starts imports no Spark, which another thread does at that time."""
    assert "pyarrow" not in modules_loaded_by("import pairbus.spark.task")
    assert "pyspark" not in modules_loaded_by("import pairbus.spark.syphon")
