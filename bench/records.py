"""A made-up ledger of any size, written as clients and syphon would have written it, but quickly.

Ten clients and two pumps of two pairs tell of each minute: sends to some entities, and in an outage sends to
the backlog, pings, and what the pumps move. More records are more days of the same.
"""

import itertools
import random
import uuid
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pairbus.ledger.operations import KIND

__all__ = ["Made", "make_ledger"]

FIRST = int(datetime(2026, 9, 1, tzinfo=UTC).timestamp())
_PAIRS = ("contoso", "fabrikam")
_CLIENTS, _ENTITIES, _QUEUES = 10, 20, 10
# A segment is closed each ten minutes; a file here is what some writers told in the same hour.
_ROWS_A_FILE = 20_000
#: An outage of each pair every other day, of some hours.
_OUTAGE_EVERY, _OUTAGE_FROM, _OUTAGE_UNTIL = 2 * 1440, 600, 760
# Entities that a client sends to in a minute, and of how many it sees that in an outage.
_BUSY = 14


@dataclass(frozen=True, slots=True)
class Made:
    """What was written: rows of operations, what is billed for them, and bytes on the disk."""

    rows: int
    units: int
    size: int


def make_ledger(directory: Path, rows: int, *, seed: int = 1) -> Made:
    """Write so many operations, and the marks that go with them, as closed segments."""
    directory.mkdir(parents=True)
    writer = _Files(directory)
    units = made = 0
    numbers = _Numbers(itertools.count)
    lines = _operations(random.Random(seed), numbers)
    for minute, some, billed in lines:
        if made + len(some) > rows:
            some, billed = some[: rows - made], billed[: rows - made]
        writer.add(minute, some)
        made += len(some)
        units += sum(billed)
        if made == rows:
            break
    for moment, line in _marks(minute, numbers):
        writer.add(moment, [line])
    writer.close()
    return Made(made, units, writer.size)


class _Files:
    """Puts lines into files, so many each."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lines: list[str] = []
        self._begun = 0
        self.size = 0

    def add(self, minute: int, lines: list[str]) -> None:
        if not self._lines:
            self._begun = minute
        self._lines += lines
        if len(self._lines) >= _ROWS_A_FILE:
            self.close()

    def close(self) -> None:
        if not self._lines:
            return
        name = f"{KIND}-{self._begun * 1000:013d}-{uuid.uuid4().hex}.jsonl"
        data = ("\n".join(self._lines) + "\n").encode("ascii")
        (self._directory / name).write_bytes(data)
        self.size += len(data)
        self._lines = []


# Those of its rows, by writer.
_Numbers = defaultdict[str, "itertools.count[int]"]


def _operations(dice: random.Random, numbers: _Numbers) -> Iterator[tuple[int, list[str], list[int]]]:
    """Minute after minute: its lines, and what is billed for each of them."""
    minute = FIRST
    while True:
        lines, billed = [], []
        for row in _minute(minute, dice):
            writer, role, pair, namespace, entity, stage, kind, size_class, outage, count, size = row
            lines.append(
                f'{{"row":"operation","id":"{writer}:{next(numbers[writer]):09d}","writer":"{writer}",'
                f'"pair":"{pair}",'
                f'"role":"{role}","namespace":"{namespace}","entity":"{entity}","stage":"{stage}",'
                f'"kind":"{kind}","size_class":{size_class},"minute":{minute},"outage":{outage},'
                f'"count":{count},"unknown":0,"bytes":{size}}}'
            )
            billed.append(count * size_class)
        yield minute, lines, billed
        minute += 60


_Row = tuple[str, str, str, str, str, str, str, int, str, int, int]


def _minute(minute: int, dice: random.Random) -> Iterator[_Row]:
    outage = _outage_at(minute)
    for pair in _PAIRS:
        for client in range(_CLIENTS // 2):
            writer = f"{pair}-app-{client}-4711-0a1b2c3d"
            for entity in dice.sample(range(_ENTITIES), _BUSY):
                count, size_class = dice.randrange(1, 600), 1 + (entity == 0)
                name, size = f"orders/{entity}", count * 900 * size_class
                if outage is None or entity > _BUSY:
                    yield writer, "client", pair, pair, name, "send", "send", size_class, "null", count, size
                    continue
                of = f'"{writer}/{name}/{outage}"'
                queue = f"{pair}/x-servicebus-transfer/{dice.randrange(_QUEUES)}"
                yield (
                    writer, "client", pair, f"{pair}-dr", queue,
                    "backlog_send", "send", size_class, of, count, size,
                )  # fmt: skip
                yield writer, "client", pair, pair, name, "ping", "ping", 1, of, 1, 0
        yield from _pumped(minute, pair, dice)


def _pumped(minute: int, pair: str, dice: random.Random) -> Iterator[_Row]:
    writer, namespace = f"{pair}-syphon-99-0a1b2c3d", f"{pair}-dr"
    for index in range(_QUEUES):
        queue, count = f"{pair}/x-servicebus-transfer/{index}", dice.randrange(1, 400)
        if _outage_at(minute - 3600) is None:
            if index == minute // 60 % _QUEUES:
                yield writer, "pump", pair, namespace, queue, "idle", "empty_receive", 1, "null", 1, 0
            continue
        for stage, kind in (("backlog_receive", "delivery"), ("backlog_complete", "complete")):
            yield writer, "pump", pair, namespace, queue, stage, kind, 1, "null", count, count * 900
        name = f"orders/{index}"
        yield writer, "pump", pair, pair, name, "send", "send", 1, "null", count, count * 900


def _outage_at(minute: int) -> int | None:
    """When the outage began that this minute belongs to."""
    number, within = divmod((minute - FIRST) // 60, _OUTAGE_EVERY)
    if not _OUTAGE_FROM <= within < _OUTAGE_UNTIL:
        return None
    return FIRST + (number * _OUTAGE_EVERY + _OUTAGE_FROM) * 60


def _marks(last: int, numbers: _Numbers) -> Iterator[tuple[int, str]]:
    """What writers tell of outages and of themselves; one in five was killed."""
    for pair in _PAIRS:
        for client in range(_CLIENTS // 2):
            writer = f"{pair}-app-{client}-4711-0a1b2c3d"
            about = f'"writer":"{writer}","pair":"{pair}"'
            begins = _OUTAGE_FROM * 60 + FIRST
            while begins <= last:
                for entity in range(_BUSY + 1):
                    name = f"orders/{entity}"
                    of = f'"entity":"{name}","outage":"{writer}/{name}/{begins}",{about}'
                    ends = begins + (_OUTAGE_UNTIL - _OUTAGE_FROM) * 60
                    for at, is_begun in ((begins, "true"), (ends, "false")):
                        own = f'"id":"{writer}:{next(numbers[writer]):09d}","begins":{is_begun},"at":{at}.5'
                        yield at, f'{{"row":"outage",{own},{of}}}'
                begins += _OUTAGE_EVERY * 60
            for phase, at in (("begin", FIRST), ("end" if client else "interval", last)):
                told = f'"role":"client","phase":"{phase}","at":{at}.0,"every":60.0'
                own = f'"id":"{writer}:{next(numbers[writer]):09d}"'
                yield at, f'{{"row":"writer",{own},{about},{told}}}'
