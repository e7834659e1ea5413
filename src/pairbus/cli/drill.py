"""`pairbus drill`: an outage on two embedded namespaces, up to the verdict and the bill."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pairbus import __version__
from pairbus.errors import ConfigurationError
from pairbus.plumbing.files import publish

from .config import find_config
from .exit_codes import FOUND, INCOMPLETE
from .group import examples
from .numbers import AT_LEAST_ONE, LONG, PORT
from .places import DIRECTORY, FILE, check_target
from .prices import choose_sheet, prices_option
from .progress import working
from .tables import draw_table, json_option, tell

if TYPE_CHECKING:
    from pairbus.drill.picture import Display
    from pairbus.drill.result import DrillResult
    from pairbus.drill.scenario import Scenario


@examples(
    "pairbus drill",
    "pairbus drill --clients 12",
    "pairbus drill silence --seed 7 --report silence.html",
    "pairbus drill --show topic-down",
    "pairbus drill my-outage.toml --no-spark --json",
    "pairbus drill --live",
    "pairbus drill --app 'python shop.py'",
    "pairbus drill silence --no-spark --prove 5",
)
@click.command()
@click.argument("scenario", default="namespace-down")
@click.option("--list", "lists", is_flag=True, help="Name the scenarios that come with Pairbus, and end.")
@click.option("--show", metavar="NAME", help="Print the TOML of a scenario to start your own from, and end.")
@click.option("--seed", type=LONG, help="The seed. [default: that of the scenario]")
@click.option(
    "--clients",
    type=AT_LEAST_ONE,
    metavar="N",
    help="How many paired clients send, of which one pings for all. [default: those of the scenario]",
)
@click.option(
    "--prove",
    type=AT_LEAST_ONE,
    metavar="N",
    help="Play it with so many seeds in a row, beginning with --seed, and end with their table.",
)
@click.option(
    "--app", metavar="COMMAND", help="Drill your own application: a command that sends, run without a shell."
)
@click.option("--no-spark", is_flag=True, help="Drain with a pump in this process; needs no Java.")
@click.option(
    "--report",
    type=FILE,
    default=Path("pairbus-drill.html"),
    help="Where the report goes; the same as JSON lies beside it.",
)
@click.option(
    "--state", type=DIRECTORY, help="An empty directory for records and receipts. [default: none is kept]"
)
@click.option("--live", is_flag=True, help="Let the drill be watched in a browser: the dashboard.")
@click.option("--live-port", type=PORT, default=8400, help="--live: the port; 0 picks one.")
@prices_option
@json_option
def drill(
    *,
    scenario: str,
    lists: bool,
    show: str | None,
    seed: int | None,
    clients: int | None,
    prove: int | None,
    app: str | None,
    no_spark: bool,
    report: Path,
    state: Path | None,
    live: bool,
    live_port: int,
    prices: Path | None,
    as_json: bool,
) -> int:
    """Play an outage on two embedded namespaces, and account for every message.

    SCENARIO is the name of one that comes with Pairbus, or a TOML file of your own. Exit code 1: a message is
    missing, or something that the scenario promises did not come true. Exit code 4: all messages arrived, but
    the machine was too late by itself to judge a promise about time.
    """
    from pairbus.drill.scenario import find_scenario, shipped_text  # late: help needs no broker

    if show is not None:
        click.echo(shipped_text(show), nl=False)
        return 0
    if lists:
        return _list(as_json=as_json)
    if clients is not None and app is not None:
        raise ConfigurationError(
            "--clients is for the drill's own senders, and --app brings its own: leave it out"
        )
    chosen = find_scenario(scenario, seed=seed, clients=clients)
    sheet = choose_sheet(prices, find_config(None))
    _check_report(report)
    from pairbus.drill.play import play

    onlooker = None
    if live:
        if prove is not None:
            raise ConfigurationError(
                "--live shows one drill, and --prove plays several: leave out one of them"
            )
        from .drill_live import watch_live  # late: it needs the dashboard

        onlooker = watch_live(live_port, sheet)

    def play_one(one: Scenario, *, is_quiet: bool) -> DrillResult:
        display = _open_display(is_quiet=is_quiet)
        try:
            return asyncio.run(
                play(
                    one,
                    version=__version__,
                    on_spark=not no_spark,
                    state=state,
                    display=display,
                    sheet=sheet,
                    app=app,
                    onlooker=onlooker,
                )
            )
        finally:
            display.close()

    asked = [
        scenario,
        *(["--no-spark"] if no_spark else []),
        *([] if clients is None else ["--clients", str(clients)]),
        *([] if app is None else ["--app", app]),
    ]

    keep = partial(_write_report, report=report, asked=asked)
    if prove is not None:
        if state is not None:
            raise ConfigurationError("--prove plays several drills, and --state is for one: leave it out")
        return _prove(scenario, chosen.seed, prove, play_one, keep, clients=clients, as_json=as_json)
    result = play_one(chosen, is_quiet=as_json)
    keep(result)
    tell(result.describe(), f"{report}", as_json=as_json)
    return _exit_code(result)


def _exit_code(result: DrillResult) -> int:
    if result.inconclusive:
        return INCOMPLETE
    return 0 if result.passed else FOUND


def _prove(
    name: str,
    first: int,
    count: int,
    play_one: Callable[..., DrillResult],
    keep: Callable[[DrillResult], Path],
    *,
    clients: int | None,
    as_json: bool,
) -> int:
    """Seed after seed. The report is that of the first drill that did not pass, or else of the last. If it
    is stopped, what has been played is told all the same.
    """
    from pairbus.drill.scenario import find_scenario

    words = {0: "passed", FOUND: "failed", INCOMPLETE: "inconclusive"}
    codes: list[int] = []
    shown: DrillResult | None = None
    rows: list[dict[str, Any]] = []
    stopped: KeyboardInterrupt | None = None
    for seed in range(first, first + count):
        began = time.monotonic()
        try:
            with working(f"seed {seed}, {len(codes)} of {count} played"):
                result = play_one(find_scenario(name, seed=seed, clients=clients), is_quiet=True)
        except KeyboardInterrupt as error:
            stopped = error
            break
        if not any(codes):
            shown = result
        codes.append(_exit_code(result))
        rows.append(
            {
                "seed": seed,
                "verdict": words[codes[-1]],
                "seconds": round(time.monotonic() - began, 1),
                "failed": [check.name for check in result.checks if not check.passed],
            }
        )
    told = [
        (str(one["seed"]), one["verdict"], f"{one['seconds']:.1f}", "; ".join(one["failed"])) for one in rows
    ]
    table = draw_table(("SEED", "VERDICT", "SECONDS", "WHAT DID NOT COME TRUE"), told)
    report = [] if shown is None else [str(keep(shown))]
    described = {"scenario": name, "seeds": rows, "stopped": stopped is not None}
    tell(described, [*table, *report], as_json=as_json)
    if stopped is not None:
        click.echo(f"stopped: {len(rows)} of {count} seeds were played", err=True)
        raise stopped
    # What failed counts before what nobody could tell.
    return FOUND if FOUND in codes else max(codes)


def _list(*, as_json: bool) -> int:
    from pairbus.drill.scenario import find_scenario, shipped_scenarios

    found = [find_scenario(name) for name in shipped_scenarios()]
    told = [{"name": one.name, "title": one.title, "story": one.story} for one in found]
    rows = [(one.name, one.title) for one in found]
    tell(told, draw_table(("SCENARIO", "WHAT HAPPENS"), rows), as_json=as_json)
    return 0


def _check_report(report: Path) -> None:
    if report.suffix == ".json":
        raise ConfigurationError(f"--report {report}: name the page, such as drill.html; JSON lies beside it")
    check_target("--report", report)


def _open_display(*, is_quiet: bool) -> Display:
    if is_quiet:
        from pairbus.drill.picture import Display

        return Display()
    from pairbus.drill.report.display import open_display

    return open_display(sys.stdout, is_terminal=sys.stdout.isatty())


def _write_report(result: DrillResult, *, report: Path, asked: Sequence[str]) -> Path:
    from pairbus.drill.report.page import render_drill

    described = json.dumps(result.describe(), indent=2, ensure_ascii=False)
    publish(report, render_drill(result, now=time.time(), asked=asked), durable=False)
    publish(report.with_suffix(".json"), described, durable=False)
    return report
