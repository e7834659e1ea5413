"""Plays any number of histories: `python -m tests.simulation --seed N --histories M --processes P`."""

import argparse
import sys
import time

from .search import WORLDS, play, report, search


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--world", choices=WORLDS, default="pump", help="what is simulated")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--histories", type=int, default=500, help="how many seeds")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--failures", type=int, default=3, help="how many failures are shortened and shown")
    parser.add_argument("--trace", action="store_true", help="print all that happens in the first history")
    given = parser.parse_args()
    if given.trace:
        history = play(given.world, given.seed)
        sys.stdout.write("\n".join([*history.plan.lines(), *history.trace, *history.failures, ""]))
        return int(bool(history.failures))
    begun = time.monotonic()
    findings = search(given.world, given.seed, given.histories, processes=given.processes)
    for finding in findings[: given.failures]:
        sys.stdout.write(report(finding) + "\n\n")
    for finding in findings[given.failures :]:
        sys.stdout.write(f"{finding}\n")
    seconds = time.monotonic() - begun
    told = f"{given.histories} histories of {given.world} in {seconds:.1f} s: {len(findings)} failed"
    sys.stdout.write(f"{told}\n")
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
