"""Generations in a store: the rows of objects as Parquet by day, which answers for what it has taken over.

1. A generation is visible when its manifest, `KIND-NUMBER.manifest.json`, is. That names the files of all
   days; only days with new rows have new ones, all others are those of the generation before.
2. One process compacts: the syphon that holds the lease of the pair, or the one that runs. If there were two,
   the manifest that is put last would count, and nothing be lost: what it does not cover is still there.
3. What a generation has taken over, and the files that it has replaced, are deleted when the next one is
   visible. So whoever has begun to read beside a compaction finds all of it.
4. What no table can take over, since no commit can be read in it or its name tells no writer, stays as it is.
   Whoever reads finds it, and it is no reason for another generation.
5. The anchor of a generation is put when its manifest has been, and tells by its name that there is one: a
   manifest that is gone is missed, and what an older one tells is not taken for all that there is. Where the
   process was killed in between, or had version 0.1.0, whoever keeps house next puts it.
6. A writer that has ended is forgotten when nothing of it is left, and one of which nothing was taken over is
   not spoken of; see rule 3 of `generation`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from pairbus.stores.store import RecordStore

from .chain import ChainCover, is_covered_by_name, is_head, is_of_head, writer_of
from .generation import Compaction, Manifest, done_heads
from .store_files import StoreFiles, day_of, generation_of, holds_rows, is_fresh


class WrittenDays(NamedTuple):
    """What a writer of tables has done: new files with their seals, their days, and bad lines."""

    files: Mapping[str, str]
    days: Sequence[str]
    bad: int


#: Puts the rows of fresh objects, with what the table has of the same days, into files of this generation.
DayWriter = Callable[[StoreFiles, int], WrittenDays]


def manifest_name(kind: str, number: int) -> str:
    """What the manifest of a generation is called."""
    return f"{kind}-{number:06d}.manifest.json"


def put_manifest(files: StoreFiles, manifest: Manifest) -> None:
    """Make the next generation visible; see rule 5."""
    files.store.put(manifest_name(files.kind, manifest.generation), manifest.sealed().data)
    files.store.put(_anchor_name(files.kind, manifest.generation), b"{}\n")


def put_anchor(files: StoreFiles) -> None:
    """See to it that the newest generation has its own."""
    name = _anchor_name(files.kind, files.table.manifest.generation)
    if files.table.manifest.generation and name not in files.names:
        files.store.put(name, b"{}\n")


def _anchor_name(kind: str, number: int) -> str:
    return f"{manifest_name(kind, number).partition('.')[0]}.anchor"


def compact_store(store: RecordStore, kind: str, write: DayWriter) -> Compaction:
    """Put the rows of all objects into the table."""
    files = StoreFiles.list(store, kind, is_audited=False)
    put_anchor(files)
    if not _has_news(files):  # asked every 15 minutes, and tables are not read for nothing
        return Compaction(manifest=_table(files, files.table.manifest.generation))
    files = StoreFiles.list(store, kind)
    before = files.table.manifest
    audit = files.audit(must_succeed=False)
    covered = covered_by(files, audit.ends)
    taken = [name for name in files.fresh if is_covered_by_name(name, covered)]
    number = before.generation + 1
    written = write(files._replace(fresh=taken), number)
    kept = {name: own for name, own in before.files.items() if day_of(name) not in written.days}
    manifest = replace(
        before.follower(number),
        files=kept | dict(written.files),
        covered=covered,
        bad=before.bad + written.bad,
        gaps=audit.gaps,
    )
    put_manifest(files, manifest)
    delete_old(files, before)
    return Compaction(segments=len(taken), bad=written.bad, manifest=_table(files, number))


def _has_news(files: StoreFiles) -> bool:
    """Whether there may be something to take over; see rule 4."""
    told = {gap.rpartition("/")[2] for gap in files.table.manifest.gaps}
    return any(writer_of(name) is not None and name not in told for name in files.fresh)


def covered_by(files: StoreFiles, ends: Mapping[str, ChainCover]) -> dict[str, ChainCover]:
    """Rule 6: what is said of these chains, without those that are done with."""
    known = {head.writer for _, head in files.heads if head is not None}
    known |= {writer for name in files.names if (writer := writer_of(name)) is not None}
    return files.table.manifest.not_done(ends, known)


def delete_old(files: StoreFiles, before: Manifest) -> None:
    """Rule 3: what the generation before had taken over or replaced."""
    done = [head for _, head in done_heads(files.heads, before.covered) if head is not None]
    names = [head.name(files.kind) for head in done]
    damaged = {path.name for path, head in files.heads if head is None}
    # Of several heads of a writer the one that counts goes last: it says that the writer has ended.
    last = {head.object_name(files.kind) for head in done}
    for name in sorted(files.names, key=lambda name: name in last):
        generation = generation_of(name)
        if generation is not None:
            is_old = generation < before.generation and name not in before.files
        elif is_head(name):
            is_old = name not in damaged and any(is_of_head(name, head) for head in names)
        else:
            is_old = holds_rows(name) and not is_fresh(name, before.covered)
        if is_old:
            files.store.delete(name)


def _table(files: StoreFiles, number: int) -> str | None:
    return f"{files.store.place}/{manifest_name(files.kind, number)}" if number else None
