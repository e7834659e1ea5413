"""`pairbus syphon run`: drain the backlog, tell of it meanwhile, and sum it up.

Signals count from the start: a stop is obeyed once Spark has started, a second Ctrl-C ends all at once.
"""

from __future__ import annotations

import dataclasses
import json
import re
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal

import click

from pairbus.errors import ConfigurationError
from pairbus.plumbing.collector import IN_A_PUMP, CalmCollector
from pairbus.plumbing.wording import counted, time_span

from .backlogs import ChosenBacklog, choose_backlog, choose_pairs, job_state_dir
from .exit_codes import FOUND, INCOMPLETE
from .group import examples
from .numbers import AT_LEAST_ONE, NOT_NEGATIVE, PORT, POSITIVE
from .pairs import PairChoice, pair_options
from .places import PLACE
from .progress import DrawnLine
from .shared_options import (
    all_pairs_option,
    count_option,
    entities_option,
    extra_option,
    job_state_option,
    only_one,
    repeatable,
)
from .suggestions import runnable
from .tables import draw_table, json_option, per_second, print_json, print_lines

if TYPE_CHECKING:
    from pairbus.pump.summary import PathSummary
    from pairbus.spark import Syphon, SyphonProgress, SyphonSummary
    from pairbus.spark.syphon import LeashKind
    from pairbus.stores.places import RecordPlace

EngineName = Literal["spark", "local"]
# What a run needs of Python, besides Spark's own.
_IMPORTED = ("pairbus.spark.syphon", "pyarrow.parquet", "pyarrow.json", "pyarrow.compute")
# Where nobody looks on, a line now and then is enough.
_PLAIN_PAUSE = 10.0


@examples(
    "pairbus syphon run --once --primary-env PRIMARY --secondary-env SECONDARY",
    "pairbus syphon run --pair shop --max-rate 500 --path orders",
    "pairbus syphon run --all-pairs --master spark://spark:7077 --driver-host 10.0.0.4",
)
@click.command("run")
@pair_options
@all_pairs_option
@click.option("--once", is_flag=True, help="End when the backlog is empty, instead of running until stopped.")
@click.option(
    "--patience",
    type=NOT_NEGATIVE,
    default=0,
    metavar="SECONDS",
    help="With --once: so long without progress paths and queues that are down are waited for.",
)
@click.option(
    "--engine",
    type=click.Choice(["spark", "local"]),
    default="spark",
    help="Where pumps run: on Spark, or in this process, which needs no Java and is there at once.",
)
@click.option(
    "--master",
    metavar="URL",
    help="Where Spark runs; sc://host:port is Spark Connect. [default: local[8,4], this machine]",
)
@repeatable("--conf", "settings", "KEY=VALUE", "A setting of Spark, above ours.")
@click.option("--name", default="pairbus-syphon", help="The name of the application in Spark.")
@click.option("--shards", type=AT_LEAST_ONE, help="How many tasks share the queues. [default: cores]")
@click.option("--driver-host", metavar="ADDRESS", help="An address of this machine that executors can reach.")
@click.option(
    "--leash",
    type=click.Choice(["socket", "file", "store"]),
    help="How the tasks are held: by a socket of this process, or by files or objects below --records. "
    "[default: file or store for Spark Connect, else socket]",
)
@count_option
@extra_option("Serve")
@entities_option("--path", "paths", "Only messages for this entity.")
@click.option(
    "--transport",
    type=click.Choice(["amqp", "sdk"]),
    default="amqp",
    help="Our own AMQP, or the official SDK.",
)
@click.option("--max-rate", type=POSITIVE, help="Messages a second, at most.")
@click.option(
    "--credits",
    type=NOT_NEGATIVE,
    metavar="N",
    help="Credits of each namespace a second, of which the application gets what it needs; 0 for none, as in "
    "Premium. [default: what a namespace tells; in Azure those of the Standard tier, until shown otherwise]",
)
@click.option(
    "--records",
    type=PLACE,
    multiple=True,
    callback=only_one,
    help="Where receipts go: a directory that executors share, or an object store. "
    "[default: records of the pair, or STATE/records]",
)
@click.option(
    "--keep-days", type=AT_LEAST_ONE, metavar="N", help="Remove records that are older, now and then."
)
@job_state_option
@click.option(
    "--metrics-port",
    type=PORT,
    metavar="PORT",
    help="Serve Prometheus metrics on this port of this machine; 0 picks a free one.",
)
@json_option
def run_command(
    *,
    choice: PairChoice,
    all_pairs: bool,
    once: bool,
    patience: float,
    engine: EngineName,
    master: str | None,
    settings: tuple[str, ...],
    name: str,
    shards: int | None,
    driver_host: str | None,
    leash: LeashKind | None,
    records: RecordPlace | None,
    keep_days: int | None,
    state: Path | None,
    metrics_port: int | None,
    as_json: bool,
    **drained: Any,
) -> int:
    """Move backlog messages to their entities, until stopped or, with --once, until none is left.

    SIGINT and SIGTERM stop it cleanly: nothing stays locked and nothing is sent twice. Exit code 1: messages
    wait for paths that are down; 4: a drain was stopped before its end.
    """
    began = time.monotonic()
    spark_settings = _parse_settings(settings)
    if engine == "local":
        _refuse_for_local(master=master, shards=shards, conf=settings, leash=leash, driver_host=driver_host)
    if patience and not once:
        raise ConfigurationError(
            "--patience is for --once: without it, paths that are down are always waited for"
        )
    chosen = [
        choose_backlog(one, patience=patience, **drained)
        for one in (choose_pairs(choice) if all_pairs else [choice])
    ]
    state = job_state_dir(choice, state, all_pairs=all_pairs)
    from pairbus.spark.leash.tether import ControlFile  # late: help needs none of it

    ControlFile(state).check_free()
    with _stop_signals() as signals, _session(engine, master, name, spark_settings, once=once) as spark:
        from pairbus.spark import Syphon

        runner = Syphon(
            spark,
            [one.backlog for one in chosen],
            records=_records_of(chosen, records, all_pairs=all_pairs),
            state=state,
            options=[one.options for one in chosen],
            shards=shards,
            driver_host=driver_host or "127.0.0.1",
            leash=leash,
            keep_days=keep_days,
        )
        signals.obeyed_by(runner)
        with _served_metrics(runner, metrics_port):
            summary = _run(runner, once=once, as_json=as_json, began=began)
    if as_json:
        summary = dataclasses.replace(summary, seconds=time.monotonic() - began)
        print_json({**dataclasses.asdict(summary), "rate": summary.rate})
    if summary.stopped and summary.left != 0:
        return INCOMPLETE
    return FOUND if once and not summary.is_complete else 0


def _parse_settings(given: Sequence[str]) -> dict[str, str]:
    found = {}
    for one in given:
        key, equals, value = one.partition("=")
        if not equals or not key.startswith("spark."):
            raise ConfigurationError(f"--conf takes a setting of Spark, as spark.KEY=VALUE, not {one!r}")
        found[key] = value
    return found


def _refuse_for_local(**given: object) -> None:
    for name, value in given.items():
        if value:
            raise ConfigurationError(f"--{name.replace('_', '-')} is for Spark, and --engine local has none")


@contextmanager
def _served_metrics(runner: Syphon, port: int | None) -> Iterator[None]:
    if port is None:
        yield
        return
    from pairbus.spark.metrics import served_metrics  # late: needed by few

    with served_metrics(runner, port) as served:
        click.echo(f"metrics on http://127.0.0.1:{served}/metrics", err=True)
        yield


@contextmanager
def _session(
    engine: EngineName, master: str | None, name: str, settings: Mapping[str, str], *, once: bool
) -> Iterator[Any]:
    """Spark for as long as it is needed; None for the engine that needs none."""
    if engine == "local":
        with CalmCollector(IN_A_PUMP):
            yield None
        return
    from pairbus.spark.session import close_session, open_spark

    spark = open_spark(
        master=master,
        app_name=name,
        is_short=once,
        settings=settings,
        meanwhile=_IMPORTED,
        needs_sql=not once,
    )
    try:
        yield spark
    finally:
        close_session(spark)


def _records_of(
    chosen: Sequence[ChosenBacklog], records: RecordPlace | None, *, all_pairs: bool
) -> list[RecordPlace] | RecordPlace | None:
    """Where `verify` and `cost report` of each pair look for receipts; None: below the state of the job."""
    if not all_pairs:
        return records or chosen[0].settings.shared_records
    if records is not None:
        return [records / one.settings.name for one in chosen]
    return [one.settings.records for one in chosen]


def _run(runner: Syphon, *, once: bool, as_json: bool, began: float) -> SyphonSummary:
    show = _ProgressLine(as_json=as_json)
    told: tuple[str, ...] = ()

    def tell(summary: SyphonSummary) -> None:
        """At once: nobody has to wait for the receipts' tables and the end of Spark."""
        nonlocal told
        told = summary.notes
        show.finish()
        print_lines(_draw_summary(dataclasses.replace(summary, seconds=time.monotonic() - began), once=once))

    try:
        summary = runner.run(once=once, on_progress=show, on_summary=None if as_json else tell)
    finally:
        show.finish()
    for note in () if as_json else summary.notes[len(told) :]:
        click.echo(runnable(note))
    return summary


class _StopSignals:
    """Signals that ask for the end, and who obeys them."""

    def __init__(self) -> None:
        self._runner: Syphon | None = None
        self._is_asked = False

    def obeyed_by(self, runner: Syphon) -> None:
        """This one stops, also if that was asked for before."""
        self._runner = runner
        if self._is_asked:
            runner.stop()

    def take(self, number: int, frame: FrameType | None) -> None:
        self._is_asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)  # who asks twice does not want to wait
        if self._runner is not None:
            self._runner.stop()


@contextmanager
def _stop_signals() -> Iterator[_StopSignals]:
    signals = _StopSignals()
    before = {number: signal.signal(number, signals.take) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _ProgressLine:
    """One line that is drawn again and again on a terminal; elsewhere plain lines, or lines of JSON."""

    def __init__(self, *, as_json: bool) -> None:
        self._drawing = DrawnLine()
        self._as_json = as_json
        self._told_at = 0.0
        self._trouble: str | None = None

    def __call__(self, progress: SyphonProgress) -> None:
        now = time.monotonic()
        # Its numbers change every second; that is no news.
        trouble = None if progress.trouble is None else re.sub(r"\d+", "", progress.trouble)
        is_news, self._trouble = trouble not in (None, self._trouble), trouble
        if self._drawing.is_seen:
            self._drawing.draw(self._line(progress), stays=(progress.trouble or "") if is_news else "")
        elif is_news or now - self._told_at >= _PLAIN_PAUSE:
            self._told_at = now
            told = json.dumps(progress.to_dict()) if self._as_json else self._line(progress)
            click.echo(told, err=True)

    def _line(self, progress: SyphonProgress) -> str:
        from pairbus.spark.leash.leash import ORDER_STATES

        handled, left = progress.moved + progress.dead_lettered, progress.seconds_left
        of = "" if progress.total is None else f" of {max(progress.total, handled):,}"
        parts = [f"moved {progress.moved:,}{of}", f"{per_second(progress.rate)}/s"]
        if left is not None:
            parts.append(f"{time_span(left)} left")
        if progress.dead_lettered:
            parts.append(f"{progress.dead_lettered:,} dead-lettered")
        if progress.waiting:
            parts.append(f"{progress.waiting:,} waiting")
        if progress.order != "run":
            parts.append(ORDER_STATES[progress.order])
        if progress.trouble:
            parts.append(progress.trouble)
        return ", ".join(parts)

    def finish(self) -> None:
        self._drawing.take_away()


def _trouble_of(path: PathSummary) -> str:
    """What is in the way of a path; of one that has moved everything, what was."""
    if not path.trouble or path.waiting or path.dead_lettered:
        return path.trouble or ""
    return f"earlier: {path.trouble}"


def _draw_summary(summary: SyphonSummary, *, once: bool) -> Iterator[str]:
    yield from map(runnable, summary.notes)
    for queue, error in summary.queue_errors.items():
        yield f"{queue} is not drained: {error}"
    rows = [
        (path, one.moved, one.dead_lettered, one.waiting, per_second(one.rate), _trouble_of(one))
        for path, one in sorted(summary.paths.items())
    ]
    header = ("PATH", "MOVED", "DEAD LETTERS", "WAITING", "PER SECOND", "TROUBLE")
    yield from draw_table(header, rows, numbers=(4,))
    if summary.stopped and summary.left != 0:
        left = summary.left
        rest = "what is left waits" if left is None else counted(left, "message is left", "messages are left")
        yield f"stopped before its end: {rest} in the backlog; run it again to move the rest"
    elif once and not summary.is_complete:
        yield (
            "what waits stays in the backlog: run it again when its entities are back, or wait for them with "
            "--patience SECONDS"
        )
    if summary.dead_lettered:
        yield (
            runnable("dead letters stay with the backlog queues: `pairbus redrive --dry-run` says why; ")
            + "mend that, and redrive them"
        )
    # Of a single path it would be no news.
    is_one_of_several = summary.slowest_path is not None and len(summary.paths) > 1
    slowest = f"; the slowest path was {summary.slowest_path}" if is_one_of_several else ""
    yield (
        f"moved {summary.moved:,} ({summary.bytes:,} bytes), dead-lettered {summary.dead_lettered:,}, "
        f"waiting {summary.waiting:,} in {summary.seconds:.1f} s{slowest}"
    )
