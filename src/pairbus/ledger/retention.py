"""Retention: records that are older than so many days are removed, and the chains stay whole.

1. Of redirect records whole segments go, from the beginning of each chain up to the first that has a younger
   row or is damaged, or before which something is missing: that may still come, from a writer's open segment,
   and would count as removed. The next manifest says how far the chain is *covered*, as if a table had taken
   it over, and `since` when all is there. So what is missing by intent is told from what is missing.
2. The heads of chains that go on stay. So do those of hosts that were not heard of: they may have more.
3. Receipts go a day later than redirect records, since clocks differ: whoever finds that a message was
   redirected finds what became of it.
4. Of the ledger whole months go, so that there is a whole bill of a month or none. A word that is left first
   tells since when it is kept; see `row_runs`.
5. In a store the next manifest is put first. What it no longer names is deleted by a later call, so that
   whoever reads beside it finds all. If a compaction has put its own manifest in between, nothing is lost.
"""

import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pairbus.plumbing.files import hold_alone, publish
from pairbus.stores.parquet_files import copy_rows_since, has_parquet, has_rows_before
from pairbus.stores.places import RecordPlace, StoreUri
from pairbus.stores.store import RecordStore, open_store

from .chain import ChainAudit, ChainCommit, ChainCover, HeadFile, read_commits, read_heads, writer_of
from .generation import (
    TableRead,
    TableWriter,
    clear_generations,
    lock_of,
    read_table,
    remove_heads,
    uncovered,
    write_generation,
)
from .operations import KIND as OPERATIONS
from .operations import lock_of as lock_of_ledger
from .receipts import KIND as RECEIPTS
from .row_runs import kept_since, since_name
from .seal import seal_of
from .segment import closed_segments, parse_lines
from .store_compaction import covered_by, delete_old, put_anchor, put_manifest
from .store_files import StoreFiles, begin_anew, day_at, day_of

#: The kind of segment that holds redirect records, which clients write.
REDIRECTS = "redirects"
DAY = 86_400.0
_MOVED = "moved"
_LEDGER_DAY = re.compile(rf"^{OPERATIONS}-(\d{{4}}-\d\d)-\d\d-\d{{6}}\.parquet$")
# Of a time that calendars can tell.
_LEDGER_OBJECT = re.compile(rf"^{OPERATIONS}-(\d{{13,14}})-.+\.jsonl$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trimmed:
    """What was removed: segments, files or days; `since` when what is left is whole."""

    since: float
    redirects: int = 0
    receipts: int = 0
    operations: int = 0


def cut_for(keep_days: int, *, now: float) -> float:
    """Before when records are old: whole days, by UTC."""
    # What is kept for longer than there are dates is kept for ever.
    return max(0.0, (now // DAY - keep_days) * DAY)


def trim(place: RecordPlace, *, before: float) -> Trimmed:
    """Remove what is older, in a directory or a store. What somebody else works on stays for now."""
    if isinstance(place, StoreUri):
        store = open_store(place)
        return begin_anew(store, lambda: _trim_store(store, before))
    if not _holds_records(place):
        return Trimmed(since=before)  # and no lock is left there
    with hold_alone(lock_of(place)) as lock:
        if lock is None:
            return Trimmed(since=before)
        return Trimmed(
            since=before,
            redirects=_trim_segments(place, before),
            receipts=_trim_table(place, before - DAY),
            operations=_trim_ledger(place, before),
        )


def _holds_records(directory: Path) -> bool:
    """Whether anything there, finished or being written, has the name of a record."""
    kinds = tuple(f"{kind}-" for kind in (REDIRECTS, RECEIPTS, OPERATIONS))
    return directory.is_dir() and any(
        path.name.removeprefix(".").startswith(kinds) for path in directory.iterdir()
    )


# -- redirect records


class _Chains:
    """Rule 1: which segments go, and how far that covers the chain of each writer."""

    def __init__(self, before: float, known: Mapping[str, ChainCover]) -> None:
        self._before = before
        self._known = known
        self._closed: set[str] = set()
        self.gone: list[str] = []
        self._ends: dict[str, tuple[int, str]] = {}

    def add(self, name: str, data: bytes | None) -> None:
        """The next segment, the older ones of a writer first. None if it cannot be old."""
        writer = writer_of(name)
        if writer in self._closed:
            return
        commits = [*read_commits(name, data)] if writer is not None and data is not None else []
        if data is None or not self._follow(commits) or not self._is_old(data):
            self._closed.add(writer or name)
            return
        self.gone.append(name)
        if writer is not None and commits:
            last = max(commits, key=lambda commit: commit.number)
            self._ends[writer] = last.number, last.own

    def _follow(self, commits: Sequence[ChainCommit]) -> bool:
        """Whether they are as they were written, and none before them is missing."""
        here = {commit.number for commit in commits}
        return all(
            commit.is_sound and (commit.after in here or commit.after <= self._end(commit.writer))
            for commit in commits
        )

    def _end(self, writer: str) -> int:
        """How far a chain goes that is removed so far."""
        known = self._known.get(writer)
        return max(self._ends.get(writer, (0,))[0], 0 if known is None else known.commits)

    def _is_old(self, data: bytes) -> bool:
        read = parse_lines(data)
        times = [row.get("at") for row in read.rows]
        return not read.bad and all(isinstance(at, int | float) and at < self._before for at in times)

    def covered(self, heads: Iterable[HeadFile]) -> dict[str, ChainCover]:
        """What is covered now."""
        own = {one.head.writer: one.head for one in heads if one.head is not None and not one.head.is_adopted}
        found = dict(self._known)
        for writer, head in own.items():  # of those that could write nothing but that
            if head.lost and not head.commits and not head.is_open and head.at < self._before:
                found[writer] = ChainCover(0, head.hash, is_open=False)
        for writer, (number, hashed) in self._ends.items():
            told, cover = own.get(writer), self._known.get(writer)
            if cover is not None and cover.commits >= number:
                continue
            # Who may have more is missed, if that and the head are gone.
            is_open = told is None or told.is_open or told.commits > number
            found[writer] = ChainCover(number, hashed, is_open)
        return found


def _by_number(names: Iterable[str]) -> list[str]:
    """Names as chains go: they end with the number of their first commit."""
    return sorted(names, key=lambda name: (writer_of(name) or "", name.rpartition("-")[2], name))


def _trim_segments(directory: Path, before: float) -> int:
    heads = read_heads(directory, REDIRECTS)
    table = read_table(directory, REDIRECTS)
    if table.is_damaged:
        return 0
    fresh = uncovered(closed_segments(directory, REDIRECTS), table)
    chains = _Chains(before, table.manifest.covered)
    for name in _by_number(path.name for path in fresh):
        chains.add(name, (directory / name).read_bytes())
    ends = chains.covered(heads)
    if not chains.gone and ends == table.manifest.covered:
        return 0
    _write_anew(directory, REDIRECTS, _write_nothing, table, heads=heads, covered=ends, since=before)
    for name in chains.gone:
        (directory / name).unlink()
    remove_heads(heads, ends)
    return len(chains.gone)


def _write_nothing(segments: list[Path], table: TableRead, to: Path) -> int:
    to.mkdir()
    return 0


def _write_anew(
    directory: Path,
    kind: str,
    write: TableWriter,
    table: TableRead,
    *,
    heads: Sequence[HeadFile],
    covered: Mapping[str, ChainCover],
    since: float,
) -> None:
    """The next generation, with no segment more in it."""
    audit = ChainAudit([], [], dict(covered), 0, set(), {})
    path, _ = write_generation(
        directory, kind, write, segments=[], table=table, audit=lambda: audit, heads=heads, since=since
    )
    clear_generations(directory, kind, path, is_damaged=False)


def _trim_store(store: RecordStore, before: float) -> Trimmed:
    return Trimmed(
        since=before,
        redirects=_trim_objects(store, before),
        receipts=_trim_days(store, before - DAY),
        operations=_trim_ledger_objects(store, before),
    )


def _trim_objects(store: RecordStore, before: float) -> int:
    files = StoreFiles.list(store, REDIRECTS)
    if len(files.table.gaps) > len(files.table.manifest.gaps):
        return 0  # a manifest is damaged: nothing is built on it
    put_anchor(files)
    chains = _Chains(before, files.table.manifest.covered)
    for name in _by_number(name for name in files.fresh if writer_of(name) is not None):
        # Its name tells when it was begun: most need not be read.
        is_younger = int(name.split("-", 2)[1]) >= before * 1000
        chains.add(name, None if is_younger else store.read(name))
    ends = chains.covered(files.heads)
    if chains.gone or ends != files.table.manifest.covered:
        _put_manifest(files, files.table.manifest.files, ends, since=before)
    delete_old(files, files.table.manifest)
    return len(chains.gone)


def _put_manifest(
    files: StoreFiles, kept: Mapping[str, str], covered: Mapping[str, ChainCover], *, since: float
) -> None:
    last = files.table.manifest
    manifest = replace(
        last.follower(last.generation + 1),
        files=dict(kept),
        covered=covered_by(files, covered),
        since=max(since, last.since),
    )
    put_manifest(files, manifest)


# -- receipts


def _trim_days(store: RecordStore, before: float) -> int:
    files = StoreFiles.list(store, RECEIPTS, is_audited=False)
    manifest = files.table.manifest
    if len(files.table.gaps) > len(manifest.gaps):
        return 0
    put_anchor(files)
    first = day_at(before)
    days = [name for name in manifest.files if day_of(name) < first]
    # What is damaged stays.
    old = [name for name in days if seal_of(store.read(name)) == manifest.files[name]]
    if old:
        kept = {name: own for name, own in manifest.files.items() if name not in old}
        _put_manifest(files, kept, manifest.covered, since=before)
    delete_old(files, manifest)
    return len(old)


def _trim_table(directory: Path, before: float) -> int:
    """Files of the table are written anew without the rows of earlier days; how many had such."""
    table = read_table(directory, RECEIPTS)
    if not table.files or table.is_damaged or not has_parquet():
        return 0
    first = (before // DAY) * DAY
    old = [path for path in table.files if has_rows_before(path, _MOVED, first)]
    if not old:
        return 0

    def write(segments: list[Path], table: TableRead, to: Path) -> int:
        to.mkdir()
        for path in table.files:
            copy_rows_since(path, to / path.name, _MOVED, first)
        return 0

    heads, covered = read_heads(directory, RECEIPTS), table.manifest.covered
    _write_anew(directory, RECEIPTS, write, table, heads=heads, covered=covered, since=before)
    return len(old)


# -- the ledger


def _trim_ledger(directory: Path, before: float) -> int:
    month = day_at(before)[:7]
    with hold_alone(lock_of_ledger(directory)) as lock:
        if lock is None:
            return 0
        there = sorted(directory.iterdir())  # hidden ones first
        days = [path for path in there if _is_before(path.name.removeprefix("."), month)]
        if days:
            publish(directory / since_name(month), "")
        for path in days:  # as a whole: a day without a part of its rows would be refused as damaged
            hidden = directory / f".{path.name.removeprefix('.')}"
            path.rename(hidden)
            shutil.rmtree(hidden) if hidden.is_dir() else hidden.unlink()
        for path in there:
            if _is_told_before(path.name, month):
                path.unlink()
    return len(days)


def _trim_ledger_objects(store: RecordStore, before: float) -> int:
    month = day_at(before)[:7]
    names = [*store.list(OPERATIONS)]
    old = [name for name in names if _is_before(name, month)]
    if old:
        store.put(since_name(month), b"{}\n")  # an empty object counts as one that is not there yet
    for name in [*old, *(name for name in names if _is_told_before(name, month))]:
        store.delete(name)
    return len(old)


def _is_told_before(name: str, month: str) -> bool:
    """Whether it is the word of an earlier time."""
    return 0.0 < kept_since([name]) < kept_since([since_name(month)])


def _is_before(name: str, month: str) -> bool:
    """Whether all of it is of an earlier month. A segment ends some minutes after it was begun."""
    if found := _LEDGER_DAY.match(name):
        return found[1] < month
    found = _LEDGER_OBJECT.match(name)
    return found is not None and day_at(int(found[1]) / 1000 + DAY)[:7] < month
