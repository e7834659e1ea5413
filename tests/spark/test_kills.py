"""A worker, an executor and the driver, killed one after the other in the middle of one drain."""

import os
import signal
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyspark
import pytest

from pairbus.cli.main import main

from .bus import Bus, Letter, until
from .conftest import SHORT_FORM
from .processes import executors_below, kill_tree, parent_of, pumps_below
from .test_command import PAIR, call, receipts_of, start
from .traffic import assert_whole, letters

pytestmark = pytest.mark.timeout(900)

SHARDS = 2


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: int) -> list[str]:
    """Where Spark runs: on executors of their own, three more Java processes, in the long form only."""
    if messages <= SHORT_FORM:
        return []
    # Spark's own directory by another name, for executors leave their logs there.
    home = tmp_path / "spark"
    home.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        (home / entry.name).symlink_to(entry)
    monkeypatch.setenv("SPARK_HOME", str(home))
    return ["--master", f"local-cluster[{SHARDS},1,1024]"]


@pytest.mark.usefixtures("java")
def test_a_worker_an_executor_and_the_driver_are_killed_and_the_next_driver_obeys(
    spark: Any,
    full_bus: Bus,
    tmp_path: Path,
    messages: int,
    cluster: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bus, log = full_bus, tmp_path / "log"
    bus.shorten_locks(6.0)
    sent, late = letters(messages), letters(210, prefix="n")
    bus.put(sent)
    state = ["--state", str(tmp_path)]
    run = ["syphon", "run", *PAIR, *state, "--shards", str(SHARDS)]
    first = start(*run, "--max-rate", str(messages // 20), *cluster, log=log)
    try:
        kill_worker(bus, first, log)
        if cluster:
            kill_executor(bus, first, log)
        assert first.poll() is None, log.read_text()
    finally:
        kill_tree(first)  # the driver, in Python and in Java, and all else at once
    assert messages // 10 < bus.left() < messages, log.read_text()
    # The next one runs in the session of all tests, which saves the start of another, and leaves it running.
    monkeypatch.setattr(type(spark), "stop", lambda session: None)
    with ThreadPoolExecutor(1) as pool:
        commands = pool.submit(command, bus, state, late, within=240 + messages / 200)
        assert main([*run, "--max-rate", str(messages // 10)]) == 0
        commands.result()
    assert call("syphon", "stop", *PAIR, *state)[0] == 3, "none runs any more"
    assert_whole(bus, [*sent, *late])
    assert receipts_of(tmp_path / "records") == {letter.id for letter in [*sent, *late]}


def kill_worker(bus: Bus, syphon: subprocess.Popen[bytes], log: Path) -> None:
    """Kill a pump, and see that another one takes its place."""
    moves(bus, syphon, log)
    before = pumps_below(syphon.pid)
    os.kill(before[0], signal.SIGKILL)
    until_alive(syphon, lambda: {*pumps_below(syphon.pid)} - {*before} != set(), log)
    moves(bus, syphon, log)


def kill_executor(bus: Bus, syphon: subprocess.Popen[bytes], log: Path) -> None:
    """Kill the executor of a pump, and see that another one takes its place and pumps."""
    before = executors_below(syphon.pid)
    assert len(before) == SHARDS
    executor = executor_of(pumps_below(syphon.pid)[0])
    assert executor in before
    os.kill(executor, signal.SIGKILL)
    moves(bus, syphon, log)
    until_alive(syphon, lambda: {*map(executor_of, pumps_below(syphon.pid))} - {*before, 0} != set(), log)
    moves(bus, syphon, log)


def executor_of(worker: int) -> int:
    """Workers are children of a daemon, which is a child of its executor."""
    return parent_of(parent_of(worker))


def moves(bus: Bus, process: subprocess.Popen[bytes], log: Path) -> None:
    before = bus.left()
    until_alive(process, lambda: bus.left() < before - 100, log)
    assert bus.left() > 0, "it is in the middle of it"


def until_alive(process: subprocess.Popen[bytes], condition: Callable[[], bool], log: Path) -> None:
    until(lambda: condition() or process.poll() is not None, within=240)
    assert process.poll() is None, log.read_text()


def command(bus: Bus, state: list[str], late: list[Letter], *, within: float) -> None:
    """Pause, resume and stop a syphon that goes on where another was killed. However much it has moved before
    it hears of the pause, there is something to resume for.
    """
    left = bus.left()
    try:
        until(lambda: bus.left() < left)
        code, told, _ = call("syphon", "pause", *PAIR, *state, "--json")
        assert (code, told["order"]) == (0, "pause")
        until(lambda: bus.locked() == 0)
        bus.put(late)
        assert call("syphon", "resume", *PAIR, *state, "--json")[1]["order"] == "run"
        until(lambda: bus.left() == 0, within=within)
    finally:
        assert call("syphon", "stop", *PAIR, *state, "--json")[0] == 0
