"""What is sealed or linked may hold any JSON: it is told and nothing crashes, whoever has sealed it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.errors import ConfigurationError
from pairbus.ledger.chain import ChainAudit
from pairbus.ledger.commit_objects import CommitWriter
from pairbus.ledger.generation import compact
from pairbus.ledger.receipts import KIND
from pairbus.ledger.record_files import RecordFiles
from pairbus.ledger.seal import seal
from pairbus.ledger.segment import SegmentWriter
from pairbus.ledger.store_compaction import WrittenDays, compact_store
from pairbus.ledger.store_files import StoreFiles
from pairbus.stores.store import DirectoryStore
from tests.examples import examples

from .histories import JsonTable
from .test_generation import keep

ODD = (
    0,
    -1,
    1.5,
    2**70,
    -(2**70),
    10**400,
    1e308,
    float("inf"),
    float("nan"),
    True,
    None,
    "",
    "\ud800",
    "a/b",
)
values = st.one_of(
    st.sampled_from(ODD),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=5,
    ),
)
WAYS = ("head", "manifest", "anchor", "link", "object head", "object manifest", "object link")


def directory_with_all(directory: Path) -> None:
    """A table with its anchor, a writer that runs, and closed segments."""
    keep(directory, 1, 2)
    compact(directory, KIND, JsonTable().compact)
    writer = SegmentWriter(directory, KIND, is_chained=True)
    for number in range(3, 6):
        writer.append([{"op": str(number), "moved": 1.0, "outcome": "moved"}])
        writer.close()


def store_with_all(store: DirectoryStore) -> None:
    writer = CommitWriter(store, KIND, is_chained=True, gather=0.0)
    writer.append([{"op": "1"}])
    writer.close()
    compact_store(store, KIND, lambda files, number: WrittenDays({}, [], 0))
    for number in range(2, 4):
        writer.append([{"op": str(number)}])
    writer.close()


def audit(directory: Path, way: str) -> ChainAudit:
    if way.startswith("object"):
        return StoreFiles.list(DirectoryStore(directory), KIND).audit(must_succeed=False)
    return RecordFiles.list(directory, KIND).audit(must_succeed=False)


def file_of(directory: Path, way: str) -> Path:
    patterns = {
        "head": "*.head",
        "manifest": "*.parquet/_manifest.json",
        "anchor": "*-table.json",
        "link": "*.jsonl",
        "object head": "*.head",
        "object manifest": "*.manifest.json",
        "object link": "*.jsonl.zst",
    }
    return sorted(directory.glob(patterns[way]))[-1]


def places_in(value: Any, *before: Any) -> Iterator[tuple[Any, ...]]:
    """Where something can be put in the place of something else."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in inner:
        yield (*before, key)
        yield from places_in(below, *before, key)


def put_at(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    for key in place[:-1]:
        value = value[key]
    old, value[place[-1]] = value[place[-1]], new
    return old


def is_of_another_type(place: tuple[Any, ...], old: Any, new: Any) -> bool:
    if (type(old), type(new)) == (float, int):  # a whole number of seconds
        return False
    if place[-1] in ("before", "seal", "next", "next_seal") and (old is None or new is None):
        return False
    return type(old) is not type(new)


def tamper(file: Path, way: str, data: st.DataObject) -> tuple[tuple[Any, ...], Any, Any]:
    """Put anything anywhere, and seal it; where, what was there, and what is."""
    new = data.draw(values)
    if way.endswith("link"):
        store = DirectoryStore(file.parent)
        *rows, line = store.read(file.name).splitlines(keepends=True)
        document = json.loads(line)["chain"]
        place = data.draw(st.sampled_from(sorted(places_in(document))))
        old = put_at(document, place, new)
        told = json.dumps({"chain": document}, separators=(",", ":"))
        store.put(file.name, b"".join(rows) + told.encode() + b"\n")
        return place, old, new
    document = json.loads(file.read_bytes())
    del document["seal"], document["version"]
    place = data.draw(st.sampled_from(sorted(places_in(document), key=str)))
    old = put_at(document, place, new)
    file.write_bytes(seal(document).data)
    return place, old, new


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    files, objects = (tmp_path_factory.mktemp(name) for name in ("files", "objects"))
    directory_with_all(files)
    store_with_all(DirectoryStore(objects))
    assert audit(files, "head").gaps == audit(objects, "object head").gaps == []
    return {"file": files, "object": objects}


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_any_value_in_any_place_is_told_and_crashes_nothing(
    scenes: dict[str, Path], way: str, data: st.DataObject
) -> None:
    directory = scenes["object" if way.startswith("object") else "file"]
    file = file_of(directory, way)
    whole = file.read_bytes()
    try:
        place, old, new = tamper(file, way, data)
        found = audit(directory, way)
    except ConfigurationError:
        assert way.endswith("link"), "a link of a version that is still to come"
        return
    finally:
        file.write_bytes(whole)
    for told in (*found.gaps, *found.notes):
        told.encode()
    if is_of_another_type(place, old, new):
        assert found.gaps
