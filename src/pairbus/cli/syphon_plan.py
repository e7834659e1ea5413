"""`pairbus syphon plan`: what a drain would do, before it does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import click

from pairbus.errors import ConfigurationError
from pairbus.plumbing.wording import counted, time_span

from .backlogs import choose_backlog
from .config import find_config
from .exit_codes import FOUND
from .group import examples
from .numbers import DURATION, NOT_NEGATIVE, POSITIVE
from .pairs import PairChoice, pair_options
from .prices import choose_sheet
from .shared_options import count_option, extra_option
from .suggestions import runnable
from .tables import draw_table, json_option, per_second, tell

if TYPE_CHECKING:
    from pairbus.backlog.plan import BacklogPlan
    from pairbus.backlog.schedule import DrainSchedule, PlanTier

_USUAL_RATE = 2000.0


@examples(
    "pairbus syphon plan --pair shop",
    "pairbus syphon plan --pair shop --rate 500 --json",
    "pairbus syphon plan --pair shop --within 1h --app-rate 200",
)
@click.command("plan")
@pair_options
@count_option
@extra_option("Serve")
@click.option(
    "--rate",
    type=POSITIVE,
    help="Messages a second that the time is reckoned with. [default: 2000, or what the tier leaves]",
)
@click.option(
    "--within", type=DURATION, metavar="DURATION", help="Say which rate and how many shards that takes."
)
@click.option(
    "--tier",
    type=click.Choice(["standard", "premium"]),
    default="standard",
    help="Of the namespaces: Standard ones have 1,000 credits a second for everybody.",
)
@click.option(
    "--app-rate",
    type=NOT_NEGATIVE,
    default=0,
    metavar="N",
    help="Messages a second that the application itself sends and receives meanwhile.",
)
@json_option
def plan_command(
    *,
    choice: PairChoice,
    count: int | None,
    include_extra: bool,
    rate: float | None,
    within: float | None,
    tier: PlanTier,
    app_rate: float,
    as_json: bool,
) -> int:
    """Say what a drain would do: how much, for whom, how long, at what cost, and what cannot be sent.

    It only looks; nothing is moved or locked. Exit code 1: some messages would end in the dead letters, or it
    cannot be done --within that time.
    """
    if within is not None and within <= 0:
        raise ConfigurationError("--within takes a time above 0, such as 1h")
    chosen = choose_backlog(choice, count=count, include_extra=include_extra)
    sheet = choose_sheet(None, find_config(choice.config))
    from pairbus.backlog.plan import plan_backlog
    from pairbus.backlog.schedule import most_rate, schedule

    most = most_rate(tier, app_rate)
    # An application that takes all credits leaves the drain next to nothing.
    reckoned = min(rate or _USUAL_RATE, max(1.0, most))
    plan = asyncio.run(
        plan_backlog(chosen.backlog, chosen.options, rate=reckoned, now=time.time(), sheet=sheet)
    )
    if rate is not None and rate > most:
        plan.notes += (
            f"the Standard tier leaves {most:,.0f} messages a second for a drain, not {rate:,.0f}",
        )
    needed = None
    if within is not None:
        needed = schedule(plan.messages, within=within, tier=tier, app_rate=app_rate)
        needed = replace(needed, advice=runnable(needed.advice))
    described = {**plan.to_dict(), "schedule": None if needed is None else asdict(needed)}
    tell(described, _draw(plan, needed), as_json=as_json)
    return FOUND if plan.poison or (needed is not None and not needed.is_possible) else 0


def _draw(plan: BacklogPlan, needed: DrainSchedule | None) -> Iterator[str]:
    yield from map(runnable, plan.notes)
    rows = [
        (path, one.messages, one.bytes, time_span(one.oldest), "; ".join(one.problems()))
        for path, one in sorted(plan.paths.items())
    ]
    yield from draw_table(("PATH", "MESSAGES", "BYTES", "OLDEST", "PROBLEMS"), rows, numbers=(3,))
    yield _sum_up(plan)
    if needed is not None:
        takes = f"{per_second(needed.rate)} a second, {counted(needed.shards, 'shard', 'shards')}"
        yield f"within {time_span(needed.within)}: {takes}; {needed.advice}"


def _sum_up(plan: BacklogPlan) -> str:
    already = f"{counted(plan.dead_letters, 'dead letter', 'dead letters')} already"
    if not plan.messages:
        look = runnable("; `pairbus redrive --dry-run` shows why") if plan.dead_letters else ""
        return f"nothing waits to be moved; {already}{look}"
    takes = f"about {time_span(plan.seconds)}" if plan.seconds >= 1 else "under a second"
    return (
        f"{counted(plan.messages, 'message', 'messages')}, {plan.bytes:,} bytes, {already}; "
        f"{takes} at {per_second(plan.rate)} a second; {plan.operations:,} operations, "
        f"{plan.cost} {plan.currency} at most"
    )
