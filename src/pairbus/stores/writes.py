"""How many writes this process has made to object stores, until somebody puts them on a bill.

What is written below any path of a bucket counts for the bucket: whoever asks first is told of all of it.
"""

import threading
from collections import Counter
from dataclasses import replace

from .places import RecordPlace, StoreUri

_lock = threading.Lock()
_made: Counter[StoreUri] = Counter()


def note_write(place: StoreUri) -> None:
    """A write was begun; it is billed whatever becomes of it."""
    with _lock:
        _made[replace(place, path="")] += 1


def take_writes(place: RecordPlace, *, ahead: int = 0) -> int:
    """How many there were since this was last asked, and so many that are to come; none to a directory."""
    if not isinstance(place, StoreUri):
        return 0
    key = replace(place, path="")
    with _lock:
        made = max(0, _made[key])
        _made[key] -= made + ahead
        return made + ahead
