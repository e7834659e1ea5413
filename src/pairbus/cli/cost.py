"""`pairbus cost`: what it will cost, before anybody sends a bill, and what it did."""

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

import click

from pairbus.cost.estimate import Estimate, by_time, estimate
from pairbus.cost.sheet import PriceSheet
from pairbus.cost.system import System, parse_system
from pairbus.errors import ConfigurationError
from pairbus.plumbing.toml_tables import read_text
from pairbus.plumbing.wording import counted, write_cents
from pairbus.stages import Stage

from .config import Config, find_config, make_options
from .cost_report import draw_alternatives, draw_cents, draw_transfer, report_command, wrapped
from .group import CommandGroup, examples
from .pairs import config_option
from .places import EXISTING_FILE
from .prices import budget_option, choose_budget, choose_sheet, prices_option, tell_budget
from .tables import draw_table, json_option, tell

_F = TypeVar("_F", bound=Callable[..., Any])
# A terminal has eighty columns, of which names and numbers take fifty.
_BAR = 26
_EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")


@examples(
    "pairbus cost estimate --rate 50 --outages 1 --outage-hours 3",
    "pairbus cost report --pair shop",
)
@click.group(cls=CommandGroup)
def cost() -> None:
    """Reckon what a paired system costs.

    Prices are a dated sheet that you can replace with your own.
    """


cost.add_command(report_command)


def _system_options(command: _F) -> _F:
    """An option for each field of a system; what is left out stays as it is."""
    for entry in reversed(fields(System)):
        meaning, choices, default = entry.metadata["meaning"], entry.metadata.get("choices"), entry.default
        is_flag = isinstance(default, bool)
        kind = type(0 if default is None else default)
        shown = "" if is_flag or default is None else f" ({default if choices else f'{default:g}'})"
        command = click.option(
            f"--{entry.name.replace('_', '-')}",
            type=click.Choice(choices) if choices and not is_flag else kind,
            is_flag=is_flag,
            default=None,
            help=f"{meaning[0].upper()}{meaning[1:]}{shown}.",
        )(command)
    return command


@examples(
    "pairbus cost estimate",
    "pairbus cost estimate --rate 50 --entities 5 --clients 20 --outages 1 --outage-hours 3",
    "pairbus cost estimate --system system.toml --budget 400 --json",
)
@cost.command("estimate")
@config_option
@click.option(
    "--pair",
    metavar="NAME",
    help="A pair of the configuration file: its options and entities are those of the system.",
)
@click.option(
    "--system",
    "system_file",
    type=EXISTING_FILE,
    help="A TOML file that describes the system; options go above it.",
)
@prices_option
@_system_options
@budget_option
@json_option
def estimate_command(
    *,
    config: Path | None,
    pair: str | None,
    system_file: Path | None,
    prices: Path | None,
    budget: Decimal | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Reckon what a month costs: stage by stage, and what other ways would cost.

    With no option it is one pair with all defaults, 30 days without an outage. Exit code 1: it is more than
    the budget.
    """
    found = find_config(config)
    limit = choose_budget(budget, found)
    sheet = choose_sheet(prices, found)
    system = System() if pair is None else _system_of(pair, found)
    if system_file is not None:
        system = parse_system(read_text(system_file), above=system, where=str(system_file))
    system = replace(system, **{name: value for name, value in given.items() if value is not None})
    month = estimate(system, sheet)
    tell(month.to_dict(), _draw(month, sheet), as_json=as_json)
    return tell_budget(month.total, limit, month.currency)


def _draw(month: Estimate, sheet: PriceSheet) -> Iterator[str]:
    most = max((row.operations for row in month.stages), default=0)
    rows = [
        (row.stage.words, row.operations, write_cents(row.cost), _bar(row.operations, most))
        for row in month.stages
        if row.operations or not row.stage.traits.is_stored
    ]
    yield from draw_table(("STAGE", "OPERATIONS", month.currency, ""), rows, numbers=(2,))
    yield from ("", *_draw_sums(month), "")
    if month.transfer:
        yield from (*draw_transfer(month.transfer), "")
    yield from (*draw_alternatives(month.alternatives, month.currency), "")
    for name, hour in (
        ("Idle receives", month.idle_per_hour),
        ("Idle peeks", month.peeks_per_hour),
        ("Searches for queues", month.searches_per_hour),
    ):
        hourly, daily, monthly = by_time(hour).values()
        yield f"{name}: {hourly:,} an hour, {daily:,} a day, {monthly:,} in 30 days."
    yield f"\nPrices of {sheet.as_of.isoformat()}:"
    yield from (wrapped(f"- {source}") for source in sheet.sources)


def _draw_sums(month: Estimate) -> Iterator[str]:
    rows = [
        ("operations", month.operations_cost),
        ("base charge", month.base),
        ("connections", month.connections_cost),
        ("between regions", month.bandwidth_cost),
        *([("writes to the records' store", month.store_cost)] if month.store_writes else []),
        (f"total of {counted(month.days, 'day', 'days')}", month.total),
    ]
    parts = [
        ("a healthy month", month.healthy_total),
        ("  of it idle receives", month.cost_of(Stage.IDLE)),
        ("what outages add", month.outages_cost),
    ]
    yield from draw_cents("SUM", month.currency, rows)
    yield from ("", *draw_cents("OF THIS", month.currency, parts))


def _bar(amount: int, most: int) -> str:
    """As long as the amount, to an eighth of a character; what is there at all can be seen."""
    if not amount:
        return ""
    eighths = max(1, round(_BAR * 8 * amount / most))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8]


def _system_of(pair: str, config: Config | None) -> System:
    """What the configuration of a pair tells of the system."""
    if config is None:
        raise ConfigurationError(f"--pair {pair}: there is no configuration file; name it with --config")
    chosen = config.pair(pair)
    options = make_options(chosen.options, where=f"{config.file}: {pair}")
    return System(
        entities=len(chosen.entities) or 1,
        backlog_queues=options.backlog_queue_count,
        ping_interval=options.ping_primary_interval,
    )
