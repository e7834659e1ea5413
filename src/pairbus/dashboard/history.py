"""What was: changes of state, and samples of the sums, in a small file that outlives a restart.

1. A change is kept for 90 days, a sample for two; at most so many of each.
2. Rows are appended as lines of JSON. Once half of the file is out of date it is written anew, by rename. A
   line that cannot be read, because the machine stopped in the middle of it, is passed over; the next row
   begins a line of its own.
3. Noting does no I/O. What is not written yet is written by whoever calls `unwritten`, on a thread, since a
   disk that hangs must not hold up the page.
4. The state of an entity is the worst that any running client sees. A change is noted when that differs from
   the last one on record, also across a restart: what happened while nobody looked shows as one change.
5. A change tells since when the state before it was known, and when it was seen last: what nobody saw is not
   to look as if it had been well. Of an entity that is well at the first look nothing is written.
"""

import json
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Any

from pairbus.plumbing.files import follow, make_directory, open_file, publish, read_file
from pairbus.plumbing.json_text import MOMENT, NUMBER, Shape, fits, parse_json

log = logging.getLogger(__name__)
_DAY = 86400.0
CHANGES_KEPT, SAMPLES_KEPT = 90 * _DAY, 2 * _DAY
_MOST_CHANGES = 2_000
_MOST_SAMPLES = 20_000
#: How far apart samples are, in seconds.
SAMPLE_EVERY = 10.0
# What a page draws: more points than this have no room on a screen.
_MOST_POINTS = 240
_PLAIN: Shape = (str, int, float, NoneType)
_SHAPES: dict[str, Shape] = {
    "change": {"at": MOMENT, "pair": str, "path": str, "old": str, "new": str, "*": _PLAIN},
    "sample": {"at": MOMENT, "pair": str, "active?": NUMBER, "dead?": NUMBER, "*": _PLAIN},
}
_LIMITS = {"change": (_MOST_CHANGES, CHANGES_KEPT), "sample": (_MOST_SAMPLES, SAMPLES_KEPT)}


class History:
    """Keeps rows in a file; without a file, in memory."""

    def __init__(self, file: Path | None, *, now: float) -> None:
        """Reads what an earlier dashboard has left."""
        self._file = file
        self._rows: dict[str, deque[dict[str, Any]]] = {
            kind: deque(maxlen=most) for kind, (most, _) in _LIMITS.items()
        }
        self._unwritten: list[dict[str, Any]] = []
        self._lines = 0
        self._is_torn = False
        self._has_failed = False
        # By pair and path: the last state and since when it is known; when somebody told of it last.
        self._last: dict[tuple[str, str], tuple[str, float]] = {}
        self._seen: dict[tuple[str, str], float] = {}
        for row in self._load():
            self._take(row)
        self._forget(now)

    # -- noting

    def note_states(self, pair: str, states: Mapping[str, Mapping[str, Any]], *, now: float) -> bool:
        """Note what has changed since the last look; whether anything has."""
        fresh = []
        for path, seen in states.items():
            at, key = seen["since"] or now, (pair, path)
            before, known = self._last.get(key, ("unknown", None))
            if known is None and seen["state"] == "healthy":
                self._last[key] = "healthy", at
            elif before != seen["state"]:
                fresh.append(
                    {
                        "kind": "change",
                        "at": at,
                        "pair": pair,
                        "path": path,
                        "old": before,
                        "known": known,
                        "seen": self._seen.get(key),
                        "new": seen["state"],
                        "reason": seen["reason"],
                    }
                )
            self._seen[key] = now
        self._append(fresh, now)
        return bool(fresh)

    def note_sample(self, pair: str, sums: Mapping[str, float | None], *, now: float) -> bool:
        """Keep a sample, unless the last one is not old enough; whether it was kept."""
        last = next((row for row in reversed(self._rows["sample"]) if row["pair"] == pair), None)
        if last is not None and 0 <= now - last["at"] < SAMPLE_EVERY:
            return False
        self._append([{"kind": "sample", "at": now, "pair": pair, **sums}], now)
        return True

    # -- telling

    def changes(self, pair: str, *, since: float = float("-inf")) -> list[dict[str, Any]]:
        """A pair's changes, the oldest first: of each path those since a moment, and the one before it."""
        of_pair = [row for row in self._rows["change"] if row["pair"] == pair]
        before = {row["path"]: row for row in of_pair if row["at"] < since}
        return [*before.values(), *(row for row in of_pair if row["at"] >= since)]

    def seen(self, pair: str) -> dict[str, float]:
        """When each path was seen last, of those with changes on record."""
        paths = {row["path"] for row in self._rows["change"] if row["pair"] == pair}
        return {path: self._seen[pair, path] for path in paths if (pair, path) in self._seen}

    def known(self, pair: str, path: str) -> float | None:
        """Since when the state of an entity is known."""
        return self._last.get((pair, path), ("", None))[1]

    def samples(self, pair: str, *, since: float) -> list[dict[str, Any]]:
        """Samples of a pair, the oldest first, as many as can be drawn. Of those that are drawn as one, the
        one with the deepest backlog stays: a peak must not vanish.
        """
        found = [row for row in self._rows["sample"] if row["pair"] == pair and row["at"] >= since]
        step = -(-len(found) // _MOST_POINTS) or 1
        if step == 1:
            return found
        groups = [found[index : index + step] for index in range(0, len(found), step)]
        return [max(group, key=lambda row: row.get("active") or 0) for group in groups]

    # -- the file

    def _load(self) -> Iterable[dict[str, Any]]:
        if self._file is None:
            return
        try:
            text = read_file(self._file).decode(errors="replace")
        except FileNotFoundError:
            return
        except OSError as error:
            log.warning("the history of the dashboard cannot be read: %s", error)
            return
        self._is_torn = not text.endswith("\n") and text != ""
        for line in text.splitlines():
            self._lines += 1
            row = _parse(line)
            if row is not None:
                yield row

    def _take(self, row: dict[str, Any]) -> None:
        self._rows[row["kind"]].append(row)
        if row["kind"] == "change":
            self._last[row["pair"], row["path"]] = row["new"], row["at"]

    def _append(self, rows: list[dict[str, Any]], now: float) -> None:
        if not rows:
            return
        for row in rows:
            self._take(row)
        self._forget(now)
        if self._file is not None:
            self._unwritten += rows

    def unwritten(self) -> Callable[[], None] | None:
        """What writes the rows that are not written yet, None if there are none. It is called on any thread,
        and has ended before this is called again.
        """
        rows, self._unwritten = self._unwritten, []
        if not rows or self._file is None:
            return None
        kept = sum(map(len, self._rows.values()))
        if self._lines + len(rows) > 2 * kept + 100:
            every = sorted((row for some in self._rows.values() for row in some), key=lambda row: row["at"])
            return partial(self._write, self._file, every, anew=True)
        return partial(self._write, self._file, rows, anew=False)

    def _write(self, path: Path, rows: Sequence[dict[str, Any]], *, anew: bool) -> None:
        text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
        try:
            if anew:
                publish(path, text, durable=False)
            else:
                make_directory(path.parent, follows=True)
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
                with os.fdopen(open_file(path, flags, follow(path.parent)), "a", encoding="utf-8") as file:
                    file.write("\n" * self._is_torn + text)
        except OSError as error:
            if not self._has_failed:  # once, not every few seconds
                log.warning("the history of the dashboard cannot be written: %s", error)
            self._has_failed = self._is_torn = True
        else:
            self._has_failed = self._is_torn = False
            self._lines = len(rows) + (0 if anew else self._lines)

    def _forget(self, now: float) -> None:
        for kind, rows in self._rows.items():
            while rows and rows[0]["at"] < now - _LIMITS[kind][1]:
                rows.popleft()


def _parse(line: str) -> dict[str, Any] | None:
    try:
        row = parse_json(line)
    except ValueError:
        return None
    if not (fits(row, {"kind": str}) and row["kind"] in _SHAPES and fits(row, _SHAPES[row["kind"]])):
        return None
    return dict(row)
