"""Runs every long form of the tests to its end, whatever became of those before it, and prints a table.

`make soak` runs all, `make soak FORMS="crash mutants"` some of them, and `make soak SEED=4711` the dice of an
earlier run. What a form says goes to `build/soak/NAME.log`; of one that failed the end is printed.

To add a form, add a row to `FORMS`: its name, how much it is, the arguments of Python, and the variables that
make the tests long. `{seed}` stands for the seed in both; who is repeated has the next seed each time.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / "build" / "soak"
# What takes longer hangs.
LIMIT = 4 * 3600.0
# How much of a failure is printed.
LAST_LINES = 40
WIDEST_SEED = 1 << 30


@dataclass(frozen=True, slots=True)
class Form:
    """One long form: `times` runs of Python, each with a seed of its own."""

    name: str
    amount: str
    arguments: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    times: int = 1

    @property
    def has_dice(self) -> bool:
        return any("{seed}" in text for text in (*self.arguments, *self.variables.values()))

    def command(self, seed: int) -> list[str]:
        return [sys.executable, *(text.format(seed=seed) for text in self.arguments)]

    def environment(self, seed: int) -> dict[str, str]:
        return {**os.environ, **{name: text.format(seed=seed) for name, text in self.variables.items()}}


def tests(*arguments: str) -> tuple[str, ...]:
    return ("-m", "pytest", "-q", *arguments)


def histories(world: str, count: int) -> tuple[str, ...]:
    return ("-m", "tests.simulation", "--world", world, "--seed", "{seed}", "--histories", str(count))


FORMS = (
    Form("pump", "50,000 histories", histories("pump", 50_000)),
    Form("spool", "20,000 histories", histories("spool", 20_000)),
    Form("client", "50,000 histories", histories("client", 50_000)),
    Form("convoy", "20,000 histories", histories("convoy", 20_000)),
    Form("order", "20,000 histories", histories("order", 20_000)),
    Form("fleet", "10,000 histories", histories("fleet", 10_000)),
    Form(
        "mutants",
        "all mistakes",
        tests("tests/simulation/test_mutants.py"),
        {"PAIRBUS_SIMULATION_MUTANTS": "all"},
    ),
    Form(
        "verdicts",
        "1,000 histories",
        tests("tests/ledger/test_histories.py", "tests/ledger/test_fleet_histories.py"),
        {"PAIRBUS_VERDICT_HISTORIES": "1000"},
    ),
    Form(
        "properties",
        "all, 10 times",
        tests("-m", "hypothesis", *("--hypothesis-profile=dice", "--hypothesis-seed={seed}")),
        times=10,
    ),
    Form(
        "fuzzers",
        "200 times as many cases",
        tests("--timeout=14000", "tests/amqp/test_fuzz.py", "tests/broker/test_fuzz.py"),
        {"PAIRBUS_FUZZ_ROUNDS": "200", "PAIRBUS_FUZZ_SEED": "{seed}"},
    ),
    Form(
        "books",
        "3,000 stories",
        tests(
            "--timeout=14000",
            *("--hypothesis-profile=dice", "--hypothesis-seed={seed}", "tests/store/test_books_model.py"),
        ),
        {"PAIRBUS_BOOKS": "3000"},
    ),
    Form(
        "crash",
        "25 kills",
        tests("tests/crash"),
        {"PAIRBUS_CRASH_KILLS": "25", "PAIRBUS_CRASH_SEED": "{seed}"},
    ),
    Form(
        "damage",
        "5,000 damaged stores",
        tests("tests/store/test_damage.py"),
        {"PAIRBUS_DAMAGES": "5000", "PAIRBUS_DAMAGE_SEED": "{seed}"},
    ),
    Form(
        "ordeals",
        "all faults, 3 times",
        tests("tests/ordeal"),
        {"PAIRBUS_ORDEALS": "all", "PAIRBUS_ORDEAL_SEED": "{seed}"},
        times=3,
    ),
    Form("amqp", "every test of the client", tests("tests/client"), {"PAIRBUS_CLIENT_TRANSPORT": "amqp"}),
    Form(
        "prober",
        "50 clients, 20 intervals",
        tests("tests/client/test_fleet.py", "-k", "one_pings_for_all"),
        {"PAIRBUS_FLEET_CLIENTS": "50"},
    ),
    Form(
        "jitter",
        "what has threads, 3 times",
        tests(
            "--jitter={seed}",
            *("tests/backlog", "tests/broker", "tests/cli", "tests/client", "tests/crash", "tests/dashboard"),
            *("tests/drill", "tests/faults", "tests/lease", "tests/ledger", "tests/plumbing", "tests/pump"),
            *("tests/spark", "tests/stores", "tests/sync", "tests/testing"),
        ),
        times=3,
    ),
    Form(
        "stalls", "every test, 2 times", ("scripts/stalls.py", "--seed", "{seed}", "-q", "-n", "6"), times=2
    ),
    Form(
        "syphon",
        "100,000 messages",
        tests("tests/spark"),
        {"PAIRBUS_SYPHON_MESSAGES": "100000", "PYSPARK_SUBMIT_ARGS": "pyspark-shell"},
    ),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a form."""

    form: Form
    result: str
    seconds: float = 0.0
    seeds: str = ""

    @property
    def is_good(self) -> bool:
        return self.result == "passed"


def run_once(form: Form, seed: int, log: Path) -> str:
    """Run a form with one seed; `passed`, or what is wrong with it. All that it started ends with it."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            form.command(seed),
            cwd=ROOT,
            env=form.environment(seed),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            return f"FAILED: no end after {LIMIT / 3600:.0f} h"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return "passed" if code == 0 else f"FAILED: exit code {code}"


def run(form: Form, seed: int, logs: Path) -> Outcome:
    """Run a form as often as it asks for, up to the first failure."""
    log = logs / f"{form.name}.log"
    log.write_bytes(b"")
    begun = time.monotonic()
    result, last = "passed", seed
    for last in range(seed, seed + form.times):
        result = run_once(form, last, log)
        if result != "passed":
            break
    seeds = "" if not form.has_dice else str(seed) if last == seed else f"{seed} to {last}"
    return Outcome(form, result, time.monotonic() - begun, seeds)


def last_lines(log: Path) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:])


def soak(forms: Sequence[Form], seed: int, logs: Path) -> Iterator[Outcome]:
    """Run one form after the other. After Ctrl-C the rest is told as not begun."""
    logs.mkdir(parents=True, exist_ok=True)
    is_stopped = False
    for form in forms:
        if is_stopped:
            yield Outcome(form, "not begun")
            continue
        print(f"soak: {form.name}, {form.amount}", flush=True)
        try:
            outcome = run(form, seed, logs)
        except KeyboardInterrupt:
            is_stopped = True
            yield Outcome(form, "interrupted")
            continue
        if not outcome.is_good:
            print(last_lines(logs / f"{form.name}.log"), flush=True)
        print(f"soak: {form.name} {outcome.result}, {outcome.seconds:.0f} s", flush=True)
        yield outcome


def table(outcomes: Sequence[Outcome]) -> str:
    rows = [("what", "how many", "seconds", "seeds", "result")]
    rows += [
        (one.form.name, one.form.amount, f"{one.seconds:.0f}", one.seeds, one.result) for one in outcomes
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="make soak", description="the long forms of the tests")
    parser.add_argument("--seed", type=int, help="the dice of an earlier run")
    parser.add_argument("forms", nargs="*", metavar="FORM", help=", ".join(form.name for form in FORMS))
    given = parser.parse_args()
    if unknown := set(given.forms) - {form.name for form in FORMS}:
        parser.error(
            f"there is no form {', '.join(sorted(unknown))}: {', '.join(form.name for form in FORMS)}"
        )
    seed = random.SystemRandom().randrange(WIDEST_SEED) if given.seed is None else given.seed
    chosen = [form for form in FORMS if not given.forms or form.name in given.forms]
    outcomes = list(soak(chosen, seed, LOGS))
    print(table(outcomes))
    return 0 if all(outcome.is_good for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
