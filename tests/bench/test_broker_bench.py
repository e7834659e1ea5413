"""The benchmark of the broker: it runs, and its figures are what they are called."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.figures import Figure, Target, ratio
from bench.processor import processor_seconds
from bench.report import Report
from tests.processes import killed_at_end


def test_a_figure_is_a_median_with_its_spread() -> None:
    figure = Figure("sends", "/s", (5.0, 1.0, 3.0))
    assert (figure.median, figure.low, figure.high) == (3.0, 1.0, 5.0)


def test_a_ratio_is_that_of_the_same_round() -> None:
    """Round by round 2, 2, 2; the ratio of the medians would be 2 as well, but not its spread."""
    assert ratio("r", [2.0, 20.0, 6.0], [1.0, 10.0, 3.0]).values == (2.0, 2.0, 2.0)


@pytest.mark.parametrize(
    ("values", "at_least", "is_met"),
    [((0.5,), True, True), ((0.3,), True, False), ((0.3,), False, True), ((0.5,), False, False)],
)
def test_a_target_can_be_missed(values: tuple[float, ...], at_least: bool, is_met: bool) -> None:
    target = Target(Figure("ratio", "", values), 0.4, at_least=at_least)
    assert target.is_met is is_met
    report = Report({}, targets=[target])
    assert ("MISSED" in report.table()) is not is_met


def test_processor_time_is_that_of_a_session() -> None:
    """One that works has used some, one that is not there none."""
    program = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\ninput()"
    started = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    with killed_at_end(started) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert 0.15 < processor_seconds(process.pid) < 5.0
        process.communicate(b"\n", timeout=30)
    assert processor_seconds(process.pid) == 0.0


def test_a_small_run(tmp_path: Path) -> None:
    output = tmp_path / "bench.json"
    arguments = [
        "--rounds",
        "1",
        "--messages",
        "200",
        "--single",
        "5",
        "--no-rabbitmq",
        "--output",
        str(output),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "bench", *arguments], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    whole = json.loads(output.read_text(encoding="utf-8"))
    figures = {figure["name"]: figure for figure in whole["figures"]}
    assert len(figures["pipelined sends, durable"]["values"]) == 1, "the round that warms up does not count"
    syncs = figures["syncs for 1,000 pipelined sends, durable"]["median"]
    assert 0 < syncs <= 1000, "a durable send is synced, and a turn has more than one"
    assert "RabbitMQ was not asked for" in done.stdout
    assert all(name in done.stdout for name in figures)


def test_a_small_run_of_growth(tmp_path: Path) -> None:
    output = tmp_path / "growth.json"
    sizes = ["--few", "200", "--many", "1000", "--entities", "150", "--receive", "100", "--rounds", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "bench.growth", *sizes, "--output", str(output)],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    targets = {target["name"]: target for target in json.loads(output.read_text())["targets"]}
    assert {"receive of 1,000 / of 200", "memory of a message whose content is on disk"} <= set(targets)
    assert all(name in done.stdout for name in targets)
