"""`pairbus records trim`: remove records that are older than so many days."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pairbus.errors import ConfigurationError
from pairbus.plumbing.wording import counted

from .group import CommandGroup, examples
from .numbers import AT_LEAST_ONE
from .pairs import PairChoice, pair_options
from .shared_options import records_option, state_option
from .tables import json_option, tell

if TYPE_CHECKING:
    from pairbus.stores.places import RecordPlace


@examples("pairbus records trim --pair shop --keep-days 90")
@click.group(cls=CommandGroup)
def records() -> None:
    """Remove records of clients and syphons that are old."""


@examples(
    "pairbus records trim --pair shop --keep-days 90",
    "pairbus records trim --records abfss://records@contoso.dfs.core.windows.net/shop --keep-days 400",
)
@records.command()
@pair_options
@click.option(
    "--keep-days", type=AT_LEAST_ONE, required=True, metavar="N", help="What is older than that is removed."
)
@records_option("records lie", multiple=True)
@state_option
@json_option
def trim(
    *, choice: PairChoice, keep_days: int, records: tuple[RecordPlace, ...], state: Path | None, as_json: bool
) -> None:
    """Remove redirect records, receipts and ledger that are older than so many days.

    The heads of chains stay, so that `pairbus verify` tells what was removed from what is missing. What is in
    use at this moment, or damaged, stays.
    """
    from pairbus.ledger.retention import cut_for
    from pairbus.ledger.retention import trim as trim_place

    before = cut_for(keep_days, now=time.time())
    places = records or (choice.resolve(state=state).records,)
    for place in places:
        if isinstance(place, Path) and not place.is_dir():
            raise ConfigurationError(
                f"There are no records at {place}, and nothing was removed anywhere: give --records the "
                "directory that clients and syphons were given"
            )
    done = {place: trim_place(place, before=before) for place in places}
    described = [{"place": str(place), **dataclasses.asdict(one)} for place, one in done.items()]
    lines = (
        f"{place}: removed {counted(one.redirects, 'segment', 'segments')} of redirect records, "
        f"{counted(one.receipts, 'file', 'files')} of receipts and "
        f"{counted(one.operations, 'part', 'parts')} of the ledger"
        for place, one in done.items()
    )
    tell(described, lines, as_json=as_json)
