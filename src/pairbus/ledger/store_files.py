"""All objects that hold records of one kind in a store, as they were at one moment.

1. Heads are read first: what they tell of must be there. Then objects are listed, and of those the ones that
   the table has not taken over.
2. A compaction deletes what it has taken over one generation later, so that whoever has listed before it
   finds all of it. A reader that meets both finds something gone, and begins again.
3. No anchor goes before an object, be it a commit or a segment that an application has shipped: it is like
   the end of an open segment.
4. A head is replaced by one with another name, in a large fleet several times a second. So one that is gone
   when it is to be read is looked for again, with those of writers that were not known before; which of two
   that follow each other is read does not matter.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, TypeVar

from pairbus.errors import PairbusError
from pairbus.stores.packing import PACKED
from pairbus.stores.store import RecordStore

from .chain import (
    ChainAudit,
    ChainCover,
    ChainHead,
    HeadFile,
    SegmentData,
    audit_chains,
    is_covered_by_name,
    is_head,
    parse_head,
)
from .generation import Manifest, parse_manifest
from .seal import seal_of

T = TypeVar("T")
_READINGS = 6
_PAUSE = 0.2
# Objects are small and a store is far: the time is that of round trips.
_SIDE_BY_SIDE = 16
# Of these the driver has all in memory.
_AT_A_TIME = 256
_MANIFEST = re.compile(r"^\w+-(\d{6,})\.manifest\.json$")
_ANCHOR = re.compile(r"^\w+-(\d{6,})\.anchor$")
_FILE = re.compile(r"^\w+-(\d{4}-\d\d-\d\d)-(\d{6,})-\w+\.parquet$")


class StoreTable(NamedTuple):
    """The newest generation: its manifest, its files that are whole, and what is wrong with it."""

    manifest: Manifest
    files: list[str]
    gaps: list[str]


class StoreFiles(NamedTuple):
    """Heads before and after, the objects whose rows no table has, the table, and all names."""

    store: RecordStore
    kind: str
    heads: list[HeadFile]
    fresh: list[str]
    table: StoreTable
    later: list[HeadFile]
    names: list[str]

    @classmethod
    def list(cls, store: RecordStore, kind: str, *, is_audited: bool = True) -> StoreFiles:
        """What there is; files of the table are compared with their seals only if it is audited."""
        heads = _read_heads(store, kind)
        names = [*store.list(kind)]
        table = _read_table(store, names, is_audited=is_audited)
        fresh = [name for name in names if is_fresh(name, table.manifest.covered)]
        return cls(store, kind, heads, fresh, table, _read_heads(store, kind), names)

    def audit(self, *, must_succeed: bool) -> ChainAudit:
        """What is wrong with them, the table included. `must_succeed`: see `audit_chains`."""
        found = audit_chains(
            self.heads,
            self._data(),
            self.later,
            covered=self.table.manifest.covered,
            must_succeed=must_succeed,
        )
        return found._replace(
            gaps=list(dict.fromkeys([*self.table.gaps, *found.gaps])),  # what is still there is in both
            notes=[*self.table.manifest.notes, *found.notes],
            unchained=found.unchained + self.table.manifest.unchained,
        )

    def _data(self) -> Iterator[SegmentData]:
        for begin in range(0, len(self.fresh), _AT_A_TIME):
            some = self.fresh[begin : begin + _AT_A_TIME]
            for name, data in read_side_by_side(self.store, some).items():
                yield SegmentData(f"{self.store.place}/{name}", data, is_closed=False)


def begin_anew(store: RecordStore, read: Callable[[], T]) -> T:
    """Rule 2: whatever lists and reads."""
    for reading in range(_READINGS):
        try:
            return read()
        except FileNotFoundError:
            time.sleep(_PAUSE * (reading + 1))
    raise PairbusError(f"the records in {store.place} change while they are read; try again")


def holds_rows(name: str) -> bool:
    """Whether an object is a segment, or a commit of a pump, and no head, manifest or table."""
    return name.endswith((".jsonl", f".jsonl{PACKED}"))


def is_fresh(name: str, covered: Mapping[str, ChainCover]) -> bool:
    """Whether an object has rows that no table has."""
    return holds_rows(name) and not is_covered_by_name(name, covered)


def read_side_by_side(store: RecordStore, names: Sequence[str]) -> dict[str, bytes]:
    """Many objects at a time."""
    return _map_side_by_side(store.read, names)


def _read_what_is_there(store: RecordStore, names: Sequence[str]) -> dict[str, bytes | None]:
    """The same; None for what is gone."""

    def read(name: str) -> bytes | None:
        try:
            return store.read(name)
        except FileNotFoundError:
            return None

    return _map_side_by_side(read, names)


def _map_side_by_side(read: Callable[[str], T], names: Sequence[str]) -> dict[str, T]:
    if not names:
        return {}
    with ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="pairbus-read") as pool:
        return dict(zip(names, pool.map(read, names), strict=True))


def _read_heads(store: RecordStore, kind: str) -> list[HeadFile]:
    """The newest head of each writer, and those of adopters."""
    data = _read_present_heads(store, kind)
    newest: dict[str, HeadFile] = {}
    damaged: list[HeadFile] = []
    for name, content in data.items():
        head = parse_head(name, content)
        file = HeadFile(Path(name), head)
        if head is None or name != head.object_name(kind):
            damaged.append(HeadFile(Path(f"{store.place}/{name}"), None))
            continue
        known = newest.get(head.name(kind))
        if known is None or known.head is None or _is_newer(head, known.head):
            newest[head.name(kind)] = file
    return [*newest.values(), *damaged]


def _read_present_heads(store: RecordStore, kind: str) -> dict[str, bytes]:
    """Rule 4: at least one of each writer."""
    data: dict[str, bytes] = {}
    known: set[str] = set()
    for _ in range(_READINGS):
        left = [name for name in store.list(kind) if is_head(name) and _whose(name) not in known]
        found = {name: one for name, one in _read_what_is_there(store, left).items() if one is not None}
        data |= found
        known |= {_whose(name) for name in found}
        if len(found) == len(left):
            return data
    raise FileNotFoundError(f"the heads of {kind} in {store.place} are replaced while they are read")


def _whose(name: str) -> str:
    """The name of a head without its time."""
    return name.rsplit(".", 2)[0]


def _is_newer(head: ChainHead, than: ChainHead) -> bool:
    return (head.commits, not head.is_open, head.at) > (than.commits, not than.is_open, than.at)


def _read_table(store: RecordStore, names: Sequence[str], *, is_audited: bool) -> StoreTable:
    numbers = {int(found[1]): name for name in names if (found := _MANIFEST.match(name))}
    gaps: list[str] = []
    # They stand before their manifests in a listing, and are put after those.
    told, anchor = max(
        ((int(found[1]), name) for name in names if (found := _ANCHOR.match(name))), default=(0, "")
    )
    if told > max(numbers, default=0):
        if _is_there(store, f"{anchor.partition('.')[0]}.manifest.json"):
            raise FileNotFoundError(f"{store.place} was listed before all was there")  # see `begin_anew`
        gaps.append(f"the manifest of generation {told} in {store.place} is gone")
    for number in sorted(numbers, reverse=True):
        place = f"{store.place}/{numbers[number]}"
        try:
            manifest = parse_manifest(store.read(numbers[number]), place)
        except (ValueError, TypeError, KeyError):
            gaps.append(f"{place} was edited, or cannot be read")
            continue
        if manifest.generation != number:
            gaps.append(f"{place} is not the manifest that its name tells of")
            continue
        files = _check_files(store, names, manifest, gaps, is_audited=is_audited)
        return StoreTable(manifest, files, [*gaps, *manifest.gaps])
    # Those of the first generation may have been written, and its manifest never put.
    files = [name for name in names if _FILE.match(name)]
    if any(generation_of(name) != 1 for name in files):
        gaps.append(f"the manifest of {len(files):,} tables in {store.place} is gone")
    return StoreTable(Manifest(generation=max(numbers, default=told)), [], gaps)


def _is_there(store: RecordStore, name: str) -> bool:
    return _read_what_is_there(store, [name])[name] is not None


def _check_files(
    store: RecordStore, names: Sequence[str], manifest: Manifest, gaps: list[str], *, is_audited: bool
) -> list[str]:
    whole = []
    there = set(names)
    for name, expected in manifest.files.items():
        if name not in there:
            gaps.append(f"{store.place}/{name} is gone")
        elif is_audited and seal_of(store.read(name)) != expected:
            gaps.append(f"{store.place}/{name} was edited")
        else:
            whole.append(name)
    return whole


def generation_of(name: str) -> int | None:
    """The number of the generation that a manifest, its anchor or a file belongs to, by its name."""
    if found := _MANIFEST.match(name) or _ANCHOR.match(name):
        return int(found[1])
    found = _FILE.match(name)
    return int(found[2]) if found else None


def day_at(moment: float) -> str:
    """The day of a Unix time, in UTC."""
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d}"


def day_of(name: str) -> str:
    """The day whose receipts are in a file, by its name."""
    found = _FILE.match(name)
    return found[1] if found else ""
