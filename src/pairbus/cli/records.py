"""`pairbus records trim`: remove records that are older than so many days."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .examples import examples
from .group import CommandGroup
from .numbers import AT_LEAST_ONE
from .pairs import PairChoice, pair_options
from .places import PLACE
from .tables import json_option, print_json

if TYPE_CHECKING:
    from pairbus.stores.places import RecordPlace

_DIRECTORY = click.Path(file_okay=False, path_type=Path)


@click.group(
    cls=CommandGroup,
    epilog=examples("pairbus records trim --pair shop --keep-days 90"),
)
def records() -> None:
    """Remove records of clients and syphons that are old."""


@records.command(
    epilog=examples(
        "pairbus records trim --pair shop --keep-days 90",
        "pairbus records trim --records abfss://records@contoso.dfs.core.windows.net/shop --keep-days 400",
    )
)
@pair_options
@click.option(
    "--keep-days", type=AT_LEAST_ONE, required=True, metavar="N", help="What is older than that is removed."
)
@click.option(
    "--records",
    "places",
    multiple=True,
    type=PLACE,
    help="Where records lie: a directory or an object store. Repeatable. "
    "[default: records of the pair, or STATE/records]",
)
@click.option("--state", type=_DIRECTORY, help="The state directory. [default: that of the pair]")
@json_option
def trim(
    *,
    choice: PairChoice,
    keep_days: int,
    places: tuple[RecordPlace, ...],
    state: Path | None,
    as_json: bool,
) -> int:
    """Remove redirect records, receipts and ledger that are older than so many days.

    The heads of chains stay, so that `pairbus verify` tells what was removed from what is missing. What is in
    use at this moment, or damaged, stays.
    """
    from pairbus.ledger.retention import cut_for
    from pairbus.ledger.retention import trim as trim_place

    before = cut_for(keep_days, now=time.time())
    chosen = places or (choice.resolve(state=state).records,)
    done = {place: trim_place(place, before=before) for place in chosen}
    if as_json:
        print_json([{"place": str(place), **dataclasses.asdict(one)} for place, one in done.items()])
        return 0
    for place, one in done.items():
        click.echo(
            f"{place}: removed {one.redirects:,} segments of redirect records, {one.receipts:,} files of "
            f"receipts and {one.operations:,} parts of the ledger"
        )
    return 0
