"""Objects of the ledger in a store, put together: each writer puts one a minute, and a report reads them all.

1. Those of a day are put together when an hour has passed since, and there are many. The result is one object
   more of the same kind; then the others are deleted.
2. Each row has an id by which it counts once. So nothing has to happen at one moment: whoever reads in
   between has some rows twice, and one that finds an object gone begins again.
"""

import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from pairbus.stores.store import RecordStore

from .operations import KIND
from .store_files import read_side_by_side

# So many of a day are worth it, and so much goes into one object.
_MANY = 50
_LARGEST = 16 << 20
_HOUR = 3600.0
_DAY_MS = 86_400_000
_NAME = re.compile(rf"^{KIND}-(\d{{13,}})-.+\.jsonl$")


def merge_ledger(store: RecordStore, *, now: float) -> int:
    """Put objects of the ledger together; how many there are less."""
    sizes = store.list(KIND)
    old = [name for name in sizes if (begun := _begun(name)) is not None and begun < (now - _HOUR) * 1000]
    merged = 0
    for _, names in groupby(old, key=lambda name: (_begun(name) or 0) // _DAY_MS):
        # What is large is the result of an earlier time.
        small = [name for name in names if sizes[name] < _LARGEST // 2]
        if len(small) >= _MANY:
            merged += sum(_merge(store, some) for some in _parcels(small, sizes))
    return merged


def _merge(store: RecordStore, names: Sequence[str]) -> int:
    data = [one if one.endswith(b"\n") else one + b"\n" for one in read_side_by_side(store, names).values()]
    store.put(f"{KIND}-{_begun(names[0]):013d}-{secrets.token_hex(16)}.jsonl", b"".join(data))
    for name in names:
        store.delete(name)
    return len(names) - 1


def _parcels(names: Sequence[str], sizes: Mapping[str, int]) -> Iterator[list[str]]:
    some: list[str] = []
    room = _LARGEST
    for name in names:
        if some and sizes[name] > room:
            yield some
            some, room = [], _LARGEST
        some.append(name)
        room -= sizes[name]
    if len(some) > 1:
        yield some


def _begun(name: str) -> int | None:
    found = _NAME.match(name)
    return int(found[1]) if found else None
