"""The project's own files, as the guards look at them."""

import ast
import gc
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

__all__ = ["ROOT", "SRC", "module_name", "parse", "project_files", "python_files"]

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"


@cache
def parse(source: str) -> ast.Module:
    """The tree of a module's text. A dozen guards look at every module: each is parsed once."""
    tree = ast.parse(source)
    gc.freeze()  # it stays until the end; else the collector would walk over all trees again and again
    return tree


def python_files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*.py") if "node_modules" not in path.parts)


def module_name(path: Path) -> str:
    """`src/pairbus/cli/__init__.py` -> `pairbus.cli`"""
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def project_files() -> Iterator[tuple[str, str]]:
    """Relative name and text of every text file that is, or is about to be, under version control."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if path.is_file():
            try:
                yield name, path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue  # a picture or an archive: nothing that anybody reads as text
