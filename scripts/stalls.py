"""Runs the tests while half of their processes stand still now and then, as on a machine that is shared.

A busy host stops a machine for a second, or lets one of its processes wait for the disk. Every test must bear
that: a deadline that then passes is no failure of what is tested. `--jitter` holds up single threads for some
milliseconds; this stops whole processes, also those that tests have started.

    python scripts/stalls.py --seed 4711 tests/pump tests/client

What follows the options is for pytest. The seed chooses the lengths and, as far as the same processes run,
who is stopped; `build/stalls.log` says who was, when, and for how long.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOG = ROOT / "build" / "stalls.log"
# In seconds: how long one stands still, and how long all go on in between.
STALL = (0.2, 1.5)
PEACE = (0.3, 2.0)
# Which part of them.
HALF = 0.5


def parents() -> dict[int, int]:
    """Every process, and who has started it."""
    found = {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with suppress(OSError):  # it has ended
                found[int(place.name)] = int((place / "stat").read_text().rpartition(")")[2].split()[1])
    return found


def descendants(root: int) -> list[int]:
    """All that a process has started, directly or not, the oldest first."""
    by_parent: dict[int, list[int]] = {}
    for pid, parent in parents().items():
        by_parent.setdefault(parent, []).append(pid)
    found, known = [], [root]
    while known:
        known = sorted(child for pid in known for child in by_parent.get(pid, []))
        found += known
    return found


def command_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:120]
    return ""


def tell(pids: Iterable[int], signal_number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal_number)


@contextmanager
def stopped(pids: Sequence[int]) -> Iterator[None]:
    """They stand still meanwhile, but for those that have ended."""
    try:
        tell(pids, signal.SIGSTOP)
        yield
    finally:
        tell(pids, signal.SIGCONT)


def run(command: list[str], dice: random.Random) -> int:
    """Run a command to its end, and let half of its processes stand still now and then."""
    LOG.parent.mkdir(exist_ok=True)
    begun = time.monotonic()
    with LOG.open("w") as log, subprocess.Popen(command, cwd=ROOT) as process:
        while process.poll() is None:
            time.sleep(dice.uniform(*PEACE))
            seconds = dice.uniform(*STALL)
            those = [pid for pid in descendants(process.pid) if dice.random() < HALF]
            with stopped(those):
                names = "".join(f"\n  {pid} {command_of(pid)}" for pid in those)
                print(f"{time.monotonic() - begun:.1f} s: for {seconds:.2f} s{names}", file=log, flush=True)
                time.sleep(seconds)
        return process.returncode


def main() -> int:
    parser = argparse.ArgumentParser(description="the tests while their processes stand still now and then")
    parser.add_argument("--seed", type=int, help="the dice of an earlier run")
    given, arguments = parser.parse_known_args()
    seed = random.SystemRandom().randrange(1 << 30) if given.seed is None else given.seed
    print(f"stalls: seed {seed}", flush=True)
    return run([sys.executable, "-m", "pytest", *arguments], random.Random(seed))


if __name__ == "__main__":
    sys.exit(main())
