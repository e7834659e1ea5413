"""`pairbus backlog sql`: the backlog, receipts, redirect records and the ledger, asked in SQL."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pairbus.plumbing.json_text import parse_json

from .backlogs import choose_backlog
from .group import CommandGroup, examples
from .pairs import PairChoice, pair_options
from .progress import working
from .shared_options import count_option, extra_option, master_option, records_option, state_option
from .tables import draw_table, json_option, shown, tell

if TYPE_CHECKING:
    from pairbus.stores.places import RecordPlace

# What a cell of bytes or a long text shows of itself to people.
_WIDEST = 60


@examples('pairbus backlog sql --pair shop "select path, count(*) from backlog group by path"')
@click.group(cls=CommandGroup)
def backlog() -> None:
    """Ask in SQL what lies in the backlog, and what became of it."""


@examples(
    'pairbus backlog sql --pair shop "select path, count(*), min(enqueued) from backlog group by path"',
    'pairbus backlog sql --pair shop "select outcome, count(*) from receipts group by outcome" --json',
)
@backlog.command()
@click.argument("query")
@pair_options
@count_option
@extra_option("Look at")
@records_option("records lie", multiple=True)
@state_option
@master_option
@json_option
def sql(
    *,
    query: str,
    choice: PairChoice,
    count: int | None,
    include_extra: bool,
    records: tuple[RecordPlace, ...],
    state: Path | None,
    master: str | None,
    as_json: bool,
) -> None:
    """Ask QUERY of the views backlog, dead_letters, receipts, redirects and ledger.

    Nothing is locked or removed: the queues are looked at by peek. docs/spark-source.md has the columns.
    """
    chosen = choose_backlog(choice, count=count, include_extra=include_extra, state=state)
    from pairbus.spark import create_views, open_session
    from pairbus.spark.views import VIEWS, ask

    places = records or (chosen.settings.records,)
    names = [name for name in VIEWS if re.search(rf"\b{name}\b", query, re.IGNORECASE)]
    with working("starting Spark"):
        spark = open_session(master=master, app_name="pairbus-backlog")
    try:
        with working("looking at " + (", ".join(names) or "nothing of the pair")):
            create_views(spark, chosen.backlog, records=places, names=names)
            answer = ask(spark, query)
            rows = [row.asDict(recursive=True) for row in answer.collect()]
    finally:
        spark.stop()
    head = [name.upper() for name in answer.columns]
    cells = [[_cell(row[name]) for name in answer.columns] for row in rows]
    plain = parse_json(json.dumps(rows, default=_plain))
    tell(plain, draw_table(head, cells, empty="  ".join(map(shown, head))), as_json=as_json)


def _plain(value: Any) -> str:
    """A value that JSON does not know: bytes as hexadecimal digits, moments as ISO 8601, decimals."""
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    return str(value.isoformat()) if hasattr(value, "isoformat") else str(value)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, dict | list):
        text = json.dumps(value, default=_plain, ensure_ascii=False)
    else:
        text = value if isinstance(value, str) else _plain(value)
    text = " ".join(text.split())
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"
