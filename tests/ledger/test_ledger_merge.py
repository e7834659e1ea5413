"""Objects of the ledger are put together, and every row is there whenever one looks."""

from pathlib import Path

import pytest

from pairbus.ledger import ledger_merge
from pairbus.ledger.ledger_merge import merge_ledger
from pairbus.ledger.operations import KIND
from pairbus.ledger.segment import parse_lines
from pairbus.stores.store import DirectoryStore

DAY = 86_400
NOW = 1_800_000_000 // DAY * DAY + 12 * 3600.0


def ids(store: DirectoryStore) -> set[str]:
    return {row["id"] for name in store.list(KIND) for row in parse_lines(store.read(name)).rows}


class Watched(DirectoryStore):
    """Whenever something is deleted, all rows are there."""

    expected: set[str] = set()  # noqa: RUF012

    def delete(self, name: str) -> None:
        super().delete(name)
        assert ids(self) == self.expected


def put(store: DirectoryStore, at: float, number: int) -> None:
    store.put(f"{KIND}-{int(at * 1000):013d}-w{number}.jsonl", f'{{"id":"{number}"}}\n'.encode())


def test_many_of_a_day_become_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_merge, "_MANY", 4)
    store = Watched(tmp_path)
    for number in range(5):
        put(store, NOW - DAY + number, number)
    for number in range(5, 8):
        put(store, NOW - 2 * DAY + number, number)
    put(store, NOW - 60, 8)
    store.expected = ids(store)
    assert merge_ledger(store, now=NOW) == 4
    assert len(store.list(KIND)) == 5, "few of a day, and what is young, are left"
    assert ids(store) == store.expected == {str(number) for number in range(9)}
    assert merge_ledger(store, now=NOW) == 0


def test_parcels_are_not_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_merge, "_MANY", 2)
    monkeypatch.setattr(ledger_merge, "_LARGEST", 40)
    store = Watched(tmp_path)
    for number in range(10):
        put(store, NOW - DAY + number, number)
    store.expected = ids(store)
    merge_ledger(store, now=NOW)
    assert max(store.list(KIND).values()) <= 40
    assert len(store.list(KIND)) < 10
