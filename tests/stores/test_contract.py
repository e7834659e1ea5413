"""One suite for all stores: what is put is there as a whole, by its name, until it is deleted."""

import pickle
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import pytest

from pairbus.stores.object_store import ObjectStore
from pairbus.stores.places import RecordPlace, StoreUri, parse_place
from pairbus.stores.store import DirectoryStore, RecordStore
from tests.object_places import credentials, make_azure_container, make_s3_bucket, place_of


class StoreContract:
    """Subclasses give a `store` that is empty."""

    def test_what_was_put_is_read(self, store: RecordStore) -> None:
        store.put("receipts-1.jsonl", b"one\n")
        assert store.read("receipts-1.jsonl") == b"one\n"

    def test_an_object_of_some_megabytes_is_read_whole(self, store: RecordStore) -> None:
        data = bytes(range(256)) * 4096 * 5
        store.put("receipts-1.parquet", data)
        assert store.read("receipts-1.parquet") == data

    def test_what_is_packed_is_small_and_read_as_it_was_put(self, store: RecordStore) -> None:
        data = b'{"path":"orders"}\n' * 100
        store.put("receipts-1.jsonl.zst", data)
        assert store.list("receipts")["receipts-1.jsonl.zst"] < len(data) / 10
        assert store.read("receipts-1.jsonl.zst") == data

    def test_a_kind_is_listed_by_name_with_sizes(self, store: RecordStore) -> None:
        store.put("receipts-2.jsonl", b"four")
        store.put("receipts-1.jsonl", b"one")
        store.put("redirects-1.jsonl", b"another kind")
        assert list(store.list("receipts").items()) == [("receipts-1.jsonl", 3), ("receipts-2.jsonl", 4)]

    def test_a_store_with_nothing_in_it_lists_nothing(self, store: RecordStore) -> None:
        assert store.list("receipts") == {}

    def test_the_same_put_again_changes_nothing(self, store: RecordStore) -> None:
        for _ in range(2):
            store.put("receipts-1.jsonl", b"one")
        assert store.list("receipts") == {"receipts-1.jsonl": 3}
        assert store.read("receipts-1.jsonl") == b"one"

    def test_what_is_replaced_is_replaced_whole(self, store: RecordStore) -> None:
        store.put("receipts-w.head", b"a long head")
        store.put("receipts-w.head", b"short")
        assert store.read("receipts-w.head") == b"short"

    def test_what_is_not_there_is_told_as_a_missing_file(self, store: RecordStore) -> None:
        store.put("receipts-2.jsonl", b"another")
        with pytest.raises(FileNotFoundError):
            store.read("receipts-1.jsonl")

    def test_what_was_deleted_is_gone_and_may_be_deleted_again(self, store: RecordStore) -> None:
        store.put("receipts-1.jsonl", b"one")
        for _ in range(2):
            store.delete("receipts-1.jsonl")
        assert store.list("receipts") == {}

    def test_names_of_any_writer_are_kept(self, store: RecordStore) -> None:
        name = "receipts-0001763290000000-app.host_7-5f00-00000042.jsonl"
        store.put(name, b"row")
        assert list(store.list("receipts")) == [name]
        assert store.read(name) == b"row"

    def test_the_place_can_be_sent_to_executors(self, store: RecordStore) -> None:
        place: RecordPlace = pickle.loads(pickle.dumps(store.place))
        assert place == store.place


class TestDirectory(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> RecordStore:
        return DirectoryStore(tmp_path / "records")


class TestAzurite(StoreContract):
    @pytest.fixture
    def store(self, azurite: str) -> Iterator[RecordStore]:
        with credentials():
            yield ObjectStore(place_of(make_azure_container(azurite)))


class TestS3(StoreContract):
    @pytest.fixture
    def store(self, moto: str) -> Iterator[RecordStore]:
        with credentials():
            yield ObjectStore(place_of(make_s3_bucket(moto)))


def test_at_the_end_of_a_process_that_starts_no_more_threads_a_call_is_made_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or a client that is closed by the end of its process could not tell how far its chains go."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    place = parse_place("s3://records/contoso")
    assert isinstance(place, StoreUri)
    store, kept = ObjectStore(place), dict[str, BytesIO]()
    files = SimpleNamespace(
        open_output_stream=lambda key, compression: nullcontext(kept.setdefault(key, BytesIO()))
    )
    monkeypatch.setattr(store, "_open", lambda: files)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    store.put("receipts-1.jsonl", b"one")
    assert [stream.getvalue() for stream in kept.values()] == [b"one"]
    assert not store.is_being_put("receipts-1.jsonl")
