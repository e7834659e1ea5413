"""A mixture of messages for every sort of entity, and what must have become of it."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyarrow import parquet

from pairbus.ledger.segment import closed_segments
from pairbus.spark import Syphon, SyphonSummary

from .bus import Bus, Letter

__all__ = [
    "HOUR_MS",
    "PATHS",
    "QUEUES",
    "SESSIONS",
    "TOPICS",
    "assert_receipts",
    "assert_session_order",
    "assert_whole",
    "letters",
    "place",
    "running",
]

QUEUES = ["orders", "invoices", "returns"]
SESSIONS = ["carts", "chats"]
TOPICS = ["news", "prices"]
PATHS = [*QUEUES, *SESSIONS, *TOPICS]
HOUR_MS = 3_600_000


def letters(count: int, *, prefix: str = "m") -> list[Letter]:
    """Letters for all paths in turn. Those for session queues have one of nine sessions, some have a time to
    live, and some of those for plain queues are for tomorrow.
    """
    tomorrow = int((time.time() + 86_400) * 1000)
    made = []
    for index in range(count):
        path = PATHS[index % len(PATHS)]
        made.append(
            Letter(
                path=path,
                id=f"{prefix}{index:06d}",
                session=f"s{index // len(PATHS) % 9}" if path in SESSIONS else None,
                ttl_ms=HOUR_MS if index % 11 == 0 else None,
                scheduled_ms=tomorrow if index % 13 == 0 and path in QUEUES else None,
            )
        )
    return made


def place(path: str) -> str:
    return f"{path}/Subscriptions/all" if path in TOPICS else path


def assert_session_order(bus: Bus) -> None:
    """Per path and session the first arrivals are in the order of sending."""
    for path in SESSIONS:
        by_session: dict[str, list[str]] = {}
        for message in bus.found(path):
            by_session.setdefault(str(message.session_id), []).append(str(message.message_id))
        for ids in by_session.values():
            first_seen = list(dict.fromkeys(ids))
            assert first_seen == sorted(first_seen), path


def assert_whole(bus: Bus, sent: list[Letter], *, is_once: bool = False) -> None:
    """Every letter is where it belongs as it was, in order; none is left, and none of them twice if so."""
    by_id = {letter.id: letter for letter in sent}
    assert bus.left() == 0
    seen: Counter[str] = Counter()
    for path in PATHS:
        for message in bus.found(place(path)):
            letter = by_id[str(message.message_id)]
            seen[letter.id] += 1
            assert (path, message.session_id, message.ttl_ms) == (letter.path, letter.session, letter.ttl_ms)
            scheduled = None if message.scheduled_for is None else round(message.scheduled_for * 1000)
            assert scheduled == letter.scheduled_ms
    assert seen.keys() == by_id.keys()
    assert not is_once or set(seen.values()) == {1}
    assert_session_order(bus)


def assert_receipts(records: Path, *, moved: int, dead: int = 0) -> None:
    """All are in one table, each once, as anybody reads it."""
    (table,) = records.glob("receipts-*.parquet")
    rows = parquet.read_table(table).to_pylist()
    assert len({row["op"] for row in rows}) == len(rows) == moved + dead
    assert sum(row["outcome"] == "moved" for row in rows) == moved
    assert closed_segments(records, "receipts") == [], "segments are put into the table"
    assert [path for path in records.iterdir() if path.name.startswith(".receipts")] == []


@contextmanager
def running(syphon: Syphon, *, once: bool = False) -> Iterator[list[SyphonSummary]]:
    """Runs it in the background and waits for its end; the list has its summary then.

    An endless one is told to stop, and so is any whose test has failed: it would keep the lease, and the
    broker of the next test has the same address.
    """
    done: list[SyphonSummary] = []
    thread = threading.Thread(target=lambda: done.append(syphon.run(once=once)), daemon=True)
    thread.start()
    try:
        yield done
    except BaseException:
        syphon.stop()
        raise
    finally:
        if not once:
            syphon.stop()
        thread.join(240)
    assert done, "the run has ended"
