"""`--jitter`: the dice fall as the seed has it, and they make late what may come late."""

import os
import subprocess
import sys
import threading
from pathlib import Path

from tests.guards.sources import ROOT
from tests.jitter import Jitter
from tests.waiting import PATIENCE

TESTS = 100


def change_and_tell(told: list[str]) -> None:
    """What a thread may do: a test that waits for the first of these has not seen the second."""
    told.append("changed")
    told.append("told")


def lateness(seed: int) -> list[list[float]]:
    """How late a thread was at first, test by test: how soon it may be late again is told by the clock."""
    found: list[list[float]] = []
    for number in range(TESTS):
        slept: list[float] = []
        jitter = Jitter(seed, sources=__file__, sleep=slept.append)
        before = threading.getprofile()
        try:
            jitter.begin(f"test {number}")
            thread = threading.Thread(target=change_and_tell, args=([],))
            thread.start()
            thread.join(PATIENCE)
        finally:
            jitter.end()
            threading.setprofile(before)
        found.append(slept[:1])
    return found


def test_threads_are_late_in_some_tests_and_the_same_seed_repeats_it() -> None:
    found = lateness(7)
    assert 0 < sum(map(bool, found)) < TESTS
    assert found == lateness(7)
    assert found != lateness(8)


def test_the_seed_is_told(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text("def test_sample() -> None:\n    assert True\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.jitter", "--jitter", "4711", "--rootdir", ".", "."],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (done.returncode, "jitter: 4711" in done.stdout) == (0, True), done.stdout + done.stderr
