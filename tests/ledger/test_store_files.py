"""Who reads a store finds all that was there, whatever a fleet puts and deletes meanwhile."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

from pairbus.ledger.chain import ChainHead, is_head, parse_head
from pairbus.ledger.store_files import StoreFiles
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
