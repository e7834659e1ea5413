"""`python -m bench.spool`: messages that a client spools, against the syncs that the disk does in a second.

How it is measured
1. The disk: a record's bytes are appended to a file and synced (`fdatasync`), again and again, by one thread.
2. The spool, on the same disk: one caller that waits for each message, then 50 at once. A message is kept
   when `append` returns. Nobody replays meanwhile.
3. Rounds are interleaved; a ratio is that of one round. The disk is that of the temporary directory (TMPDIR).
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

from azure.servicebus import ServiceBusMessage

from bench.figures import Figure, Target, ratio
from bench.program import finish, make_parser
from bench.report import Report
from pairbus.client.sending.spool import Spool
from pairbus.client.state.packing import pack

__all__ = ["main"]

_OUTPUT = Path("build/bench-spool.json")
_DISK = "syncs of the disk"
#: Callers at once, and how many times the syncs of the disk they keep at least.
_CALLERS = {1: 0.8, 50: 20.0}
_LIMIT = 1 << 40


def time_disk(directory: Path, data: bytes, seconds: float) -> float:
    """Syncs a second."""
    path = directory / "disk"
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    try:
        count, begun = 0, time.perf_counter()
        while time.perf_counter() - begun < seconds:
            os.write(file, data)
            os.fdatasync(file)
            count += 1
        return count / (time.perf_counter() - begun)
    finally:
        os.close(file)
        path.unlink()


async def time_spool(directory: Path, message: ServiceBusMessage, callers: int, seconds: float) -> float:
    """Messages a second that so many callers have kept."""
    spool = Spool(directory, limit=_LIMIT)
    count, begun = 0, time.perf_counter()

    async def call() -> None:
        nonlocal count
        while time.perf_counter() - begun < seconds:
            await spool.append("orders", [message])
            count += 1

    await asyncio.gather(*(call() for _ in range(callers)))
    taken = time.perf_counter() - begun
    await spool.close()
    return count / taken


def compare(options: argparse.Namespace) -> Report:
    """All rounds; the first one warms everything up and does not count."""
    message = ServiceBusMessage(b"x" * options.body, message_id="0" * 32)
    data = pack([message])
    rounds: list[dict[str, float]] = []
    for _ in range(options.rounds + 1):
        with tempfile.TemporaryDirectory(prefix="pairbus-bench-") as scratch:
            values = {_DISK: time_disk(Path(scratch), data, options.seconds)}
            for callers in _CALLERS:
                place = Path(scratch) / f"spool-{callers}"
                values[_name(callers)] = asyncio.run(time_spool(place, message, callers, options.seconds))
        rounds.append(values)
    report = Report.of(options)
    disk = [one[_DISK] for one in rounds[1:]]
    report.figures.append(Figure(_DISK, "/s", tuple(disk)))
    for callers, bound in _CALLERS.items():
        kept = [one[_name(callers)] for one in rounds[1:]]
        report.figures.append(Figure(_name(callers), "/s", tuple(kept)))
        against = ratio(f"{_name(callers)}, against the disk's syncs", kept, disk)
        report.targets.append(Target(against, bound, at_least=True))
    return report


def _name(callers: int) -> str:
    return f"spooled by {'one caller' if callers == 1 else f'{callers} at once'}"


def main() -> int:
    """Measure; 1 with `--check` if a target was missed."""
    parser = make_parser("bench.spool", "Measure the spool.", output=_OUTPUT, rounds=7)
    parser.add_argument("--seconds", type=float, default=1.0, help="how long each measures in a round")
    options = parser.parse_args()
    report = compare(options)
    return finish(report, options)


if __name__ == "__main__":
    sys.exit(main())
