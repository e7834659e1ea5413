"""`pairbus check`: what would go wrong with a pair in an outage, found before it."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from pairbus.plumbing.wording import counted

from .exit_codes import FOUND, UNREACHABLE
from .group import examples
from .numbers import AT_LEAST_ONE, POSITIVE
from .pairs import PairChoice, PairSettings, pair_options, signed_in
from .progress import working
from .shared_options import entities_option
from .suggestions import runnable
from .tables import coloured, draw_table, json_option, tell

if TYPE_CHECKING:
    from pairbus.backlog.findings import Plan
    from pairbus.backlog.preflight import PreflightReport

# Longer than most outages of the service that are known to the public.
_OUTAGE = 6 * 3600


@examples(
    "pairbus check --primary-env PRIMARY --secondary-env SECONDARY",
    "pairbus check --pair shop --outage 21600 --rate 50",
    "pairbus check --pair shop --entity orders --json",
)
@click.command()
@pair_options
@entities_option("--entity", "entities", "An entity to look at.")
@click.option(
    "--outage", type=POSITIVE, default=_OUTAGE, metavar="SECONDS", help="The outage to be ready for."
)
@click.option("--rate", type=POSITIVE, metavar="N", help="Messages a second, to have the capacity in hours.")
@click.option("--message-size", type=AT_LEAST_ONE, default=1024, help="Bytes of a message.")
@json_option
def check(
    *,
    choice: PairChoice,
    entities: tuple[str, ...],
    outage: float,
    rate: float | None,
    message_size: int,
    as_json: bool,
) -> int:
    """Check a pair before an outage does.

    Looks at names, claims, backlog queues, size headroom, the window of duplicate detection, lock durations
    and the room in the backlog. Sends nothing and changes nothing. Exit code 1: something was found.
    """
    settings = choice.resolve()
    from pairbus.backlog.findings import Plan  # late: help needs no SDK

    plan = Plan(outage=outage, rate=rate, message_size=message_size)
    chosen = entities or tuple(entity.path for entity in settings.entities)
    with working("asking both namespaces"):
        report = asyncio.run(_check(settings, plan, chosen))
    tell(dataclasses.asdict(report), _draw(report), as_json=as_json)
    if report.unreachable:
        return UNREACHABLE
    return FOUND if report.has_findings else 0


async def _check(settings: PairSettings, plan: Plan, entities: tuple[str, ...]) -> PreflightReport:
    from pairbus.backlog.preflight import Preflight

    async with signed_in(settings) as pair:
        return await Preflight(
            pair.primary,
            pair.secondary,
            name=settings.name,
            options=settings.options,
            plan=plan,
            entities=entities,
        ).run()


def _draw(report: PreflightReport) -> Iterator[str]:
    order = {"error": 0, "warning": 1, "note": 2}
    findings = sorted(report.findings, key=lambda finding: order[finding.severity])
    rows = [(coloured(one.severity), one.topic, one.subject, runnable(one.text)) for one in findings]
    yield from draw_table(("", "TOPIC", "SUBJECT", "FINDING"), rows)
    number = sum(finding.severity != "note" for finding in findings)
    found = counted(number, "problem", "problems") if number else "nothing"
    yield f"{report.primary_name}: {found} found"
