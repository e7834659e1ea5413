"""What the documents tell a user to import or to catch can be imported from a public package."""

import ast
import dataclasses
import inspect
import re
import tomllib
from collections.abc import Callable, Collection, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from pairbus.client.observers.observer import Observer

from .documents import code_blocks
from .sources import ROOT, SRC, module_name, parse, python_files
from .surface import PUBLIC, all_errors, public_names

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# The command line as a program, for `spark-submit`, which wants a file that calls it.
ENTRY_POINTS = {"pairbus.cli.main": {"main"}}
# Errors that end inside: a protocol machine, the broker or a file format raises them, and whoever uses it
# turns them into an answer, a dead letter or one of the public errors.
INNER = {
    "AdminRefused",
    "CallHungError",
    "ClaimMissing",
    "DecodeError",
    "EncodeError",
    "EntityMissing",
    "ManageMissing",
    "NotAtHand",
    "ProtocolError",
    "RowDamaged",
    "SessionViolation",
    "TokenMissing",
    "TokenRefused",
    "TokenRejected",
    "Unauthorized",
    "UnreadableMessages",
    "UnreadableValue",
    "UnsendableRecord",
    "UsageError",
}  # fmt: skip
WORD = re.compile(r"`([A-Z][A-Za-z]+)(?:\(|`)")


def programs() -> Iterator[tuple[str, str]]:
    """Where it stands and text of each Python program that a reader is shown."""
    for page in PAGES:
        text = re.sub(r"^ +```", "```", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
        for block in code_blocks(text, "python"):
            yield page.name, block
    for path in python_files(ROOT / "examples"):
        yield path.name, path.read_text(encoding="utf-8")


def imports_of(source: str) -> Iterator[tuple[str, str]]:
    """Module and name of each import of ours; programs in lists are indented."""
    for module, names in re.findall(r"^ *from (pairbus[\w.]*) import ([\w, ]+)", source, flags=re.MULTILINE):
        yield from ((module, name.strip()) for name in names.split(","))
    for module in re.findall(r"^ *import (pairbus[\w.]*)", source, flags=re.MULTILINE):
        yield module, ""


def test_what_is_shown_imports_from_public_packages() -> None:
    found = []
    for where, source in programs():
        for module, name in imports_of(source):
            offers: Collection[str] = import_module(module).__all__ if module in PUBLIC else ()
            known = ENTRY_POINTS.get(module, offers)
            if name not in known:
                found.append(f"{where}: from {module} import {name}")
    assert found == [], f"public are {', '.join(PUBLIC)}"


@cache
def classes_to_know() -> set[str]:
    """The names of our errors, observers, states and options: what a reader would want to import."""
    names = {error.__name__ for error in all_errors()}
    pending = [Observer]
    while pending:
        observer = pending.pop()
        names.add(observer.__name__)
        pending += [each for each in observer.__subclasses__() if each.__module__.startswith("pairbus.")]
    for path in python_files(SRC / "pairbus"):
        for node in parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and node.name.endswith(("Status", "Options", "State")):
                names.add(node.name)
    return names


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_what_a_page_names_can_be_imported(page: Path) -> None:
    named = set(WORD.findall(page.read_text(encoding="utf-8"))) & classes_to_know()
    assert named - public_names().keys() == set()


def test_every_error_is_public_or_never_leaves() -> None:
    names = {error.__name__ for error in all_errors()}
    assert names - public_names().keys() == INNER


def checked_imports(source: str, package: str) -> dict[str, set[str]]:
    """What a package imports for type checkers only, by module."""
    found: dict[str, set[str]] = {}
    for node in parse(source).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for each in node.body:
                assert isinstance(each, ast.ImportFrom)
                module = f"{package}.{each.module}" if each.level else str(each.module)
                found[module] = {alias.name for alias in each.names}
    return found


LAZY = [path for path in python_files(SRC / "pairbus") if "on_first_use(__name__" in path.read_text("utf-8")]


@pytest.mark.parametrize("path", [path for path in LAZY if path.name == "__init__.py"])
def test_type_checkers_and_the_first_use_find_the_same(path: Path) -> None:
    package = module_name(path)
    homes: dict[str, tuple[str, ...]] = import_module(package)._HOMES
    assert checked_imports(path.read_text("utf-8"), package) == {
        module: set(names) for module, names in homes.items()
    }


# The four that say which pair it is stand as in the SDK's own constructor, twice.
POSITIONAL = {"PairedServiceBusClient.__init__"}


def public_functions() -> Iterator[tuple[str, Callable[..., object]]]:
    """Functions, and methods of classes; what a dataclass makes of its fields is none that anybody wrote."""
    for name, value in public_names().items():
        if inspect.isfunction(value):
            yield name, value
        elif inspect.isclass(value):
            written = {key: getattr(each, "__func__", each) for key, each in vars(value).items()}
            if dataclasses.is_dataclass(value):
                written.pop("__init__", None)
            for key, each in written.items():
                if inspect.isfunction(each) and (key == "__init__" or not key.startswith("_")):
                    yield f"{name}.{key}", each


def test_arguments_after_the_second_are_keyword_only() -> None:
    found = set()
    for name, function in public_functions():
        parameters = inspect.signature(function).parameters.values()
        by_place = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
        if len([each for each in by_place if each not in ("self", "cls")]) > 2:
            found.add(name)
    assert found == POSITIONAL


def test_every_extra_that_is_named_exists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pages = [page.read_text(encoding="utf-8") for page in PAGES]
    named = {
        extra
        for text in pages
        for names in re.findall(r"pairbus\[([a-z,]+)\]", text)
        for extra in names.split(",")
    }
    assert named <= project["optional-dependencies"].keys()
    assert {"broker", "identity", "spark"} <= named
