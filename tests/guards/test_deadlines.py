"""Deadlines of tests are far beyond what anything takes, and waiting is written once.

A number of seconds that is enough on an idle machine fails on a busy one. A test that waits for something has
`PATIENCE` (`tests/waiting.py`); one that lets a time pass passes less than `EXPIRES`, and nobody waits long.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from .sources import ROOT, parse, python_files

EXPIRES, ENOUGH = 1.0, 30.0
# Calls that give up: the place of their time-out among the arguments, where it has one.
PLACES = {"wait": 0, "join": 0, "result": 0, "wait_for": 1, "timeout": 0}
NAMED = {*PLACES, "run", "communicate", "urlopen", "create_connection", "HTTPConnection"}
CALLS = r"\b(timeout|wait|join|result|wait_for)[=(][^)]*[0-9]"
# Whose time is not the machine's: a loop in a hurry, or an object that is asked what it would do.
OTHER_TIME = {"graveyard", "allowance"}

WAITING = {
    "tests/waiting.py",
    "tests/surroundings.py",  # what is left at the end is told, and no failure yet
    "tests/client/outage.py",  # turns the clock on while it waits
}
# The time is that of the fault itself.
NAPS = {"tests/spark/test_hosts.py"}


def texts() -> Iterator[tuple[str, str]]:
    for path in python_files(ROOT / "tests"):
        if path.parent.name != "simulation":  # its time is virtual
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def trees(pattern: str) -> Iterator[tuple[str, ast.Module]]:
    """Of modules with such a text: to parse them all takes a second."""
    return ((path, parse(text)) for path, text in texts() if re.search(pattern, text))


def short_deadlines(tree: ast.AST) -> Iterator[tuple[int, float]]:
    """Line and seconds of each call that gives up too soon."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name, owner = name_and_owner(node.func)
        if name not in NAMED or owner in OTHER_TIME:
            continue
        given = [keyword.value for keyword in node.keywords if keyword.arg == "timeout"]
        given += node.args[PLACES[name] :][:1] if name in PLACES else []
        for value in given:
            seconds = value.value if isinstance(value, ast.Constant) else None
            if isinstance(seconds, int | float) and EXPIRES < seconds < ENOUGH:
                yield node.lineno, seconds


def name_and_owner(function: ast.expr) -> tuple[str, str]:
    if not isinstance(function, ast.Attribute):
        return function.id if isinstance(function, ast.Name) else "", ""
    owner = function.value
    return function.attr, getattr(owner, "attr", getattr(owner, "id", ""))


def waiting_loops(tree: ast.AST) -> Iterator[int]:
    """Lines of loops that sleep until a moment that was added up: `wait_until` and `eventually` are that."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        sums = [node for node in own(function) if isinstance(node, ast.BinOp)]
        if not any("'monotonic'" in ast.dump(one.left) for one in sums):
            continue
        for node in own(function):
            if isinstance(node, ast.While) and "'sleep'" in ast.dump(node):
                yield node.lineno


def naps(tree: ast.AST) -> Iterator[int]:
    """Lines on which a test lets time pass by itself, and not while it asks for something again and again."""
    for test in ast.walk(tree):
        if isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef) and test.name.startswith("test_"):
            looped = {
                id(inner)
                for node in own(test)
                if isinstance(node, ast.While | ast.For | ast.AsyncFor)
                for inner in own(node)
            }
            for node in own(test):
                call = node.value if isinstance(node, ast.Expr) else None
                call = call.value if isinstance(call, ast.Await) else call
                if isinstance(call, ast.Call) and id(node) not in looped:
                    is_turn = [one.value for one in call.args if isinstance(one, ast.Constant)] == [0]
                    if name_and_owner(call.func)[0] == "sleep" and not is_turn:
                        yield call.lineno


def own(function: ast.AST) -> Iterator[ast.AST]:
    """Nodes of a function without those of functions inside it."""
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
            yield from own(child)


def test_deadlines_are_found() -> None:
    code = "thread.join(5)\nawait asyncio.wait_for(done, 10.0)\nprocess.wait(timeout=2)\nasyncio.timeout(20)"
    assert sorted(short_deadlines(ast.parse(code))) == [(1, 5), (2, 10.0), (3, 2), (4, 20)]
    fine = "thread.join(PATIENCE)\nevent.wait(0.1)\ngraveyard.wait(5.0)\nprocess.wait(timeout=60)\n"
    assert list(short_deadlines(ast.parse(fine))) == []


def test_loops_are_found() -> None:
    code = "def f():\n    ends = time.monotonic() + 5\n    while not g():\n        time.sleep(1)\n"
    assert list(waiting_loops(ast.parse(code))) == [3]
    assert list(waiting_loops(ast.parse("def f():\n    while g():\n        time.sleep(1)\n"))) == []


def test_naps_are_found() -> None:
    code = (
        "async def test_f():\n    await asyncio.sleep(1)\n    await asyncio.sleep(0)\n    time.sleep(LONG)\n"
    )
    assert list(naps(ast.parse(code))) == [2, 4]
    fine = "def test_f():\n    def g():\n        sleep(1)\n    while g():\n        sleep(1)\n"
    assert list(naps(ast.parse(fine))) == []


def test_no_test_sleeps_to_see_time_pass() -> None:
    found = {path: lines for path, tree in trees("sleep") if (lines := list(naps(tree)))}
    assert found.keys() == NAPS


def test_no_deadline_is_short() -> None:
    found = {path: short for path, tree in trees(CALLS) if (short := list(short_deadlines(tree)))}
    assert found == {}


def test_waiting_is_written_once() -> None:
    found = {path: lines for path, tree in trees("monotonic") if (lines := list(waiting_loops(tree)))}
    assert found.keys() == WAITING


def test_the_guard_looks_at_all_tests() -> None:
    assert {Path(path).parent.name for path, _ in texts()} >= {"spark", "client", "broker", "guards"}
