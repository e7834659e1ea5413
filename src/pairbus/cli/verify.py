"""`pairbus verify`: whether everything that was redirected has arrived, waits, or is missing."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .backlogs import choose_backlog
from .exit_codes import FOUND, INCOMPLETE
from .group import examples
from .pairs import PairChoice, pair_options
from .progress import working
from .shared_options import count_option, extra_option, master_option, records_option, state_option
from .suggestions import runnable
from .tables import draw_table, json_option, tell

if TYPE_CHECKING:
    from pairbus.spark import Verdict
    from pairbus.stores.places import RecordPlace

_TOLD = (
    "redirected",
    "delivered",
    "waiting",
    "dead_lettered",
    "refused",
    "lost",
    "recovered",
    "unexpected",
)
# Of the messages that are lost so many are shown to people.
_MOST_SHOWN = 20
# A page shows some more.
_MOST_KEPT = 100


@examples(
    "pairbus verify --pair shop",
    "pairbus verify --pair shop --strict",
    "pairbus verify --pair shop --records app/records --records syphon/records --json",
    "pairbus verify --pair shop --records abfss://records@contoso.dfs.core.windows.net/shop",
)
@click.command()
@pair_options
@count_option
@extra_option("Look at")
@records_option("redirect records and receipts lie", multiple=True)
@state_option
@master_option
@click.option(
    "--strict",
    is_flag=True,
    help="Exit code 1 also for messages that wait, are dead letters, refused, unexpected, or may be twice.",
)
@json_option
def verify(
    *,
    choice: PairChoice,
    count: int | None,
    include_extra: bool,
    records: tuple[RecordPlace, ...],
    state: Path | None,
    master: str | None,
    strict: bool,
    as_json: bool,
) -> int:
    """Check by message id that no message is missing.

    Redirect records, receipts and a peek of the backlog queues are joined. Exit code 1: something is missing;
    4: records are missing or damaged, so that it cannot be said.
    """
    chosen = choose_backlog(choice, count=count, include_extra=include_extra, state=state)
    from pairbus.client.state.directory import records_dir
    from pairbus.spark import open_session
    from pairbus.spark import verify as judge

    places = records or (chosen.settings.records,)
    # Other places hold records that were collected, and no spool is beside them.
    states = [one.parent for one in places if isinstance(one, Path) and one == records_dir(one.parent)]
    with working("starting Spark"):
        spark = open_session(master=master, app_name="pairbus-verify")
    try:
        with working("joining redirect records, receipts and backlog queues"):
            verdict = judge(spark, [chosen.backlog], records=places, states=states, options=chosen.options)
    finally:
        spark.stop()
    told = {"is_complete": verdict.is_complete, "is_clean": verdict.is_clean}
    described = {**dataclasses.asdict(verdict), **told}
    _leave(described, chosen.settings.state_dir)
    tell(described, _draw(verdict, strict=strict), as_json=as_json)
    return _exit_code(verdict, strict=strict)


def _leave(described: dict[str, Any], state: Path) -> None:
    """Leave the verdict where a dashboard finds it, which is no reason to fail."""
    from pairbus.client.state.directory import verdict_file
    from pairbus.plumbing.files import make_directory, publish

    kept = {**described, "missing": described["missing"][:_MOST_KEPT], "at": time.time()}
    try:
        make_directory(state, follows=True)
        publish(verdict_file(state), json.dumps(kept), durable=False)
    except OSError as error:
        click.echo(f"the verdict could not be kept for the dashboard: {error}", err=True)


def _exit_code(verdict: Verdict, *, strict: bool) -> int:
    """A loss counts most; it is one whether or not the records are whole."""
    if verdict.lost:
        return FOUND
    if not verdict.is_complete:
        return INCOMPLETE
    return 0 if verdict.is_spotless or not strict else FOUND


def _draw(verdict: Verdict, *, strict: bool) -> Iterator[str]:
    yield from map(runnable, verdict.notes)
    rows = [(name.replace("_", "-"), getattr(verdict, name)) for name in _TOLD]
    yield from draw_table(("MESSAGES", ""), [*rows, ("duplicated", _duplicated(verdict))])
    if verdict.gaps:
        yield "\nincomplete: what is not on record cannot be missed"
        yield from (f"  {gap}" for gap in verdict.gaps)
    if verdict.missing:
        yield from _draw_missing(verdict)
    if verdict.is_complete and not verdict.lost:
        rest = _objections(verdict) if strict else ()
        yield "\nnothing is lost" + (f", but by --strict: {', '.join(rest)}" if rest else "")


def _objections(verdict: Verdict) -> list[str]:
    """Why a verdict is not spotless though nothing is lost."""
    found = {
        "waiting": verdict.waiting,
        "dead-lettered": verdict.dead_lettered,
        "refused": verdict.refused,
        "unexpected": verdict.unexpected,
        "perhaps twice": verdict.at_most_duplicated,
    }
    return [f"{count:,} {what}" for what, count in found.items() if count]


def _draw_missing(verdict: Verdict) -> Iterator[str]:
    """The first ones: thousands of ids would take what they mean off the screen."""
    shown = verdict.missing[:_MOST_SHOWN]
    rows = [(_times(one.message_id, one.count), one.path, one.queue) for one in shown]
    yield from ("", *draw_table(("LOST", "PATH", "BACKLOG QUEUE"), rows))
    more = verdict.lost - sum(one.count for one in shown)
    if more:
        yield f"and {more:,} more, see --json"
    yield (
        "\nno receipt that is here tells of their arrival. If another syphon has drained this backlog, "
        "name its records too: --records, once for each place. Dead letters that somebody removed count as "
        "lost. If it is neither, keep all state directories as they are, and look for the ids at receivers"
    )


def _duplicated(verdict: Verdict) -> str:
    most = verdict.at_most_duplicated
    return f"{verdict.duplicated:,}" if most == verdict.duplicated else f"up to {most:,}"


def _times(message_id: str, count: int) -> str:
    return message_id if count == 1 else f"{message_id} ({count} times)"
