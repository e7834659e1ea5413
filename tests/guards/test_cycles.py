"""No module needs itself: imports at the top of modules make no circle, and those for types alone few."""

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from .sources import module_name, parse
from .test_layers import FILES, MODULES, imports_of

# What remains, and may only become less: imports for types alone, or inside a function, that close a circle
# of modules. All are parts that know the whole they belong to, and call it back.
CLOSING = {
    # A link belongs to a session, a session to a connection; events name them.
    "amqp": {
        "events -> link",
        "events -> session",
        "inbox -> link",
        "inbox -> session",
        "link -> session",
        "outbox -> link",
        "outbox -> session",
        "session -> connection",
    },
    # A peer, its links, the faults and the administration work for a host.
    "broker": {
        "admin.administration -> host",
        "faults.desk -> host",
        "links.attach -> links.peer",
        "links.consumers -> links.attach",
        "links.consumers -> links.sending_endpoint",
        "links.consumers -> links.peer",
        "links.receiving_endpoint -> links.peer",
        "links.sending_endpoint -> links.peer",
        "links.peer -> host",
    },
    # The context of a namespace finds the queues that its entities put messages into.
    "broker.engine": {"context -> entity", "context -> queue"},
    # A sender belongs to a client.
    "client": {"sender -> aio"},
}

Graph = dict[str, set[str]]


def late_lines(tree: ast.AST) -> Iterator[int]:
    """The lines of a module that do not run when it is imported."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(body=body) | ast.AsyncFunctionDef(body=body):
                yield from range(body[0].lineno, (body[-1].end_lineno or 0) + 1)
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), body=body):
                yield from range(body[0].lineno, (body[-1].end_lineno or 0) + 1)


def import_graphs(files: list[Path], modules: set[str]) -> tuple[Graph, Graph]:
    """Which module imports which: when it is imported itself, and only then or for types."""
    eager: Graph = {module: set() for module in modules}
    late: Graph = {module: set() for module in modules}
    for path in files:
        module = module_name(path)
        lines = set(late_lines(parse(path.read_text(encoding="utf-8"))))
        for line, target in imports_of(path):
            if target in modules and target != module:
                (late if line in lines else eager)[module].add(target)
    return eager, late


def find_circle(graph: Mapping[str, set[str]]) -> list[str]:
    """The modules of one circle, if there is any."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    found, ahead = set[str](), [start]
    while ahead:
        ahead += (new := graph[ahead.pop()] - found)
        found |= new
    return found


def closing_imports(eager: Graph, late: Graph) -> set[tuple[str, str]]:
    """The late imports that are part of a circle."""
    whole = {module: eager[module] | late[module] for module in eager}
    return {
        (module, target)
        for module, targets in late.items()
        for target in targets - eager[module]
        if module in reachable(whole, target)
    }


@pytest.fixture(scope="module")
def graphs() -> tuple[Graph, Graph]:
    return import_graphs(FILES, MODULES)


def test_no_module_imports_itself_by_way_of_others(graphs: tuple[Graph, Graph]) -> None:
    assert find_circle(graphs[0]) == []


def test_imports_that_close_a_circle_become_fewer(graphs: tuple[Graph, Graph]) -> None:
    known = {
        tuple(f"pairbus.{room}.{module}" for module in edge.split(" -> "))
        for room, edges in CLOSING.items()
        for edge in edges
    }
    assert closing_imports(*graphs) == known


@pytest.mark.parametrize(
    ("source", "circle", "closing"),
    [
        ("from .loop import Loop", True, False),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .loop import Loop", False, True),
        ("def run():\n    from .loop import Loop", False, True),
        ("class A:\n    from .loop import Loop", True, False),
        ("import json", False, False),
    ],
)
def test_the_guard_sees_a_circle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, circle: bool, closing: bool
) -> None:
    room = tmp_path / "pairbus" / "pump"
    room.mkdir(parents=True)
    (room / "loop.py").write_text("from .lane import A", encoding="utf-8")
    (room / "lane.py").write_text(source, encoding="utf-8")
    monkeypatch.setattr("tests.guards.sources.SRC", tmp_path)
    modules = {"pairbus.pump.loop", "pairbus.pump.lane"}
    eager, late = import_graphs([room / "loop.py", room / "lane.py"], modules)
    assert bool(find_circle(eager)) == circle
    assert bool(closing_imports(eager, late)) == closing
