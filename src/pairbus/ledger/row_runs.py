"""Rows of the ledger by their numbers: what is not there shows.

1. A writer numbers its rows from 0, one by one, in their ids (`WRITER:000000042`), and writes them in that
   order. So a number between others of its writer, or before them, that is nowhere belongs to a row that was
   written and is gone: a file was removed, a line was damaged, or the segment with it has not come yet.
   Numbers behind the last one are not known of; a writer that has not ended shows as a gap instead. A writer
   makes a row a minute at least, so that those before its first were made within so many, give or take.
2. Months that retention has removed are not missing: it leaves a word since when the ledger is kept
   (`operations-since-2026-10`). A row that was written about then may be of either month.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from typing import NamedTuple

from .operations import KIND

_SINCE = re.compile(rf"{KIND}-since-(\d{{4}}-(?:0[1-9]|1[0-2]))")
_DAY = 86_400.0
# Longer than any writer is silent: its mark of each minute comes with the next write.
_SILENCE = 120.0


class RowRun(NamedTuple):
    """So many `rows` of a writer whose numbers follow each other, and from when until when they are."""

    writer: str
    pair: str
    first: int
    last: int
    begins: float
    ends: float
    rows: int


@dataclass(frozen=True, slots=True)
class MissingRows:
    """How many rows of a writer are missing, and since and until when it has written them."""

    writer: str
    pair: str
    rows: int
    begins: float
    ends: float


def since_name(month: str) -> str:
    """Rule 2: what tells that nothing is kept of the months before."""
    return f"{KIND}-since-{month}"


def kept_since(names: Iterable[str]) -> float:
    """Rule 2: since when there is a ledger, by the names of its files; 0.0 if nothing was removed."""
    months = [found[1] for name in names if (found := _SINCE.fullmatch(name))]
    if not months:
        return 0.0
    return datetime.strptime(max(months), "%Y-%m").replace(tzinfo=UTC).timestamp()


def join_runs(runs: Iterable[RowRun]) -> list[RowRun]:
    """The same numbers in as few runs as there can be."""
    found: list[RowRun] = []
    for run in sorted(runs):
        last = found[-1] if found else None
        if last is None or last.writer != run.writer or last.last + 1 < run.first:
            found.append(run)
            continue
        found[-1] = last._replace(
            last=max(last.last, run.last),
            begins=min(last.begins, run.begins),
            ends=max(last.ends, run.ends),
            rows=last.rows + run.rows,
        )
    return found


def find_missing(
    runs: Iterable[RowRun], *, kept: float = 0.0, since: float = 0.0, before: float = inf
) -> list[MissingRows]:
    """Rule 1: what is missing of a time, writer by writer; `kept` is since when there is a ledger."""
    missing: dict[str, MissingRows] = {}
    last: RowRun | None = None
    for run in join_runs(runs):
        known = last if last is not None and last.writer == run.writer else None
        last = run
        rows = run.first - (0 if known is None else known.last + 1)
        since_then = max(kept, run.begins - rows * _SILENCE) if known is None else known.ends
        begins, ends = sorted((since_then, run.begins))
        if not rows or run.begins < kept + _DAY or begins >= before or ends < since:
            continue
        other = missing.get(run.writer, MissingRows(run.writer, run.pair, 0, begins, ends))
        missing[run.writer] = MissingRows(
            run.writer, run.pair, other.rows + rows, min(other.begins, begins), max(other.ends, ends)
        )
    return sorted(missing.values(), key=lambda one: (one.begins, one.writer))
