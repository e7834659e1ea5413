"""What has survived a long collection is left out of the next ones; from time to time it is not."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from pairbus.plumbing import collector as collecting
from pairbus.plumbing.collector import CalmCollector


class Cycle:
    """Refers to itself, so that only a collection finds that it is gone."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(collecting, "LONG", -1.0)
    with CalmCollector():
        gc.unfreeze()
        yield


def test_survivors_of_a_long_collection_are_left_out(collector: None) -> None:
    survivor = Cycle()
    gc.collect()
    assert gc.get_freeze_count() > 0
    seen = weakref.ref(survivor)
    del survivor
    gc.collect()
    assert seen() is not None


def test_after_a_while_everything_is_looked_at_again(
    collector: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    survivor = Cycle()
    gc.collect()
    seen = weakref.ref(survivor)
    del survivor
    monkeypatch.setattr(collecting, "THAW_AFTER", -1.0)
    gc.collect()
    assert seen() is None


def test_a_short_collection_leaves_nothing_out(collector: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "LONG", 1e9)
    survivor = Cycle()
    gc.collect()  # Python 3.12 leaves out its immortal objects by itself, so that they are not counted here
    seen = weakref.ref(survivor)
    del survivor
    gc.collect()
    assert seen() is None


def test_young_garbage_is_none_of_its_business(collector: None) -> None:
    gc.collect(0)
    assert gc.get_freeze_count() == 0


def test_what_is_there_at_the_beginning_is_left_out_and_seen_again_at_the_end() -> None:
    with CalmCollector():
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0
