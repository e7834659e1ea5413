"""What the SDK marks as its own is read in `pairbus.sdk.privates` and nowhere else."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from .sources import ROOT, SRC, parse, python_files

HOME = SRC / "pairbus" / "sdk" / "privates.py"
# The standard library's own, public by its documents.
OF_NAMED_TUPLES = {"_asdict", "_fields", "_replace"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def defined_in(tree: ast.AST) -> set[str]:
    """The private names that a module gives to attributes and methods of its own classes."""
    found: set[str] = set(OF_NAMED_TUPLES)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_own(node.value):
            found.add(node.attr)
    return found


def is_own(value: ast.expr) -> bool:
    return (isinstance(value, ast.Name) and value.id in ("self", "cls")) or (
        isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "super"
    )


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


@cache
def own_names(package: Path) -> set[str]:
    """The private names of the classes of a package, whose modules may know each other's."""
    return {
        name for path in package.glob("*.py") for name in defined_in(parse(path.read_text(encoding="utf-8")))
    }


def trespasses(source: str, own: set[str]) -> Iterator[tuple[int, str]]:
    """Line and name of each private thing that a module touches and that is none of its package's `own`."""
    tree = parse(source)
    names = list(imported(tree))
    if not any(name.startswith("azure.") for _, name in names):
        return
    for line, name in names:
        if name.startswith("azure.") and any(map(is_private, name.split("."))):
            yield line, name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            if not is_own(node.value) and node.attr not in own:
                yield node.lineno, node.attr
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr", "setattr"):
            match node.args[1]:
                case ast.Constant(value=str(name)) if is_private(name):
                    yield node.lineno, name


def test_the_sdks_own_is_read_in_one_module() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in python_files(SRC / "pairbus")
        if path != HOME
        for line, name in trespasses(path.read_text(encoding="utf-8"), own_names(path.parent))
    ]
    assert found == [], "put it into pairbus.sdk.privates, with its reason and a test"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("from azure.servicebus._pyamqp import AMQPClient", ["azure.servicebus._pyamqp.AMQPClient"]),
        ("sender._handler.close()", ["_handler"]),
        ("getattr(sender, '_handler', None)", ["_handler"]),
        ("self._sender._connection", ["_connection"]),
        ("self._sender.close()", []),
        ("record._replace(at=1)", []),
    ],
)
def test_the_guard_sees_a_trespass(line: str, expected: list[str]) -> None:
    source = f"from azure.servicebus import ServiceBusClient\n{line}\n"
    assert [name for _, name in trespasses(source, OF_NAMED_TUPLES)] == expected


def test_a_module_that_never_sees_the_sdk_is_left_alone() -> None:
    assert list(trespasses("peer._on_opened()\n", set())) == []
