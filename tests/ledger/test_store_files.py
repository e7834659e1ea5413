"""Who reads a store finds all that was there, whatever a fleet puts and deletes meanwhile."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pairbus.ledger.chain import ChainHead, is_head, parse_head
from pairbus.ledger.generation import Manifest
from pairbus.ledger.store_compaction import manifest_name, put_manifest
from pairbus.ledger.store_files import StoreFiles, begin_anew
from pairbus.stores.store import DirectoryStore

KIND = "redirects"
WRITERS = 20


class RestlessStore(DirectoryStore):
    """Every other time that the head of a writer is asked for, its writer has just put the next one."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._asked = Counter[str]()

    def read(self, name: str) -> bytes:
        data = super().read(name)
        head = parse_head(name, data) if is_head(name) else None
        if head is not None:
            self._asked[head.writer] += 1
            if self._asked[head.writer] % 2:
                self.tell(replace(head, at=head.at + 1))
                self.delete(name)
                raise FileNotFoundError(name)
        return data

    def tell(self, head: ChainHead) -> None:
        self.put(head.object_name(KIND), head.to_bytes())


def test_heads_that_are_replaced_while_they_are_read_are_found(tmp_path: Path) -> None:
    """A thousand clients that are busy replace a hundred a second: nobody would ever read all at once."""
    store = RestlessStore(tmp_path)
    writers = {f"host.example-{number}" for number in range(WRITERS)}
    for writer in writers:
        store.tell(ChainHead(writer=writer, since=1.0, at=1.0, is_shipped=True))
    files = StoreFiles.list(store, KIND)
    for heads in (files.heads, files.later):
        assert {one.head.writer for one in heads if one.head is not None} == writers


class LateStore(DirectoryStore):
    """A listing that tells of an object later than of another one that was put behind it."""

    late = 0

    def list(self, kind: str) -> Mapping[str, int]:
        found = dict(super().list(kind))
        if self.late:
            self.late -= 1
            found.pop(manifest_name(KIND, 2))
        return found


def test_a_manifest_that_a_listing_leaves_out_is_not_said_to_be_gone(tmp_path: Path) -> None:
    """One that is gone is: by the anchor that was put behind it."""
    store = LateStore(tmp_path)
    for number in (1, 2):
        put_manifest(StoreFiles.list(store, KIND), Manifest(generation=number))
    store.late = 3  # heads are listed, then all
    table = begin_anew(store, lambda: StoreFiles.list(store, KIND)).table
    assert (table.manifest.generation, table.gaps) == (2, [])
    store.delete(manifest_name(KIND, 2))
    table = begin_anew(store, lambda: StoreFiles.list(store, KIND)).table
    assert (table.manifest.generation, table.gaps) == (
        1,
        [f"the manifest of generation 2 in {tmp_path} is gone"],
    )
