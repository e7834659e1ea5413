"""What every benchmark is as a program: the options that all have, and how it ends."""

import argparse
import multiprocessing
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from bench.report import Report

__all__ = ["finish", "make_parser", "served"]

# A broker is up within a second, on a busy machine within some.
_START_LIMIT = 60.0


def make_parser(
    module: str, description: str, *, output: Path, rounds: int | None = None, body: int | None = 1024
) -> argparse.ArgumentParser:
    """Where the report goes and whether a missed target fails; rounds and bodies with these defaults, or none
    where there are no such.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    if rounds is not None:
        help_text = f"rounds that count (default: {rounds})"
        parser.add_argument("--rounds", type=int, default=rounds, help=help_text)
    if body is not None:
        parser.add_argument("--body", type=int, default=body, help="bytes of a body")
    parser.add_argument("--output", type=Path, default=output, help=f"JSON file (default: {output})")
    parser.add_argument("--check", action="store_true", help="fail if a target is missed")
    return parser


def finish(report: Report, options: argparse.Namespace) -> int:
    """Write the report and print its table; 1 with `--check` if a target was missed."""
    report.write_json(options.output)
    sys.stdout.write(f"{report.table()}\n\nEach round's values are in {options.output}.\n")
    return int(options.check and not all(target.is_met for target in report.targets))


@contextmanager
def served(serve: Callable[..., None], *arguments: Any) -> Iterator[tuple[SpawnProcess, Connection]]:
    """A process that runs `serve` with a line to us and these arguments; it is told to stop at the end."""
    processes = multiprocessing.get_context("spawn")
    ours, theirs = processes.Pipe()
    process = processes.Process(target=serve, args=(theirs, *arguments), daemon=True)
    process.start()
    try:
        if not ours.poll(_START_LIMIT):
            raise SystemExit("the broker did not start")
        yield process, ours
        ours.send("stop")
    finally:
        process.join(_START_LIMIT)
