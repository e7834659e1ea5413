"""`pairbus cost report`: what it did cost, from the ledger that clients and syphon have written."""

from __future__ import annotations

import re
import textwrap
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pairbus.cost.bill import BillTerms
from pairbus.cost.report import INCLUDED
from pairbus.cost.system import parse_system
from pairbus.errors import ConfigurationError
from pairbus.plumbing.files import publish
from pairbus.plumbing.toml_tables import read_text
from pairbus.plumbing.wording import write_cents, write_moment

from .config import find_config
from .exit_codes import INCOMPLETE
from .group import examples
from .pairs import PairChoice, pair_options
from .places import DIRECTORY, EXISTING_FILE
from .prices import budget_option, choose_budget, choose_sheet, prices_option, tell_budget
from .shared_options import master_option, records_option, repeatable, state_option
from .tables import draw_table, json_option, shown, tell

if TYPE_CHECKING:
    from pairbus.cost.estimate import Alternative
    from pairbus.cost.report import Report
    from pairbus.cost.transfer import RegionBytes
    from pairbus.stores.places import RecordPlace

_PAGE = "report.html"
_WIDTH = 80
# More subscriptions than a topic can have.
_MOST_COPIES = 10_000
# Of years that a calendar has, and that have a next one.
_MONTH = re.compile(r"[2-8][0-9]{3}-(0[1-9]|1[0-2])")


@examples(
    "pairbus cost report --pair shop --copies orders=3 --system system.toml",
    "pairbus cost report --records state/shop/records --month 2026-11 --json",
)
@click.command("report")
@pair_options
@state_option
@records_option("the ledger lies")
@click.option("--out", type=DIRECTORY, default=Path("cost-report"), help="Where the report goes.")
@click.option("--month", metavar="YYYY-MM", help="One month only. [default: all that there is]")
@prices_option
@budget_option
@click.option(
    "--system", "system_file", type=EXISTING_FILE, help="A described system (TOML) to compare the bill with."
)
@repeatable(
    "--copies",
    "copies",
    "ENTITY=N",
    "How often messages to an entity are received: its subscriptions.",
    default="1",
)
@click.option("--same-region", is_flag=True, help="Both sides are in one region: transfer is free.")
@master_option
@json_option
def report_command(
    *,
    choice: PairChoice,
    state: Path | None,
    records: RecordPlace | None,
    out: Path,
    month: str | None,
    prices: Path | None,
    budget: Decimal | None,
    system_file: Path | None,
    copies: tuple[str, ...],
    same_region: bool,
    master: str | None,
    as_json: bool,
) -> int:
    """Bill what clients and syphon did, by stage, entity and outage.

    It writes a page that opens offline, and the lines as CSV and Parquet. Run it as often as you like: what
    was taken in before is not counted twice. Exit code 1: the newest month costs more than the budget; 4:
    rows that were written are missing, so that it may have cost more.
    """
    if month is not None and not _MONTH.fullmatch(month):
        raise ConfigurationError(f"--month is written as 2026-11, not {month!r}")
    terms = BillTerms(copies=_copies(copies), same_region=same_region)
    config = find_config(choice.config)
    sheet, limit = choose_sheet(prices, config), choose_budget(budget, config)
    system = None if system_file is None else parse_system(read_text(system_file), where=str(system_file))
    place = _records(choice, state, records)
    from pairbus.cost.page import render_page
    from pairbus.spark import open_session  # late: help needs no Spark
    from pairbus.spark.bill import bill_ledger
    from pairbus.spark.operations import bill_settings, is_small

    now = time.time()
    with ExitStack() as opened:

        @cache
        def open_spark() -> Any:
            settings, is_short = bill_settings(place), is_small(place)
            spark = open_session(master=master, app_name="pairbus-cost", is_short=is_short, settings=settings)
            opened.callback(spark.stop)
            return spark

        run = bill_ledger(
            open_spark, place, sheet, now=now, terms=terms, system=system, month=month, out=out.absolute()
        )
    _tell_unknown(terms, run.report)
    out.mkdir(parents=True, exist_ok=True)
    page = out / _PAGE
    publish(page, render_page(run.report, now=now), durable=False)
    intake = {"segments": run.intake.segments, "adopted": run.intake.adopted, "days": list(run.intake.days)}
    described = {**run.report.to_dict(), "taken_in": intake, "page": str(page)}
    tell(described, _draw(run.report, page), as_json=as_json)
    # A budget is for a month: of several, the newest.
    newest = run.report.months[-1:]
    spent = sum((one.total for one in newest), Decimal(0))
    return tell_budget(spent, limit, run.report.currency) or (INCOMPLETE if run.report.missing else 0)


def _records(choice: PairChoice, state: Path | None, records: RecordPlace | None) -> RecordPlace:
    from pairbus.client.state.directory import records_dir
    from pairbus.stores.places import StoreUri

    if records is None:
        records = choice.resolve().records if state is None else records_dir(state)
    if isinstance(records, StoreUri):
        return records
    if not records.is_dir():
        raise ConfigurationError(
            f"There is no ledger at {records}: clients with a state_dir write one, and so does the syphon"
        )
    return records.absolute()


def _copies(given: tuple[str, ...]) -> dict[str, int]:
    found = {}
    for text in given:
        entity, _, number = text.rpartition("=")
        if not entity or not number.isdecimal() or len(number) > 9 or int(number) > _MOST_COPIES:
            raise ConfigurationError(
                f"--copies {text}: write ENTITY=N, such as orders=3; N is 0 to {_MOST_COPIES:,}"
            )
        if entity.lower() in found:
            raise ConfigurationError(f"--copies: {entity} is named twice")
        found[entity.lower()] = int(number)
    return found


def _tell_unknown(terms: BillTerms, report: Report) -> None:
    known = {share.name.lower() for share in report.by_entity}
    for entity in terms.copies:
        if entity not in known:
            click.echo(f"pairbus: --copies names {entity}, of which the ledger has nothing", err=True)


def _draw(report: Report, page: Path) -> Iterator[str]:
    stages = [(share.label, share.count, share.units, share.unknown, share.cost) for share in report.by_stage]
    head = ("STAGE", "OPERATIONS", "BILLED", "UNKNOWN", report.currency)
    yield from draw_table(head, stages, empty="nothing is on record of this time")
    if report.is_included:
        yield f"{INCLUDED.capitalize()}."
    costs = {share.name: share for share in report.by_outage}
    outages = [costs[one.name] for one in report.outages if one.name in costs]
    rows = [(share.name, share.units, share.cost) for share in outages]
    yield from ("", *draw_table(("OUTAGE (UTC)", "BILLED", report.currency), rows, empty="no outages"), "")
    sums = [
        ("operations, transfer, store", report.used),
        ("base charge", report.base),
        ("total", report.total),
    ]
    yield from (*draw_table(("SUM", report.currency), sums), "")
    yield from (*draw_transfer(report.transfer), "")
    yield from draw_alternatives(report.alternatives, report.currency)
    for one in report.missing:
        yield (
            f"\nThe bill is incomplete. Rows of {shown(one.writer)} ({shown(one.pair)}) that are missing: "
            f"{one.rows:,}, written between {write_moment(one.begins)} and {write_moment(one.ends)} UTC."
        )
    for gap in report.gaps:
        yield (
            f"\n{shown(gap.writer)} ({shown(gap.pair)}) ended without a word: what it did between "
            f"{write_moment(gap.begins)} and {write_moment(gap.ends)} UTC may be missing."
        )
    if report.bad_rows:
        yield f"\nLines of the ledger that could not be read: {report.bad_rows:,}."
    yield f"\n{page}"


def draw_alternatives(alternatives: Sequence[Alternative], currency: str) -> Iterator[str]:
    """What other ways cost, and what they are."""
    yield from draw_cents("INSTEAD", currency, [(other.name, other.cost) for other in alternatives])
    yield from (wrapped(f"{other.name}: {other.note}.") for other in alternatives)


def draw_cents(what: str, currency: str, amounts: Sequence[tuple[str, Decimal]]) -> Iterator[str]:
    """Sums of a month, to the cent."""
    rows = [(name, write_cents(amount)) for name, amount in amounts]
    return draw_table((what, currency), rows, numbers=(1,))


def draw_transfer(transfer: Sequence[RegionBytes]) -> Iterator[str]:
    rows = [(one.region, one.direction, one.bytes) for one in transfer]
    return draw_table(("REGION", "DIRECTION", "BYTES"), rows)


def wrapped(text: str) -> str:
    return textwrap.fill(text, _WIDTH, subsequent_indent="  ")
