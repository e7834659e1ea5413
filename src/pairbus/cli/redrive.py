"""`pairbus redrive`: dead letters of the backlog queues back into play."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from .backlogs import ChosenBacklog, choose_backlog
from .candidates import offer_entities
from .examples import examples
from .numbers import AT_LEAST_ONE
from .pairs import PairChoice, pair_options
from .progress import working
from .tables import json_option, print_json, print_table

if TYPE_CHECKING:
    from pairbus.backlog.redrive import DeadLetterChoice, Redriven


@click.command(
    epilog=examples(
        "pairbus redrive --pair shop",
        "pairbus redrive --pair shop --path orders --reason EntityNotFound",
    )
)
@pair_options
@click.option("--count", type=AT_LEAST_ONE, help="How many backlog queues, above backlog_queue_count.")
@click.option("--include-extra", is_flag=True, help="Redrive those of backlog queues beyond the count too.")
@click.option(
    "--path",
    "paths",
    multiple=True,
    metavar="PATH",
    shell_complete=offer_entities,
    help="Only those for this entity. Repeatable.",
)
@click.option(
    "--reason", "reasons", multiple=True, metavar="REASON", help="Only those with this reason. Repeatable."
)
@json_option
def redrive(
    *,
    choice: PairChoice,
    count: int | None,
    include_extra: bool,
    paths: tuple[str, ...],
    reasons: tuple[str, ...],
    as_json: bool,
) -> int:
    """Put dead letters of the backlog queues back into play.

    They go back to their backlog queue as they were, and the next run of the syphon moves them. Mend first
    what made them dead letters.
    """
    chosen = choose_backlog(choice, count=count, include_extra=include_extra)
    from pairbus.backlog.redrive import DeadLetterChoice

    with working("putting dead letters back"):
        done = asyncio.run(_redrive(chosen, DeadLetterChoice(paths=paths, reasons=reasons)))
    if as_json:
        print_json({"redriven": done.redriven, "left": done.left})
    else:
        rows = [(reason, "redriven", f"{count:,}") for reason, count in sorted(done.redriven.items())]
        rows += [(reason, "left", f"{count:,}") for reason, count in sorted(done.left.items())]
        print_table(("REASON", "", "DEAD LETTERS"), rows or [("none", "", "0")])
    return 0


async def _redrive(chosen: ChosenBacklog, dead_letters: DeadLetterChoice) -> Redriven:
    from pairbus.backlog.discovery import discover
    from pairbus.backlog.redrive import redrive as put_back

    found = await discover([chosen.backlog])
    queues = [queue.name for queue in found.queues]
    return await put_back(chosen.backlog.pair, queues, dead_letters, options=chosen.options)
