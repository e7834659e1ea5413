"""The verdict on any history of a fleet: clean when all is told, never a loss that is none, and never clean
after anything was done to the records or a message stolen. In a store and in a directory that hosts share.

`PAIRBUS_VERDICT_HISTORIES` plays more of them.
"""

import os
import random
import secrets
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from pairbus.client.state import shipping
from pairbus.errors import PairbusError
from pairbus.ledger import plain_compaction, store_files
from pairbus.stores import object_store

from .fleet_histories import START, FaultyStore, FleetHistory, FleetVerdict, judge_fleet, nothing, read_tree
from .histories import Copy, killed_after
from .test_histories import HISTORIES, change

# These take longer than those of one directory.
FLEETS = max(2, HISTORIES // 3)
MUTATIONS = 8
STEPS = 60
PLACES = pytest.mark.parametrize("in_store", [True, False], ids=["store", "directory"])
Begin = Callable[..., FleetHistory]
pytestmark = pytest.mark.timeout(120 + 5 * HISTORIES)


@pytest.fixture(autouse=True)
def _world(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(object_store, "ObjectStore", FaultyStore)
    monkeypatch.setattr(plain_compaction, "WORTHWHILE", 1)
    monkeypatch.setattr(store_files, "_PAUSE", 0.0)
    monkeypatch.setattr(shipping, "_TURN", 0.0)
    # Names and times of the same history are the same.
    names = random.Random("names")
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=names.getrandbits(128)))
    monkeypatch.setattr(secrets, "token_hex", lambda size: names.randbytes(size).hex())
    monkeypatch.setattr(time, "time", lambda: START)
    yield
    FaultyStore.fault = FaultyStore.beside = staticmethod(nothing)
    FaultyStore.roots.clear()


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Begin:
    def make(seed: int, *, in_store: bool) -> FleetHistory:
        history = FleetHistory(tmp_path / str(seed), seed, in_store=in_store)
        monkeypatch.setattr(shipping, "lives_elsewhere", history.lives_elsewhere)
        return history

    return make


def told_by(history: FleetHistory, waiting: list[Copy], dead: list[Copy]) -> FleetVerdict:
    return judge_fleet(history.place, lambda: (waiting, dead), now=history.clock.now())


@PLACES
def test_when_all_have_shipped_nothing_is_missing_and_nothing_goes_unnoticed(
    tmp_path: Path, begin: Begin, in_store: bool
) -> None:
    tried = 0
    for seed in range(FLEETS):
        history = begin(seed, in_store=in_store)
        history.play(STEPS)
        history.settle()
        history.keep_house()  # a manifest may have been put, and no anchor yet
        whole = told_by(history, history.waiting, history.dead)
        assert whole.is_clean, f"seed {seed}: {whole}"
        there = read_tree(history.shared)
        for name in filter(is_record, there):
            write_tree(history.shared, {one: data for one, data in there.items() if one != name})
            told = try_judge(history, history.waiting, history.dead)
            assert told is None or told.gaps or told == whole, f"seed {seed}, without {name}: {told} {whole}"
        write_tree(history.shared, there)
        chance = random.Random(f"mutations of {seed}")
        for _ in range(MUTATIONS):
            tried += mutate(history, whole, chance, seed)
        shutil.rmtree(tmp_path / str(seed))
    assert tried > FLEETS * MUTATIONS / 2


@PLACES
def test_who_looks_while_others_work_calls_nothing_lost(tmp_path: Path, begin: Begin, in_store: bool) -> None:
    for seed in range(FLEETS):
        history = begin(seed, in_store=in_store)
        history.play(STEPS)
        chance = random.Random(f"looks of {seed}")
        is_whole = True

        def meanwhile(history: FleetHistory = history, chance: random.Random = chance) -> None:
            nonlocal is_whole
            if chance.random() < 0.1:
                FaultyStore.beside = staticmethod(nothing)
                history.step()
                FaultyStore.beside = staticmethod(meanwhile)
            is_whole &= not any(host.keeps_receipts for host in history.hosts)

        def look(history: FleetHistory = history) -> tuple[list[Copy], list[Copy]]:
            meanwhile(history)
            waiting = list(history.waiting)
            meanwhile(history)
            return waiting, list(history.dead)

        FaultyStore.beside = staticmethod(meanwhile)
        try:
            told = judge_fleet(history.place, look, now=history.clock.now())
        finally:
            FaultyStore.beside = staticmethod(nothing)
        gaps = [gap for gap in told.gaps if not gap.startswith("host ")]
        assert not gaps, f"seed {seed}: {told}"
        assert not (told.lost or told.unclear) or told.is_behind or not is_whole, f"seed {seed}: {told}"
        shutil.rmtree(tmp_path / str(seed))


def mutate(history: FleetHistory, whole: FleetVerdict, chance: random.Random, seed: int) -> bool:
    """Do something to a file; whether it made a difference."""
    before = read_tree(history.shared)
    after = dict(before)
    deed = chance.choice(("remove", "rename", "copy", "swap", "older copy", "older copy", *CHANGES))
    name = do(deed, after, history, chance)
    if after == before:
        return False
    write_tree(history.shared, after)
    told = try_judge(history, history.waiting, history.dead)
    assert told is None or told.gaps or told == whole, f"seed {seed}, {deed} {name}: {told} {whole}"
    waiting, dead = list(history.waiting), list(history.dead)
    known = [copy for copy in (*waiting, *dead) if copy.key not in history.unsure]
    left = [copy for copy in known if copy.origin not in history.moved]
    stolen = chance.choice(left) if left else None
    if stolen is not None:
        (waiting if stolen in waiting else dead).remove(stolen)
    for is_later in (False, True):
        if is_later:
            try_keeping(history, chance)
            kept = try_judge(history, history.waiting, history.dead)
            # Who is silent may turn out to have ended.
            was_wrong = told is not None and any(not gap.startswith("host ") for gap in told.gaps)
            assert kept is None or kept.gaps or not (was_wrong or kept.lost), (
                f"seed {seed}, {deed} {name}, then kept: {told} {kept}"
            )
        stealth = try_judge(history, waiting, dead)
        assert stolen is None or stealth is None or not stealth.is_clean, (
            f"seed {seed}, {deed} {name}, {stolen} stolen, {is_later=}: {stealth}"
        )
    write_tree(history.shared, before)
    return True


def try_keeping(history: FleetHistory, chance: random.Random) -> None:
    """By some who are killed, and one who is not. What is damaged may be refused, which changes nothing."""
    for calls in (chance.randrange(14), chance.randrange(14), sys.maxsize):
        with killed_after(calls), suppress(PairbusError, pa.ArrowInvalid):
            history.keep_house()


CHANGES = ("edit", "insert", "cut", "drop a line", "repeat a line", "append a line")


def do(deed: str, tree: dict[str, bytes], history: FleetHistory, chance: random.Random) -> str:
    names = [name for name in tree if is_record(name) and tree[name]]
    name, other = chance.choice(names), chance.choice(names)
    if deed == "remove":
        del tree[name]
    elif deed == "rename":
        tree[chance.choice((other, name.replace("0", "1", 1)))] = tree.pop(name)
    elif deed == "copy":
        tree[name.replace("0", "1", 1)] = tree[name]
    elif deed == "swap":
        tree[name], tree[other] = tree[other], tree[name]
    elif deed == "older copy":
        older = [(one, told) for past in history.snapshots for one, told in past.items() if is_record(one)]
        if older:
            name, tree[name] = chance.choice(older)
    else:
        tree[name] = change(deed, tree[name], chance)
    return name


def is_record(name: str) -> bool:
    """Not a lock, a draft or the ledger."""
    return not any(part.startswith(".") for part in Path(name).parts) and not name.startswith("operations")


def write_tree(directory: Path, tree: dict[str, bytes]) -> None:
    shutil.rmtree(directory)
    directory.mkdir()
    for name, content in tree.items():
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)


def try_judge(history: FleetHistory, waiting: list[Copy], dead: list[Copy]) -> FleetVerdict | None:
    """None if nothing can be told: `verify` ends with an error."""
    try:
        return told_by(history, waiting, dead)
    except (PairbusError, pa.ArrowInvalid):  # by a newer version; a table without its manifest
        return None
