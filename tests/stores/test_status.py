"""What a running syphon tells in a store, for whoever looks on."""

import pytest

from pairbus.spark import onlookers
from pairbus.spark.onlookers import StoreStatus, read_statuses
from pairbus.stores.errors import RecordStoreError
from pairbus.stores.store import open_store
from tests.cli.process import call
from tests.object_places import ENVIRONMENT, credentials, make_azure_container, place_of


def test_status_in_a_store_is_put_now_and_then_and_gone_at_the_end(
    azurite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = make_azure_container(azurite)
    with credentials():
        place = place_of(uri)
        status = StoreStatus(place, "0a1b")
        status.begin()
        assert read_statuses(place) == [], "there is nothing to tell yet"
        for moved, now in ((1, 0.0), (2, 1.0), (3, 31.0)):
            status.tell(TOLD | {"moved": moved}, now=now)
            if status._thread is not None:
                status._thread.join(60)
        assert [one["moved"] for one in read_statuses(place)] == [3], "nothing is put twice in half a minute"
        assert len(open_store(place).list("syphon")) == 1, "the one before is deleted"
        done = call("syphon", "status", "--records", uri, variables=ENVIRONMENT)
        assert done.returncode == 0, done.stderr
        assert "moved 3" in done.stdout
        StoreStatus(place, "2c3d").end()
        assert len(read_statuses(place)) == 1, "another one that runs is let be"
        monkeypatch.setattr(onlookers, "_DEAD_AFTER", -1.0)
        StoreStatus(place, "2c3d").end()
        assert read_statuses(place) == []


@pytest.mark.parametrize(("before", "after"), [("@", "x@"), ("RECORDS_KEY", "RECORDS_ACCESS")])
def test_a_place_that_takes_nothing_is_told_before_anything_is_moved(
    azurite: str, before: str, after: str
) -> None:
    """Another container, and another key."""
    with credentials():
        place = place_of(make_azure_container(azurite).replace(before, after, 1))
        with pytest.raises(RecordStoreError, match="cannot list syphon"):
            StoreStatus(place, "0a1b").begin()


TOLD = {
    "at": 1.0,
    "order": "run",
    "pumps": 1,
    "resting": 0,
    **dict.fromkeys(("moved", "dead_lettered", "waiting", "lost_locks", "retries"), 0),
}
