"""`pairbus syphon plan`: what a drain would do, before it does."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import click

from .backlogs import choose_backlog
from .examples import examples
from .numbers import POSITIVE
from .pairs import PairChoice, pair_options
from .syphon_options import count_option, extra_option
from .tables import json_option, print_json, print_table

if TYPE_CHECKING:
    from pairbus.backlog.plan import BacklogPlan

_FOUND = 1


@click.command(
    "plan",
    epilog=examples(
        "pairbus syphon plan --pair shop",
        "pairbus syphon plan --pair shop --rate 500 --json",
    ),
)
@pair_options
@count_option
@extra_option
@click.option(
    "--rate",
    type=POSITIVE,
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
