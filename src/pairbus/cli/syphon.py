"""`pairbus syphon`: drain the backlog on Spark, see before what is there, and hold the running one."""

from __future__ import annotations

import asyncio
import dataclasses
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .backlogs import ChosenBacklog, TransportName, choose_backlog, choose_pairs, job_state_dir
from .candidates import offer_entities
from .examples import examples
from .group import CommandGroup
from .pairs import PairChoice, pair_options
from .progress import CLEAR_LINE
from .tables import json_option, print_json, print_table

if TYPE_CHECKING:
    from pairbus.backlog.plan import BacklogPlan
    from pairbus.spark import Syphon, SyphonProgress, SyphonSummary
    from pairbus.spark.leash.leash import Order
    from pairbus.spark.syphon import LeashKind

_DIRECTORY = click.Path(file_okay=False, path_type=Path)
# Where nobody looks on, a line now and then is enough.
_PLAIN_PAUSE = 10.0
_FOUND = 1
_INCOMPLETE = 4

_count_option = click.option(
    "--count", type=click.IntRange(min=1), help="How many backlog queues, above backlog_queue_count."
)
_extra_option = click.option(
    "--include-extra", is_flag=True, help="Serve backlog queues beyond the count too."
)
_state_option = click.option(
    "--state", type=_DIRECTORY, help="The state directory. [default: that of the pair, or of all pairs]"
)
_all_pairs_option = click.option(
    "--all-pairs", is_flag=True, help="Every pair of the configuration file, in one job."
)


@click.group(
    cls=CommandGroup,
    epilog=examples(
        "pairbus syphon plan --pair shop",
        "pairbus syphon run --pair shop --once",
        "pairbus syphon stop --pair shop",
    ),
)
def syphon() -> None:
    """Drain the backlog of a pair to its entities, on Spark."""


@syphon.command(
    "run",
    epilog=examples(
        "pairbus syphon run --once --primary-env PRIMARY --secondary-env SECONDARY",
        "pairbus syphon run --pair shop --max-rate 500 --path orders",
        "pairbus syphon run --all-pairs --master spark://spark:7077 --driver-host 10.0.0.4",
    ),
)
@pair_options
@_all_pairs_option
@click.option("--once", is_flag=True, help="End when the backlog is empty, instead of running until stopped.")
@click.option(
    "--master",
    metavar="URL",
    help="Where Spark runs; sc://host:port is Spark Connect. [default: local[8,4], this machine]",
)
@click.option(
    "--shards", type=click.IntRange(min=1), help="How many tasks share the queues. [default: cores]"
)
@click.option("--driver-host", metavar="ADDRESS", help="An address of this machine that executors can reach.")
@click.option(
    "--leash",
    type=click.Choice(["socket", "file"]),
    help="How the tasks are held: by a socket of this process, or by files below --records. "
    "[default: file for Spark Connect, else socket]",
)
@_count_option
@_extra_option
@click.option(
    "--path",
    "paths",
    multiple=True,
    metavar="PATH",
    shell_complete=offer_entities,
    help="Only messages for this entity. Repeatable.",
)
@click.option(
    "--transport",
    type=click.Choice(["amqp", "sdk"]),
    default="amqp",
    show_default=True,
    help="Our own AMQP, or the official SDK.",
)
@click.option("--max-rate", type=click.FloatRange(min=0, min_open=True), help="Messages a second, at most.")
@click.option(
    "--records", type=_DIRECTORY, help="Where receipts go; executors share it. [default: STATE/records]"
)
@_state_option
@json_option
def run_command(
    *,
    choice: PairChoice,
    all_pairs: bool,
    once: bool,
    master: str | None,
    shards: int | None,
    driver_host: str | None,
    leash: LeashKind | None,
    count: int | None,
    include_extra: bool,
    paths: tuple[str, ...],
    transport: TransportName,
    max_rate: float | None,
    records: Path | None,
    state: Path | None,
    as_json: bool,
) -> int:
    """Move backlog messages to their entities, until stopped or, with --once, until none is left.

    SIGINT and SIGTERM stop it cleanly: nothing stays locked and nothing is sent twice.
    """
    chosen = [
        choose_backlog(
            one,
            count=count,
            include_extra=include_extra,
            paths=paths,
            transport=transport,
            max_rate=max_rate,
        )
        for one in (choose_pairs(choice) if all_pairs else [choice])
    ]
    state = _state_of(choice, state, all_pairs=all_pairs)
    from pairbus.spark import Syphon, open_session  # late: help needs no Spark
    from pairbus.spark.leash.tether import ControlFile

    ControlFile(state).check_free()
    spark = open_session(master=master, app_name="pairbus-syphon", is_short=once)
    try:
        runner = Syphon(
            spark,
            [one.backlog for one in chosen],
            records=_records_of_all(chosen, records) if all_pairs else records,
            state=state,
            options=[one.options for one in chosen],
            shards=shards,
            driver_host=driver_host or "127.0.0.1",
            leash=leash,
        )
        summary = _run(runner, once=once, as_json=as_json)
    finally:
        spark.stop()
    if as_json:
        print_json({**dataclasses.asdict(summary), "rate": summary.rate})
    else:
        _print_summary(summary)
    if summary.stopped:
        return _INCOMPLETE
    return _FOUND if once and not summary.is_complete else 0


def _state_of(choice: PairChoice, state: Path | None, *, all_pairs: bool) -> Path:
    if state is not None:
        return state
    return job_state_dir(choice) if all_pairs else choice.resolve().state_dir


def _records_of_all(chosen: Sequence[ChosenBacklog], records: Path | None) -> list[Path]:
    """Each pair's receipts lie where `verify` and `cost report` of that pair look for them."""
    from pairbus.client.state.directory import records_dir

    if records is not None:
        return [records / one.settings.name for one in chosen]
    return [records_dir(one.settings.state_dir) for one in chosen]


def _run(runner: Syphon, *, once: bool, as_json: bool) -> SyphonSummary:
    show = _ProgressLine(draws=sys.stderr.isatty(), is_quiet=as_json and not sys.stderr.isatty())
    with _stopped_by_signals(runner):
        try:
            return runner.run(once=once, on_progress=show)
        finally:
            show.finish()


@contextmanager
def _stopped_by_signals(runner: Syphon) -> Iterator[None]:
    def stop(number: int, frame: Any) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # who asks twice does not want to wait
        runner.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _ProgressLine:
    """One line that is drawn again and again on a terminal, and plain lines elsewhere."""

    def __init__(self, *, draws: bool, is_quiet: bool) -> None:
        self._draws = draws
        self._is_quiet = is_quiet
        self._seen: tuple[float, int] | None = None
        self._rate = 0.0
        self._told_at = 0.0

    def __call__(self, progress: SyphonProgress) -> None:
        now, handled = time.monotonic(), progress.moved + progress.dead_lettered
        if self._seen is not None:
            passed = max(0.001, now - self._seen[0])
            measured = (handled - self._seen[1]) / passed
            self._rate = measured if self._rate == 0 else 0.7 * self._rate + 0.3 * measured
        self._seen = now, handled
        if self._draws:
            click.echo(f"{CLEAR_LINE}{self._line(progress, handled)}", err=True, nl=False)
        elif not self._is_quiet and now - self._told_at >= _PLAIN_PAUSE:
            self._told_at = now
            click.echo(self._line(progress, handled), err=True)

    def _line(self, progress: SyphonProgress, handled: int) -> str:
        of = "" if progress.total is None else f" of {max(progress.total, handled):,}"
        parts = [f"moved {progress.moved:,}{of}", f"{self._rate:,.0f}/s"]
        if progress.total is not None and self._rate > 1:
            parts.append(f"{max(0, progress.total - handled) / self._rate:,.0f} s left")
        if progress.dead_lettered:
            parts.append(f"{progress.dead_lettered:,} dead-lettered")
        if progress.waiting:
            parts.append(f"{progress.waiting:,} waiting")
        if progress.order != "run":
            parts.append({"pause": "paused", "stop": "stopping"}[progress.order])
        if progress.trouble:
            parts.append(progress.trouble)
        return ", ".join(parts)

    def finish(self) -> None:
        """Take the drawing away."""
        if self._draws:
            click.echo(CLEAR_LINE, err=True, nl=False)


def _print_summary(summary: SyphonSummary) -> None:
    for note in summary.notes:
        click.echo(note)
    for queue, error in summary.queue_errors.items():
        click.echo(f"{queue} could not be read: {error}")
    rows = [
        (
            path,
            f"{one.moved:,}",
            f"{one.dead_lettered:,}",
            f"{one.waiting:,}",
            f"{one.rate:,.0f}",
            one.trouble or "",
        )
        for path, one in sorted(summary.paths.items())
    ]
    if rows:
        print_table(("PATH", "MOVED", "DEAD LETTERS", "WAITING", "PER SECOND", "TROUBLE"), rows)
    if summary.stopped:
        click.echo("stopped before its end: what is left waits in the backlog; run it again to move it")
    slowest = "" if summary.slowest_path is None else f"; the slowest path was {summary.slowest_path}"
    click.echo(
        f"moved {summary.moved:,} ({summary.bytes:,} bytes), dead-lettered {summary.dead_lettered:,}, "
        f"waiting {summary.waiting:,} in {summary.seconds:.1f} s{slowest}"
    )


@syphon.command(
    "plan",
    epilog=examples(
        "pairbus syphon plan --pair shop",
        "pairbus syphon plan --pair shop --rate 500 --json",
    ),
)
@pair_options
@_count_option
@_extra_option
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    default=2000.0,
    show_default=True,
    help="Messages a second that the time is reckoned with.",
)
@json_option
def plan_command(
    *, choice: PairChoice, count: int | None, include_extra: bool, rate: float, as_json: bool
) -> int:
    """Say what a drain would do: how much, for whom, how long, at what cost, and what cannot be sent.

    It only looks; nothing is moved or locked. Exit code 1: some messages would end in the dead letters.
    """
    chosen = choose_backlog(choice, count=count, include_extra=include_extra)
    from pairbus.backlog.plan import plan_backlog

    plan = asyncio.run(plan_backlog(chosen.backlog, chosen.options, rate=rate, now=time.time()))
    if as_json:
        print_json(plan.to_dict())
    else:
        _print_plan(plan)
    return _FOUND if plan.poison else 0


def _print_plan(plan: BacklogPlan) -> None:
    for note in plan.notes:
        click.echo(note)
    rows = [
        (path, f"{one.messages:,}", f"{one.bytes:,}", f"{one.oldest:,.0f} s", "; ".join(one.problems()))
        for path, one in sorted(plan.paths.items())
    ]
    if rows:
        print_table(("PATH", "MESSAGES", "BYTES", "OLDEST", "PROBLEMS"), rows)
    click.echo(
        f"{plan.messages:,} messages, {plan.bytes:,} bytes, {plan.dead_letters:,} dead letters already; "
        f"about {plan.seconds:,.0f} s at {plan.rate:,.0f} a second; {plan.operations:,} operations, "
        f"{plan.cost} {plan.currency} at most"
    )


def _order(choice: PairChoice, state: Path | None, order: Order, *, all_pairs: bool, as_json: bool) -> int:
    from pairbus.spark.leash.tether import ControlFile, ask_leash

    directory = _state_of(choice, state, all_pairs=all_pairs)
    told = ask_leash(ControlFile(directory).read(), order)
    if as_json:
        print_json(told)
    else:
        words = {"run": "running", "pause": "paused", "stop": "stopping"}
        click.echo(
            f"{words[told['order']]}; moved {told['counts']['moved']:,} so far, {told['pumps']} pumps at work"
        )
        if told["trouble"]:
            click.echo(told["trouble"])
    return 0


@syphon.command("pause", epilog=examples("pairbus syphon pause --pair shop"))
@pair_options
@_all_pairs_option
@_state_option
@json_option
def pause_command(*, choice: PairChoice, all_pairs: bool, state: Path | None, as_json: bool) -> int:
    """Let the running syphon give back what it holds, and wait."""
    return _order(choice, state, "pause", all_pairs=all_pairs, as_json=as_json)


@syphon.command("resume", epilog=examples("pairbus syphon resume --pair shop"))
@pair_options
@_all_pairs_option
@_state_option
@json_option
def resume_command(*, choice: PairChoice, all_pairs: bool, state: Path | None, as_json: bool) -> int:
    """Let a paused syphon go on."""
    return _order(choice, state, "run", all_pairs=all_pairs, as_json=as_json)


@syphon.command(
    "stop", epilog=examples("pairbus syphon stop --pair shop", "pairbus syphon stop --state state/shop")
)
@pair_options
@_all_pairs_option
@_state_option
@json_option
def stop_command(*, choice: PairChoice, all_pairs: bool, state: Path | None, as_json: bool) -> int:
    """Stop the running syphon cleanly: nothing stays locked and nothing is sent twice."""
    return _order(choice, state, "stop", all_pairs=all_pairs, as_json=as_json)
