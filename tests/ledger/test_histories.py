"""The verdict on any history: clean as it was left, and never clean after anything was done to it.

`PAIRBUS_VERDICT_HISTORIES` plays more of them.
"""

import os
import random
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from pairbus.client.state.records import KIND as REDIRECTS
from pairbus.errors import PairbusError
from pairbus.ledger.chain import read_heads
from pairbus.ledger.generation import done_heads, newest_table, read_table
from pairbus.ledger.receipts import KIND as RECEIPTS

from .histories import Copy, History, judge

KINDS = (REDIRECTS, RECEIPTS)
HISTORIES = int(os.environ.get("PAIRBUS_VERDICT_HISTORIES") or 6)
MUTATIONS = 12
STEPS = 40


@pytest.fixture(autouse=True)
def _quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No machine stops in the midst of these histories."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.mark.timeout(120 + 5 * HISTORIES)
def test_no_false_alarm_and_nothing_missed(tmp_path: Path) -> None:
    tried = 0
    for seed in range(HISTORIES):
        directory = tmp_path / str(seed)
        directory.mkdir()
        history = History(directory, seed)
        history.play(STEPS)
        for _ in range(2):
            verdict = judge(directory, history.waiting, history.dead)
            assert verdict.is_clean, f"seed {seed}: {verdict}"
            history.tidy()
        tried += mutate_some(history, random.Random(f"mutations of {seed}"), tmp_path / "mutated", seed)
        shutil.rmtree(directory)
    assert tried > HISTORIES * MUTATIONS / 2


def mutate_some(history: History, chance: random.Random, scratch: Path, seed: int) -> int:
    mutations = [*deeds_on_files(history.directory, chance), *deeds_on_queues(history, chance)]
    chosen = chance.sample(mutations, min(MUTATIONS, len(mutations)))
    for name, mutate in chosen:
        shutil.copytree(history.directory, scratch)
        waiting, dead = list(history.waiting), list(history.dead)
        mutate(scratch, waiting, dead)
        assert not is_clean(scratch, waiting, dead), f"seed {seed}, {name}"
        shutil.rmtree(scratch)
    return len(chosen)


def is_clean(directory: Path, waiting: list[Copy], dead: list[Copy]) -> bool:
    try:
        return judge(directory, waiting, dead).is_clean
    except PairbusError as error:  # what looks like a newer version is refused
        return "newer version" not in str(error)


Mutation = Callable[[Path, list[Copy], list[Copy]], None]


def deeds_on_files(directory: Path, chance: random.Random) -> Iterator[tuple[str, Mutation]]:
    """Each file once: one of the things that can be done to it."""
    files = counted_files(directory)
    for path in files:
        name = path.relative_to(directory)
        deed = chance.choice(DEEDS)
        others = [one.relative_to(directory) for one in files if one != path and one.suffix == path.suffix]
        if deed == "swap" and not others:
            continue
        names = [name, chance.choice(others)] if deed == "swap" else [name]
        yield f"{deed} {names}", partial(on_file, deed, names, chance.random())


def counted_files(directory: Path) -> list[Path]:
    """All but what is hidden, locks and drafts, and signs of those who wrote nothing: others tell as much. So
    do segments, where an anchor tells of a first table that is still to come.
    """
    idle: set[Path] = set()
    for kind in KINDS:
        heads, table = read_heads(directory, kind), read_table(directory, kind)
        idle |= {one.path for one in heads if one.head is not None and not one.head.commits}
        # A compaction that was killed has left these, of which its table tells.
        idle |= {one.path for one in done_heads(heads, table.manifest.covered)}
    files = {path for path in directory.glob("[!.]*/*") if not path.name.startswith(".")}
    files |= {path for path in directory.glob("[!.]*") if path.is_file()}
    to_come = {directory / f"{kind}-table.json" for kind in KINDS if newest_table(directory, kind) is None}
    return sorted(path for path in files - idle - to_come if path.stat().st_size)


def on_file(
    deed: str,
    names: list[Path],
    seed: float,
    directory: Path,
    waiting: list[Copy],
    dead: list[Copy],
) -> None:
    chance = random.Random(seed)
    paths = [directory / name for name in names]
    contents = [path.read_bytes() for path in paths]
    if deed == "remove":
        paths[0].unlink()
    elif deed == "swap":
        for path, content in zip(paths, reversed(contents), strict=True):
            path.write_bytes(content)
    else:
        paths[0].write_bytes(change(deed, contents[0], chance))


DEEDS = ("remove", "swap", "edit", "insert", "cut", "drop a line", "repeat a line", "append a line")


def change(deed: str, content: bytes, chance: random.Random) -> bytes:
    index = chance.randrange(len(content))
    lines = content.splitlines(keepends=True)
    line = chance.randrange(len(lines))
    changed = {
        "edit": content[:index] + bytes([content[index] ^ chance.randint(1, 255)]) + content[index + 1 :],
        "insert": content[:index] + bytes([chance.choice(b' \n0x"')]) + content[index:],
        "cut": content[:index],
        "drop a line": b"".join([*lines[:line], *lines[line + 1 :]]),
        "repeat a line": b"".join([*lines[: line + 1], *lines[line:]]),
        "append a line": content + lines[0],
    }
    return changed[deed]


def deeds_on_queues(history: History, chance: random.Random) -> Iterator[tuple[str, Mutation]]:
    """Steal what lies in a queue or among the dead letters and has not arrived. Where a copy that nobody was
    told of may stand in for it, nobody can tell which of the two is gone.
    """
    unsure = history.unsure
    for place, copies in enumerate((history.waiting, history.dead)):
        for copy in copies:
            if copy.key not in unsure and copy.origin not in history.moved:
                yield f"steal {copy}", partial(steal, place, copy)


def steal(place: int, copy: Copy, directory: Path, waiting: list[Copy], dead: list[Copy]) -> None:
    (waiting, dead)[place].remove(copy)
