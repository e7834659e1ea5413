"""A plan is read whole and checked whole before anything happens, and is the same again for its seed."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.broker import FaultPlan
from pairbus.broker.faults.board import FaultBoard
from pairbus.broker.faults.plan import FaultStep
from pairbus.errors import ConfigurationError
from pairbus.fault_kinds import FaultKind

PLAN = """
seed = 7

[[fault]]
at = [20, 40]
namespace = "contoso"
kind = "clear"
entity = "orders"

[[fault]]
at = [1.0, 5.0]
namespace = "contoso"
kind = "drop"
every = 3
for = [5.0, 10.0]
entity = "orders"

[[fault]]
at = 0
namespace = "contoso-dr"
kind = "refuse"
"""


def test_steps_come_in_the_order_of_their_times() -> None:
    first, second, third = FaultPlan.parse(PLAN).steps
    assert first == FaultStep(at=0.0, namespace="contoso-dr", kind="refuse")
    assert (second.kind, second.entity, second.arguments) == ("drop", "orders", {"every": 3})
    assert 1.0 <= second.at <= 5.0
    assert second.duration is not None
    assert 5.0 <= second.duration <= 10.0
    assert (third.kind, third.entity) == ("clear", "orders")
    assert 20 <= third.at <= 40


@given(seed=st.integers(0, 2**64))
def test_the_same_seed_is_the_same_plan(seed: int) -> None:
    assert FaultPlan.parse(PLAN, seed=seed) == FaultPlan.parse(PLAN, seed=seed)


def test_another_seed_is_another_plan_and_the_files_own_is_the_default() -> None:
    plans = [FaultPlan.parse(PLAN, seed=seed) for seed in range(5)]
    assert len({plan.steps[1].at for plan in plans}) == 5
    assert FaultPlan.parse(PLAN) == FaultPlan.parse(PLAN, seed=7)


def test_a_seed_means_the_same_times_for_ever() -> None:
    """Written down, so that a plan which once found something still does after an update."""
    times = [round(step.at, 6) for step in FaultPlan.parse(PLAN).steps]
    assert times == [0.0, 1.603397, 26.476655]


def test_a_step_does_what_it_says() -> None:
    board = FaultBoard()
    FaultStep(at=1, namespace="contoso", kind="delay", duration=4, arguments={"seconds": 2}).apply(
        board, 100.0
    )
    (fault,) = board.active(100.0)
    assert (fault.kind, fault.seconds, fault.until) == (FaultKind.DELAY, 2, 104.0)
    FaultStep(at=2, namespace="contoso", kind="clear").apply(board, 101.0)
    assert not board.any


def test_every_kind_can_be_planned() -> None:
    tables = [f'[[fault]]\nat = 1\nnamespace = "contoso"\nkind = "{kind}"\n' for kind in FaultKind]
    assert {step.kind for step in FaultPlan.parse("".join(tables)).steps} == set(FaultKind)


def step(**fields: Any) -> str:
    given_fields = {"at": "1", "namespace": '"contoso"', "kind": '"refuse"', **fields}
    lines = [f"{name} = {value}" for name, value in given_fields.items() if value is not None]
    return "\n".join(["[[fault]]", *lines])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("seed = [1]", "whole number"),
        ("seed = true", "whole number"),
        ("speed = 3", "'speed' is not known"),
        ("fault = 3", r"list of tables, \[\[fault\]\]"),
        ("fault = [1]", r"fault\[1\] must be a table"),
        ("[[fault]", "TOML"),
        (step(at=None), r"\[\[fault\]\] 1: at is missing"),
        (step() + "\n" + step(kind=None), r"\[\[fault\]\] 2: kind is missing"),
        (step(at="-1"), r"\[\[fault\]\] 1: at must be a number of seconds"),
        (step(at="true"), r"\[\[fault\]\] 1: at must be a number of seconds"),
        (step(at="inf"), r"\[\[fault\]\] 1: at must be a number of seconds"),
        (step(at="nan"), r"\[\[fault\]\] 1: at must be a number of seconds"),
        (step(at="[1]"), r"\[\[fault\]\] 1: at must be a number of seconds"),
        (step(at="[1, 2, 3]"), r"\[\[fault\]\] 1: at must be a number of seconds"),
        (step(at='"soon"'), r"\[\[fault\]\] 1: at must be a number of seconds"),
        (step(**{"for": "0"}), "more than 0"),
        (step(kind='"sulk"'), "kind must be .* not 'sulk'"),
        (step(kind='"clear"', **{"for": "3"}), "'for' is not known; there are: at, namespace, kind, entity"),
        (step(kind='"clear"', entity="3"), "path of a queue"),
        (step(entity="3"), "path of a queue"),
        (step(every="3"), "does not take 'every'"),
        (step(kind='"delay"', seconds='"long"'), "more than 0"),
        (step(colour='"red"'), "'colour' is not known"),
    ],
)
def test_a_mistake_is_told_before_anything_happens(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        FaultPlan.parse(text)


def test_a_file_is_named_in_what_is_wrong_with_it(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    with pytest.raises(ConfigurationError, match=r"plan\.toml: there is no such file"):
        FaultPlan.load(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match=r"plan\.toml.*UTF-8"):
        FaultPlan.load(path)
    path.write_text("speed = 3", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"plan\.toml: 'speed' is not known; did you mean 'seed'"):
        FaultPlan.load(path)
    path.write_text(PLAN, encoding="utf-8")
    assert FaultPlan.load(path, seed=3) == FaultPlan.parse(PLAN, seed=3)


def test_a_plan_for_another_broker_is_refused() -> None:
    plan = FaultPlan.parse(PLAN)
    plan.check_namespaces(["contoso", "contoso-dr"])
    with pytest.raises(ConfigurationError, match="'contoso-dr'; there are contoso"):
        plan.check_namespaces(["contoso"])
