"""`pairbus provision`: the backlog queues of a pair, once, with the Manage claim."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

import click

from .exit_codes import FOUND, UNREACHABLE
from .group import examples
from .pairs import PairChoice, PairSettings, pair_options, signed_in
from .progress import working
from .shared_options import count_option
from .tables import draw_table, json_option, tell

if TYPE_CHECKING:
    from pairbus.backlog.provisioner import BacklogQueueReport, ProvisioningReport

# By the state of the report: what is missing in spite of everything was found, the rest was not to be had.
_EXIT_CODES = {"ready": 0, "pending": FOUND, "unreachable": UNREACHABLE, "not_permitted": UNREACHABLE}


@examples(
    "pairbus provision --primary-env PRIMARY --secondary-env SECONDARY",
    "pairbus provision --pair shop --count 20 --json",
)
@click.command()
@pair_options
@count_option
@json_option
def provision(*, choice: PairChoice, count: int | None, as_json: bool) -> int:
    """Create the backlog queues of a pair on its secondary.

    What exists is used as it is and told; nothing is changed or deleted. This needs the Manage claim on the
    secondary. Afterwards senders need the Send claim only.
    """
    settings = choice.resolve(overrides=None if count is None else {"backlog_queue_count": count})
    with working(f"seeing to {settings.options.backlog_queue_count} backlog queues"):
        report = asyncio.run(_provision(settings))
    shown = report.queues if report.state in ("ready", "pending") else ()
    table = draw_table(("QUEUE", "STATE"), [(queue.name, _in_words(queue)) for queue in shown])
    tell({"primary_name": settings.name, **dataclasses.asdict(report)}, table, as_json=as_json)
    for warning in () if as_json else report.warnings:
        click.echo(f"{report.state}: {warning}" if report.state != "ready" else warning, err=True)
    return _EXIT_CODES[report.state]


async def _provision(settings: PairSettings) -> ProvisioningReport:
    from pairbus.backlog.provisioner import Provisioner  # late: help needs no SDK

    async with signed_in(settings) as pair:
        return await Provisioner(
            pair.secondary.open_administration, settings.name, count=settings.options.backlog_queue_count
        ).run()


def _in_words(queue: BacklogQueueReport) -> str:
    if queue.error is not None:
        return f"missing: {queue.error}"
    state = "created" if queue.created else "exists"
    return f"{state}; {'; '.join(map(str, queue.differences))}" if queue.differences else state
