"""Chains: what one writer has committed, link by link, so that a row that was removed or edited is missed.

1. A commit is the rows of one write, and behind them its *link*: a line of JSON with the writer, the number
   of the commit, how many rows it has, the hash of the link before, and its own over that, writer, number and
   rows. It says all that is to be known of it, so a commit may stand in a file with others or by itself.
2. The *head* is a file beside the segments: how many commits the writer has made, and the last hash. It is an
   anchor, written when the writer begins and whenever a segment is closed. So even who has written nothing
   has left that on record. What is gone up to the head is missed, whole files included.
3. After the head there may be more commits; they are linked to each other, but if the last ones are gone
   nobody can tell. A writer that ends says so in its head. One whose head is open runs, or has died.
4. A commit of which nobody knows whether it is on the disk keeps its number: if it is not there, it is
   missed.
5. Rows without a link were written by version 0.1.0, or by somebody who died before the link was whole.
"""

from __future__ import annotations

import hashlib
import json
import re
import socket
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from pairbus.errors import PairbusError
from pairbus.plumbing.files import publish

VERSION = 1
_FIRST = "0" * 64
#: How the line of a link begins.
LINK_MARK = '{"chain":'
_LINK = re.compile(rb'^\{"chain":[^\n]*\n', re.MULTILINE)
_SUFFIX = ".head"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainHead:
    """What a writer says of its chain. `lost` rows could not be written at all."""

    version: int = VERSION
    writer: str
    since: float
    commits: int = 0
    hash: str = _FIRST
    lost: int = 0
    is_open: bool = True


class ChainWriter:
    """The end of a chain that grows."""

    def __init__(self, writer: str, *, since: float) -> None:
        self.head = ChainHead(writer=writer, since=since)

    @classmethod
    def begin(cls, since: float) -> ChainWriter:
        """A chain of its own for whoever asks."""
        return cls(f"{socket.gethostname()}-{uuid.uuid4().hex}", since=since)

    def link(self, data: bytes, rows: int) -> bytes:
        """The line that follows these rows; the chain has grown with it, see rule 4."""
        head = self.head
        number = head.commits + 1
        own = _hash(head.hash, head.writer, number, data)
        self.head = replace(head, commits=number, hash=own)
        link = {"v": VERSION, "writer": head.writer, "commit": number, "rows": rows, "prev": head.hash}
        return json.dumps({"chain": {**link, "hash": own}}, separators=(",", ":")).encode() + b"\n"

    def anchor(self, directory: Path, kind: str, *, is_open: bool, lost: int) -> None:
        """Write the head."""
        self.head = replace(self.head, is_open=is_open, lost=lost)
        publish(directory / f"{kind}-{self.head.writer}{_SUFFIX}", json.dumps(asdict(self.head)))


def _hash(before: str, writer: str, number: int, data: bytes) -> str:
    found = hashlib.sha256(f"{before} {writer} {number}\n".encode())
    found.update(data)
    return found.hexdigest()


def is_link(line: bytes) -> bool:
    """Whether a line is a link, and no row."""
    return line.startswith(LINK_MARK.encode())


class ChainAudit(NamedTuple):
    """What is wrong with chains, and what is worth knowing of them."""

    gaps: list[str]
    notes: list[str]


class _Commit(NamedTuple):
    number: int
    before: str
    own: str
    place: str


def read_heads(directory: Path, kind: str) -> list[ChainHead]:
    """The heads in a directory. Read them before the segments: those may only be ahead of them."""
    heads = []
    for path in sorted(directory.glob(f"{kind}-*{_SUFFIX}")):
        try:
            found = json.loads(path.read_bytes())
            _check_version(found["version"], path.name)
            heads.append(ChainHead(**found))
        except (ValueError, TypeError, KeyError):
            writer = path.name.removeprefix(f"{kind}-").removesuffix(_SUFFIX)
            heads.append(ChainHead(writer=writer, since=0.0, hash="", commits=-1))
    return heads


def audit_chains(heads: Iterable[ChainHead], segments: Mapping[str, bytes]) -> ChainAudit:
    """Compare what heads say with the segments of their directory, which are given by name."""
    found = ChainAudit([], [])
    chains: dict[str, list[_Commit]] = {}
    plain = 0
    for name, data in segments.items():
        end = 0
        for match in _LINK.finditer(data):
            writer, commit = _read_link(match.group(), data[end : match.start()], name, found.gaps)
            chains.setdefault(writer, []).append(commit)
            end = match.end()
        plain += data.count(b"\n", end)
    if plain:
        found.notes.append(f"{plain:,} rows have no link: of version 0.1.0, or of somebody who died")
    by_writer = {head.writer: head for head in heads}
    for writer in sorted({*chains, *by_writer} - {""}):
        commits = sorted(chains.get(writer, []))
        found.gaps.extend(_judge_chain(writer, commits, by_writer.get(writer)))
        head = by_writer.get(writer)
        if head is not None and head.is_open and head.commits >= 0:
            after = max(0, (commits[-1].number if commits else 0) - head.commits)
            found.notes.append(
                f"the chain of {writer} is open since {head.since:.0f}: it runs, or has died; "
                f"{after:,} commits follow its last anchor"
            )
    return found


def _read_link(line: bytes, rows: bytes, place: str, gaps: list[str]) -> tuple[str, _Commit]:
    try:
        link: dict[str, Any] = json.loads(line)["chain"]
        _check_version(link["v"], place)
        writer, number = str(link["writer"]), int(link["commit"])
        commit = _Commit(number, str(link["prev"]), str(link["hash"]), place)
        count = int(link["rows"])
    except (ValueError, TypeError, KeyError):
        gaps.append(f"a link cannot be read in {place}")
        return "", _Commit(0, "", "", place)
    if _hash(commit.before, writer, number, rows) != commit.own:
        left = rows.count(b"\n")
        gaps.append(
            f"commit {number} of {writer} was edited, in {place}: {left:,} of {count:,} rows are left"
        )
    return writer, commit


def _judge_chain(writer: str, commits: list[_Commit], head: ChainHead | None) -> Iterator[str]:
    if head is None:
        yield f"the head of the chain of {writer} is gone: nobody can tell whether all of its rows are there"
    elif head.commits < 0:
        yield f"the head of the chain of {writer} cannot be read"
        head = None
    elif head.lost:
        yield f"{head.lost:,} rows of {writer} could not be written"
    number, last, place = 0, _FIRST, "its beginning"
    for commit in commits:
        if commit.number > number + 1:
            yield f"commits {number + 1} to {commit.number - 1} of {writer} are gone, behind {place}"
        elif commit.before != last:
            yield f"commit {commit.number} of {writer} does not follow the one before, in {commit.place}"
        number, last, place = commit.number, commit.own, commit.place
        if head is not None and number == head.commits and last != head.hash:
            yield f"commit {number} of {writer} is not the one that its head tells of, in {place}"
    if head is not None and number < head.commits:
        yield f"commits {number + 1} to {head.commits} of {writer} are gone, behind {place}"


def _check_version(version: object, place: str) -> None:
    if version != VERSION:
        raise PairbusError(f"{place} was written by a newer version of pairbus ({version!r}); use that one")
