"""Generations: the rows of closed segments in one table, which answers for what it has taken over.

1. A table is a directory of Parquet, `KIND-NUMBER.parquet`; the next generation takes its place. In it a
   sealed *manifest* tells the hash of every file, how far the chain of every writer is covered, what was
   wrong with the segments and cannot be seen any more, and the seal of the manifest before.
2. The *anchor* beside it, `KIND-table.json`, is sealed too and names the newest generation. It first says
   which one is to come, then the directory gets its name, then the anchor says that it has come. Only then
   segments, older generations and heads that are done with are removed. So a table that is gone is missed,
   and after a crash anywhere rows are in two places rather than in none. By its chain a segment that was left
   is known to be in the table, and is not read.
3. The heads of writers that have ended go with their segments, and the manifest after this one no longer
   needs to know of them: that is how the files of many writers become few. Of a writer that has committed
   nothing there is nothing to tell: it may end without a trace (rule 7 of `chain`).
4. Files that the manifest does not know, or not like this, are told and not read. What is damaged is not
   removed but set aside, as `NAME.damaged`.
5. Tables of version 0.1.0 have no manifest. They are read as they are, and it is said. So is a table whose
   manifest is gone or damaged; of its files those are told and not read that cannot be.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from time import sleep
from typing import Any, NamedTuple

from pairbus.plumbing.files import (
    entries_in,
    files_in,
    hold_alone,
    publish,
    publish_directory,
    read_file,
    set_aside,
)

from .chain import (
    ChainAudit,
    ChainCover,
    HeadFile,
    SegmentData,
    audit_chains,
    is_awaited,
    is_covered,
    read_heads,
)
from .columns import Moment, take_values
from .seal import Sealed, open_sealed, seal, seal_of_file
from .segment import adopt_segments, closed_segments, open_segments

_MANIFEST = "_manifest.json"
# Nothing that leads out of a table.
_FILE = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_.-]*\.parquet")
_NUMBER = re.compile(r"-(\d{6,})\.parquet$")
# Seconds before each look whether anything is just being closed, which takes a sync of the disk.
_LOOKS = (0.0, 0.05, 0.2, 0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The description of a generation; see rule 1. `unchained` rows came from version 0.1.0."""

    generation: int
    before: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    covered: Mapping[str, ChainCover] = field(default_factory=dict)
    bad: int = 0
    gaps: Sequence[str] = ()
    notes: Sequence[str] = ()
    unchained: int = 0
    #: What is older was removed by `retention`; 0 if nothing was.
    since: float = 0.0
    seal: str = ""

    def follower(self, number: int) -> Manifest:
        """That of the next generation, as long as nothing has changed."""
        return replace(self, generation=number, before=self.seal or None)

    def not_done(self, ends: Mapping[str, ChainCover], known: Container[str]) -> dict[str, ChainCover]:
        """Rule 3: what the next one says of chains that go so far; of `known` writers something is left."""
        return {
            writer: cover
            for writer, cover in ends.items()
            if cover.commits and (writer in known or cover.is_open or writer not in self.covered)
        }

    def sealed(self) -> Sealed:
        """As its file has it."""
        return seal({one.name: getattr(self, one.name) for one in fields(self) if one.name != "seal"})


class TableAnchor(NamedTuple):
    """The newest generation and its seal, and those of the one that is to come."""

    number: int = 0
    seal: str | None = None
    next: int | None = None
    next_seal: str | None = None


class TableRead(NamedTuple):
    """The newest generation: its place, its whole files, its manifest, what is wrong, and the anchor."""

    path: Path | None
    files: list[Path]
    manifest: Manifest
    gaps: list[str]
    notes: list[str]
    anchor: TableAnchor

    @property
    def is_damaged(self) -> bool:
        """Whether there is more wrong with it than it tells by itself."""
        return len(self.gaps) > len(self.manifest.gaps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """What a compaction did; `bad` lines could not be read."""

    segments: int = 0
    adopted: int = 0
    bad: int = 0
    table: Path | None = None
    #: In a store, the manifest of the generation that there is now.
    manifest: str | None = None

    @property
    def place(self) -> str | None:
        """Where the table is, if there is one."""
        return self.manifest if self.table is None else str(self.table)


#: Writes what segments and a table hold to a directory, and tells how many lines could not be read.
TableWriter = Callable[[list[Path], TableRead, Path], int]
#: Whether a file of a table can be read, where no manifest answers for it.
FileProbe = Callable[[Path], bool]


def lock_of(directory: Path) -> Path:
    """The lock of compactions: its holder alone changes closed segments and tables."""
    return directory / ".compaction.lock"


def newest_table(directory: Path, kind: str) -> Path | None:
    """The newest generation that is there."""
    generations = _generations(directory, kind)  # first: the anchor may only be ahead of them
    return _choose(generations, _read_anchor(directory, kind, []))


def _choose(generations: Sequence[Path], anchor: TableAnchor | None) -> Path | None:
    """The one that the anchor tells of: anybody may have made a higher one. Without an anchor the last."""
    by_number = {_number(path): path for path in generations}
    for number in () if anchor is None else (anchor.next, anchor.number):
        if number in by_number:
            return by_number[number]
    return by_number[max(by_number)] if by_number else None


def _generations(directory: Path, kind: str) -> list[Path]:
    return [path for path in _named_like_one(directory, kind) if path.is_dir()]


def _named_like_one(directory: Path, kind: str) -> list[Path]:
    return [path for path in entries_in(directory, f"{kind}-*.parquet") if _NUMBER.search(path.name)]


def read_table(
    directory: Path, kind: str, *, is_audited: bool = True, probe: FileProbe | None = None
) -> TableRead:
    """The newest generation. Files are compared if it is audited, and probed if no manifest tells of them."""
    generations, gaps = _generations(directory, kind), list[str]()
    gaps += [f"{one} is no table" for one in _named_like_one(directory, kind) if not one.is_dir()]
    anchor = _read_anchor(directory, kind, gaps)
    path = _choose(generations, anchor)
    known = anchor or TableAnchor()
    if path is not None:
        later = [one for one in generations if _number(one) > _number(path)]
        gaps += [f"{one} is not the table that its anchor tells of" for one in later]
    if path is None:
        if known.number:
            gaps.append(f"the table {directory / _name(kind, known.number)} is gone")
        return TableRead(None, [], Manifest(generation=known.number), gaps, [], known)
    try:
        manifest = _read_manifest(path)
    except FileNotFoundError:
        return _read_unsealed(path, known, gaps, probe)
    except (OSError, ValueError, TypeError, KeyError):
        gaps.append(f"{path / _MANIFEST} was edited, or cannot be read")
        return _as_it_is(path, known, gaps, [], probe)
    gaps += _compare(path, manifest, anchor, kind)
    files = _check_files(path, manifest, gaps, is_audited=is_audited)
    gaps += manifest.gaps
    return TableRead(path, files, manifest, gaps, [*manifest.notes], known)


def _read_unsealed(path: Path, anchor: TableAnchor, gaps: list[str], probe: FileProbe | None) -> TableRead:
    """Rule 5."""
    notes = []
    if not anchor.number:
        notes.append(f"the table {path} has no manifest: it is of version 0.1.0")
    else:
        gaps.append(f"the manifest of {path} is gone")
    return _as_it_is(path, anchor, gaps, notes, probe)


def _as_it_is(
    path: Path, anchor: TableAnchor, gaps: list[str], notes: list[str], probe: FileProbe | None
) -> TableRead:
    number = max(_number(path), anchor.number)
    files = files_in(path, "*.parquet")
    if probe is not None:
        bad = [file for file in files if not probe(file)]
        gaps += [f"{file} cannot be read" for file in bad]
        files = [file for file in files if file not in bad]
    return TableRead(path, files, Manifest(generation=number), gaps, notes, anchor)


def _compare(path: Path, manifest: Manifest, anchor: TableAnchor | None, kind: str) -> list[str]:
    if manifest.generation != _number(path):
        return [f"{path} is not the table that its manifest tells of"]
    if anchor is None:
        return [f"the anchor of {path} is gone"]
    expected = {(anchor.number, anchor.seal), (anchor.next, anchor.next_seal)}
    if (manifest.generation, manifest.seal) in expected:
        return []
    if manifest.generation < anchor.number:
        return [f"the table {path.with_name(_name(kind, anchor.number))} is gone"]
    return [f"{path} is not the table that its anchor tells of"]


def _check_files(path: Path, manifest: Manifest, gaps: list[str], *, is_audited: bool) -> list[Path]:
    """Rule 4."""
    whole = []
    for name, expected in manifest.files.items():
        file = path / name
        if not file.is_file():
            gaps.append(f"{file} is gone, or no file")
        elif is_audited and seal_of_file(file) != expected:
            gaps.append(f"{file} was edited")
        else:
            whole.append(file)
    strange = sorted({file.name for file in path.glob("*.parquet")} - set(manifest.files))
    gaps += [f"{path / name} is not known to its manifest" for name in strange]
    return whole


def compact(directory: Path, kind: str, write: TableWriter, *, probe: FileProbe | None = None) -> Compaction:
    """Adopt what dead writers left behind, and put the rows of all segments into one table."""
    if not directory.is_dir():
        return Compaction()
    with hold_alone(lock_of(directory)) as lock:
        if lock is None:
            return Compaction()
        adopted = len(adopt_segments(directory, kind))
        for pause in _LOOKS:
            sleep(pause)
            heads = read_heads(directory, kind)
            still_open = open_segments(directory, kind)
            segments = closed_segments(directory, kind)
            told = [head for _, head in heads if head is not None]
            if not any(is_awaited(name, [path.name for path in segments], told) for name in still_open):
                break
        else:
            return Compaction(adopted=adopted)
        table = read_table(directory, kind, probe=probe)
        fresh = uncovered(segments, table)
        path, bad, damaged, covered = table.path, 0, set[str](), table.manifest.covered
        if fresh:
            read = (SegmentData(str(path), path.read_bytes(), is_closed=True) for path in fresh)
            later = read_heads(directory, kind)
            # Beside the writing of the table: hashes, like Arrow, let others have a processor, too.
            with ThreadPoolExecutor(1, thread_name_prefix="pairbus-audit") as beside:
                auditing = beside.submit(
                    audit_chains, heads, read, later, covered=covered, must_succeed=False
                )
                path, bad = write_generation(
                    directory, kind, write, segments=fresh, table=table, audit=auditing.result, heads=heads
                )
            damaged, covered = auditing.result().damaged, auditing.result().ends
        for old in segments:
            set_aside(old) if str(old) in damaged else old.unlink()
        clear_generations(directory, kind, path, is_damaged=table.is_damaged)
        remove_heads(heads, covered)
        return Compaction(segments=len(fresh), adopted=adopted, bad=bad, table=path)


def clear_generations(directory: Path, kind: str, newest: Path | None, *, is_damaged: bool) -> None:
    """Have the newest one alone."""
    for generation in _generations(directory, kind):
        if generation != newest:
            set_aside(generation) if is_damaged else shutil.rmtree(generation)


def uncovered(segments: Sequence[Path], table: TableRead) -> list[Path]:
    """Those that a table has not taken over."""
    return [path for path in segments if not is_covered(path, table.manifest.covered)]


def write_generation(
    directory: Path,
    kind: str,
    write: TableWriter,
    *,
    segments: list[Path],
    table: TableRead,
    audit: Callable[[], ChainAudit],
    heads: Sequence[HeadFile],
    since: float = 0.0,
) -> tuple[Path, int]:
    """Rule 2, up to the second word of the anchor: the next generation, and how many lines are bad. What is
    wrong with the segments is asked for when the rows are written.
    """
    named = map(_number, _named_like_one(directory, kind))
    number = max(table.manifest.generation, table.anchor.number, *named) + 1
    name = _name(kind, number)
    draft = directory / f".{name}"
    if draft.exists():  # of a compaction that did not come to its end
        shutil.rmtree(draft)
    bad = write(segments, table, draft)
    for left in draft.iterdir():  # what the writer keeps for itself
        if left.suffix != ".parquet":
            left.unlink()
    before, audited = table.manifest, audit()
    known = {head.writer for _, head in heads if head is not None}
    manifest = replace(
        before.follower(number),
        files={file.name: seal_of_file(file) for file in sorted(draft.iterdir())},
        covered=before.not_done(audited.ends, known),
        bad=before.bad + bad,
        gaps=list(dict.fromkeys([*table.gaps, *audited.gaps])),
        notes=table.notes,
        unchained=before.unchained + audited.unchained,
        since=max(since, before.since),
    )
    sealed = manifest.sealed()
    publish(draft / _MANIFEST, sealed.data, durable=False)  # the whole directory will be
    last = table.anchor
    if before.seal and not table.is_damaged:  # else what is wrong would not show until the table is there
        last = TableAnchor(before.generation, before.seal)
    _publish_anchor(directory, kind, last._replace(next=number, next_seal=sealed.seal))
    path = directory / name
    publish_directory(draft, path)
    _publish_anchor(directory, kind, TableAnchor(number, sealed.seal))
    return path, bad


def remove_heads(heads: Sequence[HeadFile], covered: Mapping[str, ChainCover]) -> None:
    """Rule 3: those of writers that have ended, and anchors of adopters; the table has what they tell of."""
    for path, _ in done_heads(heads, covered):
        path.unlink(missing_ok=True)


def done_heads(heads: Sequence[HeadFile], covered: Mapping[str, ChainCover]) -> list[HeadFile]:
    """Those that tell nothing any more. A writer's own stays as long as another tells of more."""
    told: dict[str, int] = {}
    for _, head in heads:
        if head is not None:
            told[head.writer] = max(head.commits, told.get(head.writer, 0))
    done = []
    for file in heads:
        cover = None if file.head is None else covered.get(file.head.writer)
        if file.head is None or cover is None or cover.commits < told[file.head.writer]:
            continue
        if file.head.is_adopted or not cover.is_open:
            done.append(file)
    return done


def _name(kind: str, number: int) -> str:
    return f"{kind}-{number:06d}.parquet"


def _number(path: Path) -> int:
    found = _NUMBER.search(path.name)
    return int(found[1]) if found else 0


def _read_manifest(path: Path) -> Manifest:
    file = path / _MANIFEST
    return parse_manifest(read_file(file), str(file))


def parse_manifest(data: bytes, place: str) -> Manifest:
    """Parse a manifest; ValueError, TypeError or KeyError if it is not one."""
    found = open_sealed(data, place)
    covered = {writer: _take_cover(cover) for writer, cover in _take_mapping(found["covered"]).items()}
    files = _take_mapping(found["files"])
    if not all(_FILE.fullmatch(name) and isinstance(own, str) for name, own in files.items()):
        raise ValueError(f"{place} names something that is no file of a table")
    texts = {name: found[name] for name in ("gaps", "notes")}
    for told in texts.values():
        if not isinstance(told, list) or not all(isinstance(one, str) and one.isprintable() for one in told):
            raise ValueError(f"{place} tells something that is no text")
    rest = {name: found[name] for name in found if name not in ("covered", "files", *texts)}
    return Manifest(**take_values(_ManifestNumbers, rest), covered=covered, files=files, **texts)


class _ManifestNumbers(NamedTuple):
    """What a manifest tells besides lists."""

    generation: int
    before: str | None
    bad: int
    unchained: int
    since: Moment
    seal: str


def _take_mapping(found: object) -> dict[str, Any]:
    if not isinstance(found, dict) or not all(name.isprintable() for name in found):
        raise ValueError("it is no mapping")
    return found


def _take_cover(found: object) -> ChainCover:
    if not isinstance(found, list) or len(found) != len(ChainCover._fields):
        raise ValueError("it is no cover of a chain")
    cover = ChainCover(**take_values(ChainCover, dict(zip(ChainCover._fields, found, strict=True))))
    if cover.commits < 0:
        raise ValueError("no chain is as short as that")
    return cover


def _anchor_path(directory: Path, kind: str) -> Path:
    return directory / f"{kind}-table.json"


def _read_anchor(directory: Path, kind: str, gaps: list[str]) -> TableAnchor | None:
    path = _anchor_path(directory, kind)
    try:
        found = open_sealed(read_file(path), str(path))
        return TableAnchor(**take_values(TableAnchor, _take_mapping(found["anchor"])))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError):
        gaps.append(f"{path} was edited, or cannot be read")
        return None


def _publish_anchor(directory: Path, kind: str, anchor: TableAnchor) -> None:
    publish(_anchor_path(directory, kind), seal({"anchor": anchor._asdict()}).data)
