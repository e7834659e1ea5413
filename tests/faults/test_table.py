"""Every kind of fault in the table can be set by every way there is, with every argument, and does something.

What is written by hand beside the table, for its types or as prose, is compared with it here.
"""

import inspect
import json
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import click
import pytest

from pairbus.broker import Broker, Fault, FaultPlan, Faults
from pairbus.broker.control import ControlClient
from pairbus.broker.faults.board import FaultBoard
from pairbus.cli.fault import set_fault
from pairbus.errors import ConfigurationError
from pairbus.fault_kinds import ARGUMENTS, KINDS, ClientAction, FaultArgument, FaultKind, LineState
from tests.guards.sources import ROOT

from .test_kinds import EXPECTED

NOW = 1_000_000.0
OTHER_THAN_DEFAULT: dict[type, Any] = {float: 7.5, int: 7, str: "amqp:not-allowed"}
each_argument = pytest.mark.parametrize(
    ("kind", "argument"),
    [
        pytest.param(kind, argument, id=f"{kind}-{argument.name}")
        for kind, traits in KINDS.items()
        for argument in traits.arguments
    ],
)


def another(argument: FaultArgument) -> Any:
    """A good value that is not the default."""
    return OTHER_THAN_DEFAULT[type(argument.default)]


def test_every_kind_has_its_row_and_was_tried_with_the_sdk() -> None:
    assert list(KINDS) == list(FaultKind)
    assert EXPECTED.keys() == set(FaultKind)


@pytest.mark.parametrize("kind", FaultKind)
def test_every_kind_does_something(kind: FaultKind) -> None:
    board = FaultBoard()
    board.set(kind, now=NOW)
    effects = [
        board.line(NOW) is not LineState.UP,
        *(board.refusal(action, "orders", now=NOW) is not None for action in ClientAction),
        board.withholds("orders", NOW),
        board.delay("orders", NOW) > 0,
        any(board.drops("orders", NOW) for _ in range(20)),
        board.refuses_tokens("orders", NOW),
    ]
    assert any(effects)


def test_an_argument_has_one_type_whoever_takes_it() -> None:
    hints, given = get_type_hints(Fault), get_type_hints(Faults.set)
    for name, takers in ARGUMENTS.items():
        (kind_of_value,) = {type(argument.default) for argument in takers.values()}
        assert hints[name] is kind_of_value, f"Fault.{name}"
        assert given[name] == kind_of_value | None, f"{name} of Faults.set"


def test_faults_and_their_setter_have_the_arguments_of_the_table_and_no_others() -> None:
    own = {"kind", "since", "entity", "until", "_key"}
    assert {field.name for field in fields(Fault)} - own == set(ARGUMENTS)
    assert set(inspect.signature(Faults.set).parameters) == {"self", "kind", "entity", "duration", *ARGUMENTS}


@each_argument
def test_its_default_is_good_and_another_value_is_shown(kind: FaultKind, argument: FaultArgument) -> None:
    board = FaultBoard()
    assert board.set(kind, now=NOW).describe()[argument.name] == argument.default
    fault = board.set(kind, now=NOW, arguments={argument.name: another(argument)})
    assert fault.describe()[argument.name] == another(argument)
    assert f"{argument.name}={another(argument)!r}" in repr(fault)
    with pytest.raises(ConfigurationError, match=argument.name):
        board.set(kind, now=NOW, arguments={argument.name: []})


@each_argument
def test_a_plan_takes_it(kind: FaultKind, argument: FaultArgument) -> None:
    value = json.dumps(another(argument))
    text = f'[[fault]]\nat = 0\nnamespace = "contoso"\nkind = "{kind}"\n{argument.name} = {value}\n'
    (step,) = FaultPlan.parse(text).steps
    assert step.arguments == {argument.name: another(argument)}


def test_a_running_broker_takes_each_from_a_program_and_from_its_control_address(tmp_path: Path) -> None:
    wanted = [(kind, argument) for kind, traits in KINDS.items() for argument in traits.arguments]
    with Broker({"contoso": 0}) as broker:
        ready = tmp_path / "ready.json"
        ready.write_text(json.dumps(broker.describe()), encoding="utf-8")
        control = ControlClient.from_ready_file(ready)
        for kind, argument in wanted:
            given: dict[str, Any] = {argument.name: another(argument)}
            fault = broker["contoso"].faults.set(kind, **given)
            answer = control.set_fault("contoso", kind, arguments=given)
            assert fault.describe()[argument.name] == answer[argument.name] == another(argument)


@each_argument
def test_the_command_has_a_flag_that_tells_kind_and_default(kind: FaultKind, argument: FaultArgument) -> None:
    (flag,) = (one for one in set_fault.params if f"--{argument.name}" in one.opts)
    assert isinstance(flag, click.Option)
    default = argument.default if isinstance(argument.default, str) else f"{argument.default:g}"
    assert f"{kind}: {argument.help} ({default})" in (flag.help or "")
    assert flag.type_cast_value(click.Context(set_fault), str(another(argument))) == another(argument)


@each_argument
def test_the_page_of_the_command_has_its_flag_and_default(kind: FaultKind, argument: FaultArgument) -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    section = page.split("### `pairbus fault set`\n")[1].split("\n### ")[0]
    (row,) = (line for line in section.splitlines() if line.startswith(f"| `--{argument.name} "))
    _, _, default, meaning, _ = (cell.strip() for cell in row.split("|"))
    assert default.strip("`") == (
        argument.default if isinstance(argument.default, str) else f"{argument.default:g}"
    )
    assert f"`{kind}`" in meaning
