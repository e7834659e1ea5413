"""`pairbus drill`: an outage on two embedded namespaces, up to the verdict and the bill."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pairbus import __version__
from pairbus.errors import ConfigurationError

from .config import find_config
from .examples import examples
from .prices import choose_sheet, prices_option
from .tables import json_option, print_json, print_table

if TYPE_CHECKING:
    from pairbus.drill.picture import Display
    from pairbus.drill.result import DrillResult

_FILE = click.Path(dir_okay=False, path_type=Path)
_DIRECTORY = click.Path(file_okay=False, path_type=Path)
_FOUND = 1
_INCONCLUSIVE = 4
T = TypeVar("T")


@click.command(
    epilog=examples(
        "pairbus drill",
        "pairbus drill silence --seed 7 --report silence.html",
        "pairbus drill --show topic-down",
        "pairbus drill my-outage.toml --no-spark --json",
        "pairbus drill --live",
        "pairbus drill --app 'python shop.py'",
    )
)
@click.argument("scenario", default="namespace-down")
@click.option("--list", "lists", is_flag=True, help="Name the scenarios that come with Pairbus, and end.")
@click.option("--show", metavar="NAME", help="Print the TOML of a scenario to start your own from, and end.")
@click.option("--seed", type=click.IntRange(min=0), help="The seed. [default: that of the scenario]")
@click.option(
    "--app", metavar="COMMAND", help="Drill your own application: a command that sends, run without a shell."
)
@click.option("--no-spark", is_flag=True, help="Drain with a pump in this process; needs no Java.")
@click.option(
    "--report",
    type=_FILE,
    default=Path("pairbus-drill.html"),
    show_default=True,
    help="Where the report goes; the same as JSON lies beside it.",
)
@click.option(
    "--state", type=_DIRECTORY, help="An empty directory for records and receipts. [default: none is kept]"
)
@click.option("--live", is_flag=True, help="Let the drill be watched in a browser: the dashboard.")
@click.option(
    "--live-port",
    type=click.IntRange(0, 65535),
    default=8400,
    show_default=True,
    help="--live: the port; 0 picks one.",
)
@prices_option
@json_option
def drill(
    *,
    scenario: str,
    lists: bool,
    show: str | None,
    seed: int | None,
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
    chosen = find_scenario(scenario, seed=seed)
    sheet = choose_sheet(prices, find_config(None))
    _check_report(report)
    from pairbus.drill.play import play

    onlooker = None
    if live:
        from .drill_live import watch_live  # late: it needs the dashboard

        onlooker = watch_live(live_port, sheet)
    display = _open_display(is_quiet=as_json)
    try:
        result = _run(
            play(
                chosen,
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
    _write_report(result, report)
    if as_json:
        print_json(result.describe())
    else:
        click.echo(f"{report}")
    if result.inconclusive:
        return _INCONCLUSIVE
    return 0 if result.passed else _FOUND


def _list(*, as_json: bool) -> int:
    from pairbus.drill.scenario import find_scenario, shipped_scenarios

    found = [find_scenario(name) for name in shipped_scenarios()]
    if as_json:
        print_json([{"name": one.name, "title": one.title, "story": one.story} for one in found])
    else:
        print_table(("SCENARIO", "WHAT HAPPENS"), [(one.name, one.title) for one in found])
    return 0


def _check_report(report: Path) -> None:
    """Whether the report can be written is better known before the drill than after it."""
    if report.suffix == ".json":
        raise ConfigurationError(f"--report {report}: name the page, such as drill.html; JSON lies beside it")
    if not report.absolute().parent.is_dir():
        raise ConfigurationError(f"--report {report}: there is no directory {report.absolute().parent}")


def _open_display(*, is_quiet: bool) -> Display:
    if is_quiet:
        from pairbus.drill.picture import NoDisplay

        return NoDisplay()
    from pairbus.drill.report.display import open_display

    return open_display(sys.stdout, is_terminal=sys.stdout.isatty())


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end. Ctrl-C and SIGTERM break it off cleanly: what was begun is ended."""

    async def perform() -> T | None:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(work)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, task.cancel)
        try:
            return await task
        except asyncio.CancelledError:
            return None

    result = asyncio.run(perform())
    if result is None:
        raise KeyboardInterrupt
    return result


def _write_report(result: DrillResult, report: Path) -> None:
    from pairbus.drill.report.page import render_drill

    report.write_text(render_drill(result, now=time.time()), encoding="utf-8")
    beside = report.with_suffix(".json")
    beside.write_text(json.dumps(result.describe(), indent=2, ensure_ascii=False), encoding="utf-8")
