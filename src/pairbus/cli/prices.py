"""Which price sheet a command reckons with and what a month may cost: named to it or in the configuration."""

from decimal import Decimal
from pathlib import Path

import click

from pairbus.cost.sheet import PriceSheet, default_sheet, parse_sheet
from pairbus.plumbing.toml_tables import read_text
from pairbus.plumbing.wording import write_amounts

from .config import BUDGETS, Config
from .exit_codes import FOUND
from .places import EXISTING_FILE


class _Amount(click.ParamType):  # type: ignore[type-arg] # older versions of click have no argument
    """Money, as much as the configuration file takes."""

    name = "amount"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Decimal:
        try:
            amount = Decimal(str(value))
        except ArithmeticError:
            amount = Decimal(0)
        least, most = (Decimal(str(bound)) for bound in BUDGETS)
        if not (amount.is_finite() and least <= amount <= most):
            self.fail(f"{value!r} is no amount of money from {least} on, such as 120.50", param, ctx)
        return amount


budget_option = click.option(
    "--budget",
    type=_Amount(),
    metavar="MONEY",
    help="What a month may cost, in the currency of the prices. "
    "[default: `budget` of the configuration file]",
)


def choose_budget(budget: Decimal | None, config: Config | None) -> Decimal | None:
    return budget if budget is not None or config is None else config.budget


def tell_budget(total: Decimal, budget: Decimal | None, currency: str) -> int:
    """Say so if it is passed; the exit code."""
    if budget is None or total <= budget:
        return 0
    spent, allowed, _ = write_amounts(total, budget, total - budget)
    click.echo(f"pairbus: {spent} {currency} is above the budget of {allowed}", err=True)
    return FOUND


prices_option = click.option(
    "--prices",
    type=EXISTING_FILE,
    help="A price sheet of your own (TOML). [default: `prices` of the configuration file, or ours]",
)


def choose_sheet(prices: Path | None, config: Config | None) -> PriceSheet:
    """Read the sheet; a mistake is told with the file that has it."""
    file = prices or (config.prices if config is not None else None)
    if file is None:
        return default_sheet()
    return parse_sheet(read_text(file), where=str(file))
