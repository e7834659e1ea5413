"""All files that hold records of one kind in a directory, as they were at one moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .chain import ChainAudit, HeadFile, SegmentData, audit_chains, is_chained, read_heads
from .generation import FileProbe, TableRead, newest_table, read_table, uncovered
from .seal import seal_of_file
from .segment import SegmentRead, closed_segments, read_open_segments, unreadable_segments


class RecordFiles(NamedTuple):
    """Heads, what segments hold that are open, closed ones, and the newest table."""

    directory: Path
    kind: str
    heads: list[HeadFile]
    opened: dict[str, SegmentRead]
    closed: list[Path]
    table: TableRead
    later: list[HeadFile]
    unreadable: list[Path]

    @classmethod
    def list(
        cls, directory: Path, kind: str, *, is_audited: bool = True, probe: FileProbe | None = None
    ) -> RecordFiles:
        """What there is. The order counts: what has been closed meanwhile is among the closed, and what has
        been removed from those is in the table. Heads are asked for first and last, see `audit_chains`.
        """
        heads = read_heads(directory, kind)
        opened = read_open_segments(directory, kind)
        closed = closed_segments(directory, kind)
        for path in closed:
            opened.pop(path.name, None)
        table = read_table(directory, kind, is_audited=is_audited, probe=probe)
        later = read_heads(directory, kind)
        fresh = _without_copies(uncovered(closed, table))
        unreadable = unreadable_segments(directory, kind)
        return cls(directory, kind, heads, opened, fresh, table, later, unreadable)

    def are_there(self) -> bool:
        """Whether nothing of it has been removed, or replaced."""
        is_newest = newest_table(self.directory, self.kind) == self.table.path
        return is_newest and all(path.exists() for path in self.closed)

    def audit(self, *, must_succeed: bool) -> ChainAudit:
        """What is wrong with them, the table included. `must_succeed`: see `audit_chains`."""
        covered = self.table.manifest.covered
        found = audit_chains(
            self.heads, self._segments(), self.later, covered=covered, must_succeed=must_succeed
        )
        told = [f"{path} is no file, or may not be read" for path in self.unreadable]
        return found._replace(
            gaps=list(dict.fromkeys([*told, *self.table.gaps, *found.gaps])),
            notes=[*self.table.notes, *found.notes],
            unchained=found.unchained + self.table.manifest.unchained,
        )

    def _segments(self) -> Iterator[SegmentData]:
        for path in self.closed:
            yield SegmentData(str(path), path.read_bytes(), is_closed=True)
        for name, one in self.opened.items():
            yield SegmentData(str(self.directory / name), one.data, is_closed=False)


def _without_copies(paths: list[Path]) -> list[Path]:
    """Files that are the same under several names count once, by the first that tells its writer."""
    sizes = Counter(path.stat().st_size for path in paths)
    kept: dict[str, Path] = {}
    for path in sorted(paths, key=lambda path: not is_chained(path.name)):
        is_alone = sizes[path.stat().st_size] == 1
        kept.setdefault(path.name if is_alone else seal_of_file(path), path)
    return sorted(kept.values())
