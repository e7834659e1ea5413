"""`pairbus provision`: the backlog queues of a pair, once, with the Manage claim."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any

import click

from .access import signed_in
from .exit_codes import FOUND, UNREACHABLE
from .group import examples
from .pairs import PairChoice, PairSettings, pair_options
from .progress import working
from .shared_options import count_option
from .tables import json_option, print_table, tell

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
    tell(_described(settings, report), lambda: _print_for_people(report), as_json=as_json)
    return _EXIT_CODES[report.state]


async def _provision(settings: PairSettings) -> ProvisioningReport:
    from pairbus.backlog.provisioner import Provisioner  # late: help needs no SDK

    async with signed_in(settings) as pair:
        return await Provisioner(
            pair.secondary.open_administration, settings.name, count=settings.options.backlog_queue_count
        ).run()


def _described(settings: PairSettings, report: ProvisioningReport) -> dict[str, Any]:
    return {"primary_name": settings.name, **dataclasses.asdict(report)}


def _print_for_people(report: ProvisioningReport) -> None:
    if report.state in ("ready", "pending"):
        print_table(("QUEUE", "STATE"), [(queue.name, _in_words(queue)) for queue in report.queues])
    for warning in report.warnings:
        click.echo(f"{report.state}: {warning}" if report.state != "ready" else warning, err=True)


def _in_words(queue: BacklogQueueReport) -> str:
    if queue.error is not None:
        return f"missing: {queue.error}"
    state = "created" if queue.created else "exists"
    return f"{state}; {'; '.join(map(str, queue.differences))}" if queue.differences else state
