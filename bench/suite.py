"""`python -m bench.suite`: every benchmark, one table of ratios, and a line of history.

1. Each part is a program of this package and runs in a process of its own, one after the other. Its rounds
   are interleaved; a ratio is that of two values of one round; what is told is the median with its spread.
2. Before a part and after it, it is looked how busy the processors are while we do nothing. If others use
   more than a fifth of them it is said, and the part is repeated; the run that was disturbed least counts.
3. The table has today's median, lowest and highest value, what is on record (`bench/record.json`), and the
   target.
4. Each run adds a line to `bench/history.jsonl`: when, of which commit, on what machine, how busy it was, how
   long each part took, and each row. Commit it with a change that is meant to be seen there. `--keep` puts
   today's values on record.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["ONCE", "PARTS", "Part", "Row", "main", "render", "run_parts"]

#: What each part is, and the program that measures it.
PARTS = {
    "broker": "bench",
    "growth": "bench.growth",
    "crowd": "bench.crowd",
    "neighbour": "bench.neighbour",
    "aio": "bench.aio",
    "sync": "bench.sync",
    "spool": "bench.spool",
    "pump": "bench.pump",
    "backlog": "bench.backlog",
    "places": "bench.places",
    "syphon": "bench.syphon",
    "source": "bench.source",
    "ledger": "bench.ledger",
}
#: These have no rounds: each of their figures is one of many sends.
ONCE = {"neighbour"}
RECORD = Path(__file__).with_name("record.json")
HISTORY = Path(__file__).with_name("history.jsonl")
_BUSY = 0.2
_LOOK = 1.0
_LIMIT = 4 * 3600.0
_HEAD = ("what", "today", "low", "high", "on record", "target", "")


class Row(NamedTuple):
    """A ratio of today, and what it should be."""

    name: str
    median: float
    low: float
    high: float
    bound: float
    is_lower_bound: bool
    is_met: bool


@dataclass(frozen=True, slots=True)
class Part:
    """One run of one part, how long it took, and the share of the processors that others used: `busy`."""

    name: str
    rows: tuple[Row, ...] = ()
    busy: float = 0.0
    failure: str = ""
    seconds: float = 0.0


@dataclass(slots=True)
class _Processors:
    """How busy all processors are, as Linux tells it."""

    stat: Path = field(default_factory=lambda: Path("/proc/stat"))

    def used_by_others(self) -> float:
        """The share that is used while we wait."""
        before = self._read()
        time.sleep(_LOOK)
        after = self._read()
        total = after[0] - before[0]
        return 0.0 if total <= 0 else 1 - (after[1] - before[1]) / total

    def _read(self) -> tuple[int, int]:
        """Ticks of all kinds, and those that were idle."""
        fields = [int(word) for word in self.stat.read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]]
        return sum(fields), fields[3] + fields[4]


def run_parts(
    names: Iterable[str],
    run: Callable[[str], Part],
    used_by_others: Callable[[], float],
    *,
    repeats: int,
    tell: Callable[[str], None],
) -> list[Part]:
    """Rule 2: each part, again if the machine was busy; of several runs the one that was disturbed least."""
    found = []
    for name in names:
        runs: list[Part] = []
        while True:
            before = used_by_others()
            tell(f"{name}: {PARTS[name]}")
            begun = time.monotonic()
            part = run(name)
            seconds = time.monotonic() - begun
            tell(f"{name}: {seconds:.0f} s")
            runs.append(Part(name, part.rows, max(before, used_by_others()), part.failure, seconds))
            if part.failure or runs[-1].busy <= _BUSY or len(runs) > repeats:
                break
            tell(f"{name}: others used {runs[-1].busy:.0%} of the processors; it is measured again")
        found.append(min(runs, key=lambda one: (bool(one.failure), one.busy)))
    return found


def _run(name: str, rounds: int | None) -> Part:
    arguments = [] if rounds is None or name in ONCE else ["--rounds", f"{rounds}"]
    output = Path(f"build/bench-{name}.json")
    output.unlink(missing_ok=True)
    command = [sys.executable, "-m", PARTS[name], "--output", str(output), *arguments]
    done = subprocess.run(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=_LIMIT, text=True
    )
    if done.returncode or not output.exists():
        return Part(name, failure=(done.stderr.strip().splitlines() or ["it wrote nothing"])[-1])
    return Part(name, tuple(map(_row, json.loads(output.read_text(encoding="utf-8"))["targets"])))


def _row(target: dict[str, Any]) -> Row:
    is_lower = "at least" in target
    bound = target["at least" if is_lower else "at most"]
    return Row(
        target["name"], target["median"], target["low"], target["high"], bound, is_lower, target["met"]
    )


def render(parts: Iterable[Part], record: dict[str, float]) -> str:
    """The table, in Markdown, and what is to be said of it."""
    lines, notes = [_line(_HEAD), _line(["---"] * len(_HEAD))], []
    for part in parts:
        for row in part.rows:
            bound = f"{'at least' if row.is_lower_bound else 'at most'} {_number(row.bound)}"
            known = _number(record[row.name]) if row.name in record else "–"
            values = map(_number, (row.median, row.low, row.high))
            lines.append(_line([row.name, *values, known, bound, "met" if row.is_met else "MISSED"]))
        if part.failure:
            notes.append(f"{part.name} could not be measured: {part.failure}")
        elif part.busy > _BUSY:
            notes.append(
                f"{part.name} was measured on a busy machine: others used {part.busy:.0%} of the processors."
            )
    return "\n".join([*lines, *([""] if notes else []), *notes])


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _entry(parts: Iterable[Part]) -> dict[str, Any]:
    """Rule 4."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, timeout=30
    )
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip(),
        "machine": f"{os.cpu_count()} processors, {platform.machine()}, Python {platform.python_version()}",
        "busy": {part.name: round(part.busy, 2) for part in parts},
        "seconds": {part.name: round(part.seconds) for part in parts},
        "rows": {row.name: [row.median, row.low, row.high] for part in parts for row in part.rows},
    }


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def main() -> int:
    """Measure; 1 with `--check` if a target was missed, 4 if a part could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m bench.suite", description="Measure everything.")
    parser.add_argument("parts", nargs="*", help=f"some of: {', '.join(PARTS)} (default: all)")
    parser.add_argument("--rounds", type=int, help="rounds of each part that count (default: its own)")
    parser.add_argument("--repeats", type=int, default=1, help="how often a disturbed part is repeated")
    parser.add_argument("--history", type=Path, default=HISTORY, help="the file that a line is added to")
    parser.add_argument("--keep", action="store_true", help="put today's values on record")
    parser.add_argument("--check", action="store_true", help="fail if a target is missed")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    parts = run_parts(
        options.parts or PARTS,
        lambda name: _run(name, options.rounds),
        _Processors().used_by_others,
        repeats=options.repeats,
        tell=_tell,
    )
    whole = json.loads(RECORD.read_text(encoding="utf-8"))
    sys.stdout.write(f"{render(parts, whole['rows'])}\n")
    with options.history.open("a", encoding="utf-8") as history:
        history.write(json.dumps(_entry(parts)) + "\n")
    if options.keep:
        whole["rows"] |= {row.name: round(row.median, 3) for part in parts for row in part.rows}
        RECORD.write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")
    if any(part.failure for part in parts):
        return 4
    return int(options.check and not all(row.is_met for part in parts for row in part.rows))


if __name__ == "__main__":
    sys.exit(main())
