"""Which price sheet a command reckons with: the one named to it, that of the configuration, or ours."""

from __future__ import annotations

from pathlib import Path

import click

from pairbus.cost import PriceSheet, default_sheet, parse_sheet
from pairbus.plumbing.toml_tables import read_text

from .config import Config

prices_option = click.option(
    "--prices",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A price sheet of your own (TOML). [default: `prices` of the configuration file, or ours]",
)


def choose_sheet(prices: Path | None, config: Config | None) -> PriceSheet:
    """Read the sheet; a mistake is told with the file that has it."""
    file = prices or (config.prices if config is not None else None)
    if file is None:
        return default_sheet()
    return parse_sheet(read_text(file), where=str(file))
