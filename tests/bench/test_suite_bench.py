"""The table of all benchmarks, and the short form that every run of the tests measures."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench import short
from bench.bill_job import peak_kilobytes
from bench.suite import ONCE, PARTS, Part, Row, render, run_parts

ROW = Row("a against b", 0.9, 0.8, 1.1, 0.95, is_lower_bound=True, is_met=False)


def play(busy: list[float], repeats: int = 1) -> tuple[list[Part], list[str]]:
    told: list[str] = []
    numbers = iter(range(100))

    def run(name: str) -> Part:
        return Part(name, (ROW._replace(median=float(next(numbers))),))

    shares = iter(busy)
    parts = run_parts(["pump"], run, lambda: next(shares), repeats=repeats, tell=told.append)
    return parts, told


def test_a_quiet_run_is_made_once() -> None:
    (part,), told = play([0.05, 0.1])
    assert (part.rows[0].median, part.busy) == (0.0, 0.1)
    assert told == ["pump: bench.pump", "pump: 0 s"]


@pytest.mark.parametrize(("busy", "kept"), [([0.0, 0.9, 0.1, 0.2], 1.0), ([0.3, 0.3, 0.1, 0.9], 0.0)])
def test_a_disturbed_run_is_told_and_repeated_and_the_quieter_one_counts(
    busy: list[float], kept: float
) -> None:
    (part,), told = play(busy)
    assert part.rows[0].median == kept
    assert sum("measured again" in line for line in told) == 1


def test_it_is_not_repeated_for_ever() -> None:
    (part,), told = play([0.9] * 10, repeats=3)
    assert sum(line == "pump: bench.pump" for line in told) == 4
    assert "busy machine" in render([part], {})


def test_the_table_tells_today_the_record_and_the_target() -> None:
    table = render([Part("pump", (ROW,))], {"a against b": 0.7})
    assert "| a against b | 0.9 | 0.8 | 1.1 | 0.7 | at least 0.95 | MISSED |" in table
    assert "could not be measured: no disk" in render([Part("spool", failure="no disk")], {})


@pytest.mark.parametrize("name", PARTS)
def test_each_part_is_a_program_that_takes_what_it_is_given(name: str) -> None:
    path = Path(*PARTS[name].split("."))
    file = path / "__main__.py" if name == "broker" else path.with_suffix(".py")
    source = file.read_text(encoding="utf-8")
    made = re.search(r"make_parser\(.*?output=[^)]*\)", source, re.DOTALL)
    assert made is not None
    assert ("rounds=" in made[0]) is (name not in ONCE)


def test_no_program_is_left_out() -> None:
    programs = {path.stem for path in Path("bench").glob("*.py") if "make_parser(" in path.read_text("utf-8")}
    known = {module.rpartition(".")[2] for module in PARTS.values()}
    assert programs - {"program"} == {"__main__" if name == "bench" else name for name in known}


def test_a_part_that_nobody_knows_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.suite", "pumps"], capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 2
    assert "there is no part pumps" in done.stderr


def test_a_process_that_has_ended_takes_no_memory() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it is still in the list of processes
    assert peak_kilobytes(process.pid) == 0
    process.wait()
    assert peak_kilobytes(process.pid) == 0
    assert peak_kilobytes("self") > 0


# -- the short form


def test_no_path_costs_a_quarter_more_than_on_record() -> None:
    assert short.measure_losses() == []


def measured(monkeypatch: pytest.MonkeyPatch, *times: float, steps: float = 1.0) -> list[int]:
    """Let each measurement come to so many times the record, and the steps as well; the rounds asked for."""
    record, known = (read[short._VERSION] for read in (short.read_record(), short.read_record("steps")))
    asked: list[int] = []

    def measure(rounds: int) -> dict[str, float]:
        asked.append(rounds)
        return {name: ratio * times[len(asked) - 1] for name, ratio in record.items()}

    monkeypatch.setattr(short, "measure", measure)
    monkeypatch.setattr(short, "count_steps", lambda: {name: count * steps for name, count in known.items()})
    return asked


@pytest.fixture
def on_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python of which something is on record."""
    monkeypatch.setattr(short, "_VERSION", next(iter(short.read_record())))


@pytest.mark.usefixtures("on_record")
def test_a_path_is_measured_again_before_it_is_said_to_have_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = measured(monkeypatch, 9.0, 1.0, steps=9.0)
    assert short.measure_losses(rounds=5) == []
    assert asked == [5, 15]


@pytest.mark.usefixtures("on_record")
@pytest.mark.parametrize(
    ("times", "steps", "is_lost"),
    [
        (1.2, 2.0, False),
        (1.3, 1.2, True),
        (1.4, 1.0, False),  # another processor, or a machine that is busy in its own way
        (1.6, 1.0, True),
    ],
)
def test_a_loss_that_no_more_instructions_account_for_must_be_a_large_one(
    monkeypatch: pytest.MonkeyPatch, times: float, steps: float, is_lost: bool
) -> None:
    measured(monkeypatch, times, times, steps=steps)
    assert {lost.name for lost in short.measure_losses()} == (set(short.PATHS) if is_lost else set())


def test_instructions_are_those_of_the_path_alone() -> None:
    """The same each time, whatever else the machine does, but for what is looked at once a second."""
    found = short.count_steps()
    assert short.count_steps() == pytest.approx(found, rel=0.02)
    assert all(count > 50_000 for count in found.values())


def test_the_record_has_every_path() -> None:
    assert short.read_record().keys() == short.read_record("steps").keys()
    for record in (*short.read_record().values(), *short.read_record("steps").values()):
        assert set(record) == set(short.PATHS)
