"""`pairbus redrive`: dead letters of the backlog queues back into play."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from pairbus.errors import ConfigurationError
from pairbus.plumbing.wording import counted, time_span

from .backlogs import ChosenBacklog, choose_backlog
from .exit_codes import INCOMPLETE
from .group import examples
from .numbers import DURATION, POSITIVE
from .pairs import PairChoice, pair_options
from .progress import DrawnLine, working
from .shared_options import count_option, entities_option, extra_option, repeatable
from .suggestions import runnable
from .tables import draw_table, json_option, tell

if TYPE_CHECKING:
    from pairbus.backlog.redrive import DeadLetterChoice, Redriven

_DRAWN_EVERY = 0.2


@examples(
    "pairbus redrive --pair shop",
    "pairbus redrive --pair shop --path orders --reason EntityNotFound --dry-run",
)
@click.command()
@pair_options
@count_option
@extra_option("Redrive those of")
@entities_option("--path", "paths", "Only those for this entity.")
@repeatable("--reason", "reasons", "REASON", "Only those with this reason.")
@click.option(
    "--older-than", type=DURATION, default=0, metavar="DURATION", help="Only older ones, such as 2h."
)
@click.option("--newer-than", type=DURATION, metavar="DURATION", help="Only newer ones.")
@click.option("--max-rate", type=POSITIVE, metavar="N", help="Messages a second, at most.")
@click.option("--dry-run", is_flag=True, help="Only say which it would be; nothing is locked or moved.")
@json_option
def redrive(
    *,
    choice: PairChoice,
    count: int | None,
    include_extra: bool,
    paths: tuple[str, ...],
    reasons: tuple[str, ...],
    older_than: float,
    newer_than: float | None,
    max_rate: float | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Put dead letters of the backlog queues back into play.

    They go back to their backlog queue as they were, and the next run of the syphon moves them. Mend first
    what made them dead letters, and look with --dry-run which they are. Exit code 4: some could not be had,
    since another one has them locked.
    """
    if newer_than is not None and newer_than <= older_than:
        raise ConfigurationError("--newer-than has to be more than --older-than: nothing is between them")
    began = time.monotonic()
    chosen = choose_backlog(choice, count=count, include_extra=include_extra)
    from pairbus.backlog.redrive import DeadLetterChoice

    meant = DeadLetterChoice(
        paths=paths,
        reasons=reasons,
        older_than=older_than,
        newer_than=math.inf if newer_than is None else newer_than,
    )
    if dry_run:
        with working("looking at dead letters"):
            done = asyncio.run(_survey(chosen, meant))
    else:
        done = asyncio.run(_redrive(chosen, meant, max_rate))
    seconds = time.monotonic() - began
    told = {
        "redriven": done.redriven,
        "left": done.left,
        "locked": done.locked,
        "rows": _rows(done),
        "seconds": round(seconds, 3),
        "dry_run": dry_run,
    }
    tell(told, _draw(done, seconds, dry_run=dry_run), as_json=as_json)
    return INCOMPLETE if done.locked else 0


def _rows(done: Redriven) -> list[dict[str, Any]]:
    return [
        {
            "reason": reason,
            "path": path,
            "redriven": done.by_path.get((reason, path), 0),
            "left": done.left_by_path.get((reason, path), 0),
            "oldest": round(oldest, 3),
        }
        for (reason, path), oldest in sorted(done.oldest.items())
    ]


def _draw(done: Redriven, seconds: float, *, dry_run: bool) -> Iterator[str]:
    rows = [
        (row["reason"], row["path"] or "(none)", row["redriven"], row["left"], time_span(row["oldest"]))
        for row in _rows(done)
    ]
    word = "TO REDRIVE" if dry_run else "REDRIVEN"
    yield from draw_table(("REASON", "PATH", word, "LEFT", "OLDEST"), rows, numbers=(4,))
    moved, left = sum(done.by_path.values()), sum(done.left_by_path.values())
    if not moved and not left:
        yield f"there are no dead letters in the backlog; {seconds:.1f} s"
        return
    verb = "would go back" if dry_run else "went back"
    stay = counted(left, "stays", "stay")
    then = runnable("; `pairbus syphon run --once` moves them") if moved and not dry_run else ""
    yield f"{counted(moved, 'dead letter', 'dead letters')} {verb} into play, {stay}; {seconds:.1f} s{then}"
    if done.locked:
        yield (
            f"incomplete: {done.locked:,} of those that stay are locked by somebody else, such as a redrive "
            "that was killed, or came meanwhile; locks end after some minutes at most, then call it again"
        )


async def _queues(chosen: ChosenBacklog) -> list[str]:
    from pairbus.backlog.discovery import discover, refuse_bare

    found = await discover([chosen.backlog])
    refuse_bare(found)
    return [queue.name for queue in found.queues]


async def _survey(chosen: ChosenBacklog, meant: DeadLetterChoice) -> Redriven:
    from pairbus.backlog.redrive import survey_dead_letters

    queues = await _queues(chosen)
    return await survey_dead_letters(
        chosen.backlog.pair, queues, meant, options=chosen.options, now=time.time()
    )


async def _redrive(chosen: ChosenBacklog, meant: DeadLetterChoice, max_rate: float | None) -> Redriven:
    from pairbus.backlog.redrive import Redriven
    from pairbus.backlog.redrive import redrive as put_back

    done = Redriven()
    telling = asyncio.create_task(_tell(done))
    try:
        return await put_back(
            chosen.backlog.pair,
            await _queues(chosen),
            meant,
            options=chosen.options,
            max_rate=max_rate,
            done=done,
        )
    finally:
        telling.cancel()


async def _tell(done: Redriven) -> None:
    line = DrawnLine()
    try:
        while line.is_seen:
            line.draw(f"{counted(sum(done.by_path.values()), 'dead letter', 'dead letters')} put back …")
            await asyncio.sleep(_DRAWN_EVERY)
    finally:
        line.take_away()
