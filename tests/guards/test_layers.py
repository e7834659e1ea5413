"""Arrows point down only: a package imports what lies below it, wherever in a module the import stands."""

import ast
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from .sources import ROOT, SRC, module_name, parse, python_files

# What may know what: a room sees the rows above its own, never its neighbours in the same row.
ROWS = (
    {"errors", "lazy", "conditions", "words", "threads"},
    {"options", "clock", "timers", "portal", "metering", "stages", "fault_kinds", "plumbing", "charts"},
    {"stores"},
    {"pairing", "amqp", "ledger"},
    {"sdk", "cost", "wire"},
    {"pump", "broker"},
    {"backlog", "lease"},
    {"client"},
    {"aio"},  # the asynchronous client under its public name
    {"spark"},
    {"drill"},
    {"dashboard"},
    {"cli"},
    {"testing"},
)
LEVEL = {room: level for level, row in enumerate(ROWS) for room in row}
# The package itself re-exports; only those at the top may import from it.
FACADE = "pairbus"
MAY_USE_FACADE = {"cli", "dashboard", "testing"}

# Rooms that decide and never act: bytes or values in, values out, time as an argument.
PURE = ("pairbus.amqp", "pairbus.charts", "pairbus.pairing", "pairbus.cost", "pairbus.broker.engine")
IMPURE_MODULES = {
    "asyncio", "http", "logging", "multiprocessing", "os", "pathlib", "secrets", "select",
    "selectors", "signal", "socket", "socketserver", "sqlite3", "ssl", "subprocess", "tempfile", "threading",
    "time", "urllib.request",
}  # fmt: skip

# Heavy or foreign libraries stay in the room that they were let in for.
HOMES = {
    "azure.core": {"client", "backlog", "sdk"},
    "azure.identity": {"sdk"},
    "azure.servicebus": {"backlog", "client", "drill", "pump", "sdk", "testing"},
    "certifi": {"sdk"},
    "click": {"cli"},
    "cryptography": {"broker", "testing"},
    "h11": {"broker"},
    "jwt": {"broker", "testing"},
    "opentelemetry": {"client"},
    "prometheus_client": {"client", "spark"},
    "py4j": {"spark"},
    "pyarrow": {"spark", "stores"},
    "pyspark": {"spark"},
    "pytest": {"testing"},
    "rich": {"drill"},
    "starlette": {"dashboard"},
    "uvicorn": {"dashboard"},
    "wsproto": {"broker"},
}
DISTRIBUTIONS = {
    "jwt": "pyjwt",
    "opentelemetry": "opentelemetry-api",
    "prometheus_client": "prometheus-client",
}
# Not imported by us: the asynchronous transport of azure-core is made of one and leaves it to us to bring; of
# the other, Spark takes whatever is there, also a version that it does not know.
BROUGHT = {"aiohttp", "pandas"}
# Imported, and brought by a library that is declared.
CARRIED = {"certifi", "py4j"}

FILES = python_files(SRC / "pairbus")
MODULES = {module_name(path) for path in FILES}


@cache
def imports_of(path: Path) -> tuple[tuple[int, str], ...]:
    return tuple(_imports_of(path))


def _imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """Line and absolute name of each import in a file, inside functions and `TYPE_CHECKING` too."""
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                submodule = f"{origin}.{alias.name}"
                yield node.lineno, submodule if submodule in MODULES else origin


def room_of(module: str) -> str:
    """`pairbus.broker.engine.queue` -> `broker`; the package itself is the facade."""
    return module.split(".")[1] if "." in module else FACADE


def may_import(room: str, seen: str) -> bool:
    if seen == FACADE:
        return room in MAY_USE_FACADE
    return seen == room or LEVEL[seen] < LEVEL[room]


def trespasses(path: Path) -> Iterator[str]:
    room = room_of(module_name(path))
    for line, target in imports_of(path):
        if target.split(".")[0] != "pairbus" or room == FACADE:
            continue
        seen = room_of(target)
        if not may_import(room, seen):
            yield f"{path.relative_to(ROOT)}:{line}: {room} must not import {target}"


def test_every_room_has_a_level() -> None:
    rooms = {room_of(module) for module in MODULES} - {FACADE}
    assert rooms <= LEVEL.keys(), f"say in ROWS where these belong: {sorted(rooms - LEVEL.keys())}"


def test_arrows_point_down_only() -> None:
    assert [found for path in FILES for found in trespasses(path)] == []


def test_pure_rooms_do_no_input_and_output() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {target}"
        for path in FILES
        if module_name(path).startswith(PURE)
        for line, target in imports_of(path)
        if any(f"{target}.".startswith(f"{impure}.") for impure in IMPURE_MODULES)
    ]
    assert found == []


def third_party(path: Path) -> Iterator[tuple[int, str]]:
    for line, target in imports_of(path):
        library = target.split(".")[0]
        if library == "azure":  # a family of libraries below one name
            library = ".".join(target.split(".")[:2])
        if library != "pairbus" and library not in sys.stdlib_module_names:
            yield line, library


def test_libraries_stay_in_their_rooms() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {library}"
        for path in FILES
        for line, library in third_party(path)
        if room_of(module_name(path)) not in HOMES.get(library, set())
    ]
    assert found == [], "say in HOMES which room a new library belongs to"


def test_toml_is_parsed_in_one_place() -> None:
    found = [module_name(path) for path in FILES for _, target in imports_of(path) if target == "tomllib"]
    assert found == ["pairbus.plumbing.toml_tables"]


def declared(*, dev: bool) -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].items()
    lists = [project["dependencies"], *(names for extra, names in extras if dev or extra != "dev")]
    return {
        name.split(">")[0].split("<")[0].split("=")[0].split("[")[0].strip().lower()
        for names in lists
        for name in names
        if not name.startswith(f"{project['name']}[")  # an extra that has others in it
    }


def test_imported_libraries_are_declared_and_declared_ones_imported() -> None:
    # Who uses the fixtures of `testing` has pytest already.
    files = [path for path in FILES if room_of(module_name(path)) != "testing"]
    imported = {library for path in files for _, library in third_party(path)}
    distributions = {DISTRIBUTIONS.get(library, library.replace(".", "-")) for library in imported}
    assert (distributions - CARRIED) | BROUGHT == declared(dev=False)


def test_the_lock_holds_every_declared_dependency() -> None:
    lock = (ROOT / "requirements" / "dev.txt").read_text(encoding="utf-8").lower()
    locked = {
        line.split("==")[0] for line in lock.splitlines() if "==" in line and not line.startswith((" ", "#"))
    }
    assert declared(dev=True) <= locked, "run: make lock"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from ..broker import Broker", "pump must not import pairbus.broker"),
        ("def late():\n    import pairbus.cli.main", "pump must not import pairbus.cli.main"),
        ("from pairbus import __version__", "pump must not import pairbus"),
        ("from .. import errors", None),
        ("from ..amqp.encoding import encode", None),
    ],
)
def test_the_guard_sees_a_trespass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, expected: str | None
) -> None:
    module = tmp_path / "pairbus" / "pump" / "loop.py"
    module.parent.mkdir(parents=True)
    module.write_text(source, encoding="utf-8")
    monkeypatch.setattr("tests.guards.sources.SRC", tmp_path)
    monkeypatch.setattr("tests.guards.test_layers.ROOT", tmp_path)
    found = [text.partition(": ")[2] for text in trespasses(module)]
    assert found == ([expected] if expected else [])
