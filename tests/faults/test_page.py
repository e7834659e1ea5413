"""The page on faults says what was seen, and its examples are good."""

import re
import socket
from typing import Any

import pytest

from pairbus.broker import FaultKind, FaultPlan
from pairbus.fault_kinds import KINDS
from tests.guards.documents import code_blocks
from tests.guards.sources import ROOT

from .test_kinds import EXPECTED, Seen

PAGE = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")


def table_below(heading: str) -> dict[str, list[str]]:
    """The rows of the table under a heading, by kind."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line.strip("| ") for line in section.splitlines() if line.startswith("| `")]
    rows = [[cell.strip() for cell in line.split("|")] for line in lines]
    return {row[0].strip("`"): row[1:] for row in rows}


def in_words(outcome: Any) -> str:
    if isinstance(outcome, type):
        return outcome.__name__
    return "nothing comes" if outcome == 0 and outcome is not None else "works"


def test_the_exceptions_are_those_that_the_tests_see() -> None:
    seen: dict[FaultKind, Seen] = {kind: on_namespace for kind, (on_namespace, _) in EXPECTED.items()}
    seen[FaultKind.FULL] = seen[FaultKind.FULL]._replace(open_receive=1)  # nothing was left to come there
    assert table_below("What the Python SDK makes of them") == {
        kind.value: [in_words(row.open_send), in_words(row.open_receive), in_words(row.new_send)]
        for kind, row in seen.items()
    }


def test_the_page_has_every_kind_and_no_other() -> None:
    assert list(table_below("The kinds")) == [kind.value for kind in FaultKind]


@pytest.mark.parametrize("kind", FaultKind)
def test_every_kind_has_its_row_with_its_arguments_and_their_defaults(kind: FaultKind) -> None:
    row = table_below("The kinds")[kind.value]
    documented = dict(re.findall(r"`(\w+)` \(`?([^)`]*)`?\)", row[-1] if len(row) == 3 else ""))
    assert documented == {
        argument.name: argument.default if isinstance(argument.default, str) else f"{argument.default:g}"
        for argument in KINDS[kind].arguments
    }


def test_the_plan_is_a_good_plan() -> None:
    (text,) = code_blocks(PAGE, "toml")
    assert [step.kind for step in FaultPlan.parse(text).steps] == ["refuse", "drop", "clear"]


def test_the_example_with_a_clock_does_what_it_says() -> None:
    *_, example = code_blocks(PAGE, "python")
    seen: list[int] = []

    def look(port: int) -> None:
        with socket.socket() as sock:
            seen.append(sock.connect_ex(("127.0.0.1", port)))

    looking = '    look(broker["contoso"].port)\n'
    lines = example.replace("    clock.advance", looking + "    clock.advance") + looking
    exec(lines, {"look": look})
    assert [result == 0 for result in seen] == [False, True]
