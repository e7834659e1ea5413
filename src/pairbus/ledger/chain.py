"""Chains: what one writer has committed, link by link, so that a row that was removed or edited is missed.

1. A commit is the rows of one write, and behind them its *link*: a line of JSON with the writer, the number
   of the commit, how many rows it has, the number and hash of the commit before, and the hash of all that and
   the rows. It says all that is to be known of it, so a commit may stand in a file with others, whose name
   tells the writer and the first number, or be an object by itself.
2. The *head* is a sealed file beside the segments: how many commits the writer has made, and the last hash.
   It is an anchor, written when the writer begins and before a segment is closed. So even who has written
   nothing has left that on record. What is gone up to the head is missed, whole files included.
3. In the open segment there may be more commits; they are linked to each other, but if the last ones are gone
   nobody can tell. A writer that ends says so in its head. One whose head is open runs, or has died. Whoever
   adopts its last segment leaves another anchor for what is in it: no closed segment goes beyond an anchor.
4. Rows without a link are no commit: nobody was told that they are kept. Adoption cuts them off. Only
   version 0.1.0 wrote such, in files whose names have no writer.
5. A commit that failed uses its number up: it may be on the disk or not. The next one follows the last that
   is sure. Its rows are lost if the writer cannot try them again (redirect records), and come again with
   another number if it can (receipts).
6. What a table has taken over is *covered*: the chain goes on from there, and the table answers for it.
7. Writers that end without a row share one sign, so that such signs do not pile up.
8. A commit counts once, however often it stands there: files are copied, under any name. What it is it says
   by itself, not by the name of its file; but a file that has the name of another one was put in its place.
"""

from __future__ import annotations

import re
import socket
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from json.encoder import encode_basestring_ascii as _quote
from pathlib import Path
from typing import Any, NamedTuple

from pairbus.plumbing.files import entries_in, publish, read_file
from pairbus.plumbing.json_text import parse_json

from .columns import Moment, columns_of, take_values
from .seal import VERSION, check_version, open_sealed, seal, seal_of
from .shipped import shipped_to

_FIRST = "0" * 64
#: How the line of a link begins.
LINK_MARK = '{"chain":'
_MARK = LINK_MARK.encode()
_SUFFIX = ".head"
#: Whose sign it is that rule 7 speaks of.
NOBODY = "idle"
# In the name of a segment: when it was begun, by whom, and the number of its first commit.
_NAME = re.compile(r"^\.?[0-9A-Za-z]+-\d{13,}-(.+)-(\d{8,})\.jsonl")
# So many open chains are named.
_NAMED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainHead:
    """What a writer says of its chain, or an adopter of what it found. `lost` rows could not be written. Of
    one that `is_shipped` segments come from another disk, before their head does.
    """

    writer: str
    since: Moment
    at: Moment
    commits: int = 0
    hash: str = _FIRST
    rows: int = 0
    lost: int = 0
    is_open: bool = True
    is_adopted: bool = False
    is_shipped: bool = False

    def name(self, kind: str) -> str:
        """The file that it is in."""
        number = f"-{self.commits:08d}" if self.is_adopted else ""
        return f"{kind}-{self.writer}{number}{_SUFFIX}"

    def object_name(self, kind: str) -> str:
        """What it is called in an object store, where nothing is replaced: the newest one counts."""
        return f"{self.name(kind).removesuffix(_SUFFIX)}.{int(self.at * 1000):013d}{_SUFFIX}"

    def publish(self, directory: Path, kind: str) -> None:
        """Write it."""
        publish(directory / self.name(kind), self.to_bytes())

    def to_bytes(self) -> bytes:
        """The content of its file."""
        return seal(asdict(self)).data

    def as_nobody(self) -> ChainHead:
        """Rule 7."""
        return replace(self, writer=NOBODY, since=0.0, at=0.0)

    @property
    def is_idle(self) -> bool:
        """Whether it says that nothing was ever to be written."""
        return not (self.is_open or self.commits or self.lost or self.is_adopted)


class HeadFile(NamedTuple):
    """The file of a head; `head` is None if it cannot be read."""

    path: Path
    head: ChainHead | None


class ChainWriter:
    """The end of a chain that grows."""

    def __init__(self, writer: str, *, since: float) -> None:
        self.writer = writer
        self._told = _tell_writer(writer)
        self._since = since
        #: The number of the last commit that is sure.
        self.commits = 0
        self._hash = _FIRST
        self._rows = 0
        self._tried = 0
        self._growth = (0, _FIRST, 0)

    @classmethod
    def begin(cls, since: float) -> ChainWriter:
        """Begin a new chain."""
        return cls(f"{socket.gethostname()}-{uuid.uuid4().hex}", since=since)

    @property
    def segment_name(self) -> str:
        """What the name of a segment says of its chain, if it begins now."""
        return f"{self.writer}-{self._tried + 1:08d}"

    def link(self, data: bytes, rows: int) -> bytes:
        """The line that follows these rows. The chain has grown when `keep` is called."""
        self._tried += 1
        told = _tell_link(self._told, self._tried, self.commits, rows, self._hash)
        own = seal_of(told, data)
        self._growth = (self._tried, own, self._rows + rows)
        return _write_link(told, own)

    def keep(self) -> None:
        """The last link is on the disk."""
        self.commits, self._hash, self._rows = self._growth

    def head(self, *, at: float, is_open: bool, lost: int) -> ChainHead:
        """What is to be said of it now."""
        return ChainHead(
            writer=self.writer,
            since=self._since,
            at=at,
            commits=self.commits,
            hash=self._hash,
            rows=self._rows,
            lost=lost,
            is_open=is_open,
        )

    @property
    def is_idle(self) -> bool:
        """Whether nothing was ever to be written."""
        return not self._tried

    def anchor(self, directory: Path, kind: str, *, at: float, is_open: bool, lost: int) -> None:
        """Write the head."""
        head = self.head(at=at, is_open=is_open, lost=lost)
        # Where it was shipped to, its head may be open: whoever ships has to tell its end there first.
        if is_open or lost or not self.is_idle or shipped_to(directory) is not None:
            head.publish(directory, kind)
        else:
            head.as_nobody().publish(directory, kind)
            (directory / head.name(kind)).unlink(missing_ok=True)


def _tell_writer(writer: str) -> str:
    return f'{{"v":{VERSION},"writer":{_quote(writer)},"commit":'


def _tell_link(writer: str, number: int, after: int, rows: int, before: str) -> bytes:
    # By hand, since each commit has one: a third of the general encoder's time. `writer` is told already.
    return f'{writer}{number},"after":{after},"rows":{rows},"prev":{_quote(before)}}}'.encode("ascii")


def _write_link(told: bytes, own: str) -> bytes:
    return b'%s%s,"hash":"%s"}}\n' % (_MARK, told[:-1], own.encode("ascii", "replace"))


def is_link(line: bytes) -> bool:
    """Whether a line is a link, and no row."""
    return line.startswith(_MARK)


def without_links(data: bytes) -> bytes:
    """The rows of a segment alone."""
    whole, end, rows = memoryview(data), 0, []
    for first, after in _find_links(data):
        rows.append(whole[end:first])
        end = after
    return b"".join((*rows, whole[end:]))


def _find_links(data: bytes) -> Iterator[tuple[int, int]]:
    """Where each line that is a link begins, and where the next one does. Not by an expression, which would
    look at every byte of rows that are hundreds of times as long.
    """
    first = 0 if data.startswith(_MARK) else data.find(b"\n" + _MARK) + 1 or -1
    while first >= 0 and (after := data.find(b"\n", first) + 1):
        yield first, after
        first = data.find(b"\n" + _MARK, after - 1) + 1 or -1


def is_chained(name: str) -> bool:
    """Whether the name of a segment is that of one with links."""
    return _NAME.match(name) is not None


def is_covered(path: Path, covered: Mapping[str, ChainCover]) -> bool:
    """Whether a table has taken over all that is in a segment."""
    if not is_covered_by_name(path.name, covered):
        return False
    last = max((one.number for one in read_commits(path.name, path.read_bytes())), default=0)
    return last <= covered[writer_of(path.name) or ""].commits


def is_covered_by_name(name: str, covered: Mapping[str, ChainCover]) -> bool:
    """The same of an object, which a table takes over as a whole or not at all."""
    found = _NAME.match(name)
    cover = covered.get(found[1]) if found else None
    return found is not None and cover is not None and int(found[2]) <= cover.commits


def is_told_by(name: str, head: ChainHead) -> bool:
    """Whether a head tells of something that is in a segment of this name."""
    found = _NAME.match(name)
    return found is not None and found[1] == head.writer and int(found[2]) <= head.commits


def is_awaited(name: str, closed: Iterable[str], heads: Iterable[ChainHead]) -> bool:
    """Whether an open segment has to be closed first: it is just being closed, or could not be adopted. One
    that is followed by a closed one in its chain would seem to be in a table with that; and what a head tells
    of would be missed.
    """
    found, later = _NAME.match(name), map(_NAME.match, closed)
    return any(is_told_by(name, head) for head in heads) or any(
        found and one and one[1] == found[1] and int(one[2]) > int(found[2]) for one in later
    )


def writer_of(name: str) -> str | None:
    """The writer of a segment, by its name; None if it is not chained."""
    found = _NAME.match(name)
    return found[1] if found else None


def end_of_commits(data: bytes) -> int:
    """Where the last whole commit of a segment ends."""
    return max((after for _, after in _find_links(data)), default=0)


def anchor_adopted(directory: Path, kind: str, name: str, data: bytes) -> None:
    """Rule 3: what an adopter has found in a segment of this name, unless its writer has anchored it."""
    now = time.time()
    heads = [head for _, head in read_heads(directory, kind) if head is not None]
    for found in [found for found in read_commits(name, data) if found.is_sound][-1:]:
        if any(head.writer == found.writer and head.commits >= found.number for head in heads):
            continue
        head = ChainHead(writer=found.writer, since=now, at=now, commits=found.number, hash=found.own)
        replace(head, is_adopted=True).publish(directory, kind)


#: What tells a commit from all others: its writer, number and hash.
CommitKey = tuple[str, int, str]


class ChainCommit(NamedTuple):
    """A commit that was found, or, with number 0, something else in its place."""

    number: int
    writer: str
    after: int
    before: str
    own: str
    place: str
    complaint: str = ""

    @property
    def key(self) -> CommitKey:
        """What identifies it; its place, if it is not a commit."""
        return (self.writer, self.number, self.own) if self.number else (self.place, 0, self.complaint)

    @property
    def is_sound(self) -> bool:
        """Whether it is as it was written."""
        return not self.complaint


def read_commits(place: str, data: bytes) -> Iterator[ChainCommit]:
    """The commits of a segment with links."""
    return (commit for commit, _ in split_commits(place, data))


def is_unchained(key: CommitKey) -> bool:
    """Whether it stands for a whole segment without links."""
    return key[:2] == ("", 0)


def split_commits(place: str, data: bytes) -> Iterator[tuple[ChainCommit, memoryview]]:
    """The same, each with its rows."""
    name = _NAME.match(Path(place).name)
    whole, end = memoryview(data), 0  # rows are all that there is of a segment, and not copied
    for first, after in _find_links(data):
        rows = whole[end:first]
        found = _read_commit(data[first:after], rows, place)
        if name and found.is_sound and (found.writer != name[1] or found.number < int(name[2])):
            misplaced = f"commit {found.number} of {found.writer} does not belong there,"
            found = found._replace(complaint=misplaced)
        yield found, rows
        end = after
    if end < len(data):
        loose = data.count(b"\n", end) + (not data.endswith(b"\n"))
        yield ChainCommit(0, "", 0, "", "", place, f"{loose:,} lines without a link are"), whole[end:]


class _LinkTold(NamedTuple):
    """What a link says, besides its version, in the order in which it is read."""

    writer: str
    commit: int
    after: int
    rows: int
    prev: str
    hash: str


def _read_commit(line: bytes, rows: memoryview, place: str) -> ChainCommit:
    try:
        link: dict[str, Any] = parse_json(line)["chain"]
        check_version(link["v"], place)
        told_link = take_values(_LinkTold, {name: link[name] for name in columns_of(_LinkTold)})
        writer, number, after, count, before, own = told_link.values()
    except (ValueError, TypeError, KeyError):
        return ChainCommit(0, "", 0, "", "", place, "a link cannot be read")
    if not writer.isprintable() or number < 1:
        return ChainCommit(0, "", 0, "", "", place, "a link cannot be read")
    told = _tell_link(_tell_writer(writer), number, after, count, before)
    complaint = ""
    if line != _write_link(told, own) or seal_of(told, rows) != own:
        left = bytes(rows).count(b"\n")
        complaint = f"commit {number} of {writer} was edited, of whose {count:,} rows {left:,} are left,"
    return ChainCommit(number, writer, after, before, own, place, complaint)


def read_heads(directory: Path, kind: str) -> list[HeadFile]:
    """The heads in a directory. Read them before the segments: those may only be ahead of them."""
    heads: list[HeadFile] = []
    for path in entries_in(directory, f"{kind}-*{_SUFFIX}"):
        try:
            head = parse_head(path.name, read_file(path))
        except OSError as error:
            # A writer that has just ended leaves the sign of rule 7, and a link to nothing is no head.
            if not isinstance(error, FileNotFoundError) or path.is_symlink():
                heads.append(HeadFile(path, None))
            continue
        is_in_place = head is not None and path.name == head.name(kind)
        heads.append(HeadFile(path, head if is_in_place else None))
    return heads


def is_of_head(name: str, head: str) -> bool:
    """Whether a file or an object of this name is the head of that name, told whenever."""
    return is_head(name) and name.startswith(f"{head.removesuffix(_SUFFIX)}.")


def is_head(name: str) -> bool:
    """Whether a name is that of a head."""
    return name.endswith(_SUFFIX)


def parse_head(name: str, data: bytes) -> ChainHead | None:
    """Parse a head; None if it was edited, or is not one."""
    try:
        found = open_sealed(data, name)
        del found["seal"]
        head = ChainHead(**take_values(ChainHead, found))
    except (ValueError, TypeError, KeyError):
        return None
    return head if head.commits >= 0 and head.writer.isprintable() else None


def moment(at: float) -> str:
    """A Unix time as text."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


class ChainCover(NamedTuple):
    """How much of a chain a table has taken over, and whether its writer had ended."""

    commits: int
    hash: str
    is_open: bool


class SegmentData(NamedTuple):
    """All that is in a segment."""

    place: str
    data: bytes
    is_closed: bool


class ChainAudit(NamedTuple):
    """What is wrong, what else to know, how far chains go, rows without one, and what stands where."""

    gaps: list[str]
    notes: list[str]
    ends: dict[str, ChainCover]
    unchained: int
    damaged: set[str]
    contents: dict[str, list[CommitKey]]


class _SegmentsRead:
    """What is in segments, commits by writer and number; `closed` is the last one in a closed segment."""

    def __init__(self, segments: Iterable[SegmentData]) -> None:
        self.gaps: list[str] = []
        self.damaged: set[str] = set()
        self.chains: dict[str, dict[int, ChainCommit]] = {}
        self.closed: dict[str, int] = {}
        self.unchained = 0
        self.contents: dict[str, list[CommitKey]] = {}
        for segment in segments:
            self.contents[segment.place] = self._read(segment)

    def _read(self, segment: SegmentData) -> list[CommitKey]:
        if not is_chained(Path(segment.place).name) and next(_find_links(segment.data), None) is None:
            self.unchained += segment.data.count(b"\n")
            return [("", 0, seal_of(segment.data))]  # see `is_unchained`
        keys = []
        for commit in read_commits(segment.place, segment.data):
            keys.append(commit.key)
            if not commit.is_sound:
                self.gaps.append(f"{commit.complaint} in {commit.place}")
                self.damaged.add(commit.place)
            if commit.number:
                self.chains.setdefault(commit.writer, {})[commit.number] = commit
                if segment.is_closed:
                    self.closed[commit.writer] = max(commit.number, self.closed.get(commit.writer, 0))
        return keys


def audit_chains(
    heads: Iterable[HeadFile],
    segments: Iterable[SegmentData],
    later: Iterable[HeadFile],
    *,
    covered: Mapping[str, ChainCover],
    must_succeed: bool,
) -> ChainAudit:
    """Compare the segments of a directory with the heads that were there before them, which they cannot be
    behind, and later, which closed ones cannot be ahead of. `must_succeed`: what failed was not tried again.
    """
    read = _SegmentsRead(segments)
    gaps, closed = read.gaps, read.closed
    anchors: dict[str, list[ChainHead]] = {}
    for path, head in heads:
        if head is None:
            gaps.append(f"{path} was edited, or cannot be read")
        elif head.writer != NOBODY:
            anchors.setdefault(head.writer, []).append(head)
    anchored: dict[str, int] = {}
    begun: set[str] = set()
    shipped: set[str] = set()
    for _, head in later:
        if head is not None:
            anchored[head.writer] = max(head.commits, anchored.get(head.writer, 0))
            if not head.is_adopted:
                begun.add(head.writer)
            if head.is_shipped:
                shipped.add(head.writer)
    notes: list[str] = []
    ends: dict[str, ChainCover] = {}
    for writer in sorted({*read.chains, *anchors, *covered}):
        chain = _Chain(writer, read.chains.get(writer, {}), anchors.get(writer, []), covered.get(writer))
        gaps.extend(chain.judge(must_succeed=must_succeed, has_begun=writer in begun))
        if closed.get(writer, 0) > max(anchored.get(writer, 0), chain.covers) and writer not in shipped:
            gaps.append(f"an anchor of {writer} is gone, which told of its commit {closed[writer]}")
        ends[writer] = chain.end()
        if chain.own is not None and chain.own.is_open:
            notes.append(chain.describe_open(chain.own))
    if len(notes) > _NAMED:
        notes[_NAMED:] = [f"and {len(notes) - _NAMED:,} more chains are open"]
    return ChainAudit(gaps, notes, ends, read.unchained, read.damaged, read.contents)


class _Chain:
    """One chain: what was found of it, and what is said of it."""

    def __init__(
        self,
        writer: str,
        commits: Mapping[int, ChainCommit],
        anchors: list[ChainHead],
        cover: ChainCover | None,
    ) -> None:
        self.own = next((head for head in anchors if not head.is_adopted), None)
        self._writer = writer
        self._commits = commits
        self._anchors = anchors
        self._is_expected = cover is None or cover.is_open
        self._cover = cover or ChainCover(0, _FIRST, is_open=True)

    @property
    def covers(self) -> int:
        """How many of its commits are in a table."""
        return self._cover.commits

    def judge(self, *, must_succeed: bool, has_begun: bool) -> Iterator[str]:
        """What is missing or does not fit. `has_begun`: its head is there by now."""
        writer, own = self._writer, self.own
        has_more = any(number > self._cover.commits for number in self._commits)
        if own is None and not has_begun and (self._is_expected or has_more):
            yield f"the head of {writer} is gone: nobody can tell whether all of its rows are there"
        if own is not None and own.lost:
            yield f"{own.lost:,} rows of {writer} could not be written"
        for head in self._anchors:
            yield from self._find(head.commits, head.hash, "its anchor")
        for number, commit in sorted(self._commits.items()):
            if number <= self._cover.commits:
                continue
            yield from self._find(commit.after, commit.before, f"commit {number} in {commit.place}")
            if must_succeed and number > commit.after + 1 and not (own is not None and own.lost):
                between = sum(commit.after < one < number for one in self._commits)
                if between < number - commit.after - 1:
                    yield f"a commit of {writer} before {number} could not be written"

    def _find(self, number: int, own: str, follower: str) -> Iterator[str]:
        """The commit before `follower`."""
        found = self._commits.get(number)
        known = found.own if found is not None else None
        if number == self._cover.commits:
            known = self._cover.hash
        if found is None and number > self._cover.commits:
            last = max((one for one in self._commits if one < number), default=self._cover.commits)
            place = f"behind {self._commits[last].place}" if last in self._commits else "at its beginning"
            told = f"commits {last + 1} to {number} of {self._writer} are gone"
            yield f"{told}, {place}, before {follower}"
        elif known is not None and known != own:
            yield f"commit {number} of {self._writer} is not the one that {follower} tells of"

    def end(self) -> ChainCover:
        """How far it goes."""
        last = max(self._commits, default=0)
        if last <= self._cover.commits:
            number, own = self._cover.commits, self._cover.hash
        else:
            number, own = last, self._commits[last].own
        is_open = self.own.is_open if self.own is not None else self._cover.is_open
        return ChainCover(number, own, is_open)

    def describe_open(self, own: ChainHead) -> str:
        """Rule 3."""
        anchor = max(head.commits for head in self._anchors)
        after = sum(number > max(anchor, self._cover.commits) for number in self._commits)
        return (
            f"the chain of {self._writer} is open since {moment(own.at)}: it runs, or has died; "
            f"{after:,} commits follow its last anchor"
        )
