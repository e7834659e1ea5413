"""Whatever happens to a byte of the spool's files, no record that is whole is deleted or hidden."""

import os
import random
import shutil
from collections.abc import Iterator
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import pytest
from azure.servicebus import ServiceBusMessage
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.client.sending.message import message_id_of
from pairbus.client.state.packing import pack, unpack
from pairbus.client.state.spool_records import BLANK, SpoolCursor, SpoolRecord, framed, pieces_left, pieces_of
from pairbus.client.state.spool_store import LineKey, SpoolStore, adopt_stores
from pairbus.client.state.spool_survey import list_unreadable, list_waiting
from tests.examples import examples

ORDERS, BILLS = LineKey.of("orders"), LineKey.of("bills")


def record(path: str, *names: str, body: bytes = b"body") -> SpoolRecord:
    messages = [ServiceBusMessage(body, message_id=name) for name in names]
    return SpoolRecord(path, len(messages), pack(messages, scheduled_for=None, stays=False))


# Bodies that look like records themselves.
TRAPS = [b"", b"\xa1\x08messages", b"\x00" * 40, b"\xd1\x00\x00\x00\x00\x00\x00\x00\x04\xa1\x08messages"]
BODIES = st.one_of(st.binary(max_size=300), st.sampled_from(TRAPS))
PATHS = st.sampled_from(["orders", "o", "shop/größe", "p" * 260])
PARTS = st.lists(st.tuples(PATHS, BODIES), min_size=1, max_size=6)
DAMAGE = st.lists(
    st.tuples(
        st.sampled_from(["flip", "cut", "remove", "insert", "zero"]),
        st.floats(0, 1, exclude_max=True),
        st.integers(1, 255),
    ),
    max_size=3,
)


def hurt(data: bytes, marks: list[int], kind: str, where: float, much: int) -> tuple[bytes, list[int]]:
    """Damage bytes; `marks` tells of each byte which record it was of, and -1 of what is new."""
    at = int(where * len(data))
    match kind:
        case "flip":
            if not data:
                return data, marks
            return (
                data[:at] + bytes([data[at] ^ much]) + data[at + 1 :],
                [*marks[:at], -1, *marks[at + 1 :]],
            )
        case "cut":
            return data[:at], marks[:at]
        case "remove":
            return data[:at] + data[at + much :], marks[:at] + marks[at + much :]
        case "insert":
            return data[:at] + b"\x07" * much + data[at:], [*marks[:at], *[-1] * much, *marks[at:]]
        case _:
            size = len(data[at : at + much])
            return data[:at] + bytes(size) + data[at + size :], [
                *marks[:at],
                *[-1] * size,
                *marks[at + size :],
            ]


@settings(max_examples=examples(100), deadline=None)
@given(PARTS, DAMAGE)
def test_every_record_that_is_whole_is_found(
    parts: list[tuple[str, bytes]], damage: list[tuple[str, float, int]]
) -> None:
    records = [record(path, f"{number}", body=body) for number, (path, body) in enumerate(parts)]
    data = b"".join(map(framed, records))
    marks = [number for number, one in enumerate(records) for _ in framed(one)]
    for kind, where, much in damage:
        data, marks = hurt(data, marks, kind, where, much)
    whole = [one for number, one in enumerate(records) if _is_whole(marks, number, len(framed(one)))]
    pieces = list(pieces_of(data))
    found = [piece.record for piece in pieces if piece.record is not None]
    assert all(one in found for one in whole), "a whole one is hidden"
    assert found == [one for one in records if one in found], "nobody wrote that, or in another order"
    ends = [0, *(piece.end for piece in pieces)]
    assert [piece.begin for piece in pieces] == ends[:-1], "pieces follow each other"
    assert ends[-1] == len(data), "and are all of it"


def _is_whole(marks: list[int], number: int, size: int) -> bool:
    return number in marks and marks[(begin := marks.index(number)) : begin + size] == [number] * size


@given(st.integers(0, 1 << 40), st.integers(0, 1000), st.data())
def test_a_damaged_cursor_is_not_believed(offset: int, messages: int, data: st.DataObject) -> None:
    cursor = SpoolCursor(offset, messages)
    text = cursor.to_text()
    assert SpoolCursor.from_text(text, set()) == cursor
    at = data.draw(st.integers(0, len(text) - 1))
    other = chr(ord(text[at]) ^ data.draw(st.integers(1, 127)))
    assert SpoolCursor.from_text(text[:at] + other + text[at + 1 :], {0, offset, messages}) is None
    assert SpoolCursor.from_text(text[:at], {0, offset, messages}) is None


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Five records of orders, of which two and a message have been sent, and two of bills."""
    for sync in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, sync, lambda descriptor: None)
    store = SpoolStore.create(tmp_path / "spool")
    for number in range(5):
        store.append(ORDERS, [record("orders", f"{number}a", f"{number}b")])
    store.append(BILLS, [record("bills", "x"), record("bills", "y")])
    reading = store.read(ORDERS)
    assert reading is not None
    store.settle(ORDERS, reading.file, SpoolCursor(reading.unsent[2].begin, 1), 5)
    store.close()
    return tmp_path / "spool"


def adopt(spool: Path) -> list[str]:
    """The ids of what a client would send that finds this spool."""
    found: list[str] = []
    for store in adopt_stores(spool):
        for key in [*store.lines()]:
            while (reading := store.read(key)) is not None:
                for one in reading.unsent:
                    found += [message_id_of(message) for message in unpack(one.record.packed)[0][one.sent :]]
                store.settle(key, reading.file, SpoolCursor(reading.end), 0)
        store.close()
    return found


def damages(spool: Path) -> Iterator[tuple[Path, int, bytes]]:
    """Places in files, and what becomes of the file there: bits that flip, and files that are cut."""
    chance = random.Random(7)
    for file in sorted(spool.rglob("*.*")):
        data = file.read_bytes()
        if not file.is_file() or not data:
            continue
        some = range(len(data)) if len(data) < 100 else sorted(chance.sample(range(len(data)), 40))
        for at in some:
            yield file, at, data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
        for at in some[::3]:
            yield file, at, data[:at]


def test_no_flip_and_no_cut_deletes_or_hides_what_is_whole(spool: Path, tmp_path: Path) -> None:
    whole = ["2b", "3a", "3b", "4a", "4b", "x", "y"]
    spans = {file: list(pieces_of(file.read_bytes())) for file in spool.rglob("*.spool")}
    tried = 0
    for file, at, damaged in damages(spool):
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(spool, copy)
        place = copy / file.relative_to(spool)
        is_cut = len(damaged) < file.stat().st_size
        place.write_bytes(damaged)
        hurt_ids: set[str] = set()
        for piece in spans.get(file, ()):
            assert piece.record is not None
            if piece.begin <= at < piece.end or (is_cut and piece.end > at):
                hurt_ids |= {message_id_of(one) for one in unpack(piece.record.packed)[0]}
        found = adopt(copy)
        expected = [name for name in whole if name not in hurt_ids]
        assert [name for name in found if name in expected] == expected, (file.name, at, is_cut)
        if hurt_ids & set(whole) and not is_cut:
            assert list((copy / "damaged").iterdir()), "what is damaged is kept"
        tried += 1
    assert tried > 120


def test_a_directory_without_its_lock_is_found(spool: Path) -> None:
    [lock] = spool.rglob(".lock")
    lock.unlink()
    assert adopt(spool) == ["2b", "3a", "3b", "4a", "4b", "x", "y"]


@settings(max_examples=examples(100), deadline=None)
@given(PARTS, st.integers(0, 2000))
def test_blanks_are_no_damage_and_hide_none(parts: list[tuple[str, bytes]], blanks: int) -> None:
    """Those that a process may have left: no more than there are bytes before them."""
    records = [record(path, f"{number}", body=body) for number, (path, body) in enumerate(parts)]
    data = b"".join(map(framed, records))
    pieces = pieces_left(data + BLANK * blanks)
    assert [piece.record for piece in pieces if piece.record is not None] == records
    assert (pieces[-1].end == len(data)) == (blanks <= len(data))
    torn = pieces_left(data + b"torn" + BLANK * blanks)
    assert torn[-1].record is None
    assert data[: torn[-1].begin] == data


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(st.integers(0, 3000), min_size=1, max_size=12),
    st.sampled_from(["before", "begun", "ended", "after"]),
    st.floats(0, 1),
)
def test_whenever_a_process_is_killed_all_that_it_was_told_is_kept_is_found(
    sizes: list[int], state: str, where: float
) -> None:
    """Also where what it wrote last came to the disk in part: up to a place, or from one on."""
    with TemporaryDirectory() as scratch, mock.patch("os.fsync"), mock.patch("os.fdatasync"):
        store = SpoolStore.create(Path(scratch) / "spool")
        file, before = store.directory / "000000-000000.spool", b""
        for number, size in enumerate(sizes):
            before = file.read_bytes() if number else b""
            store.append(ORDERS, [record("orders", f"{number}", body=bytes(size))])
        after = file.read_bytes()
        place = int(where * len(after))
        torn = {
            "before": before,
            "begun": after[:place] + before[place:],
            "ended": before[:place].ljust(place, b"\0") + after[place:],
            "after": after,
        }
        left = Path(scratch) / "left"
        shutil.copytree(store.directory.parent, left)
        (left / file.relative_to(store.directory.parent)).write_bytes(torn[state])
        store.close()
        kept = [f"{number}" for number in range(len(sizes))]
        is_told = list_unreadable(left, now=inf) != []
        waiting = [one.message_id for one in list_waiting(left)]
        found = adopt(left)
        assert waiting == found
        assert found == kept or (found == kept[:-1] and state != "after")
        assert is_told == (left / "damaged").exists()
        assert state in ("begun", "ended") or not is_told
