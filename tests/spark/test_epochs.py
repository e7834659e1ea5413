"""The planner's rules, without Spark."""

import pytest

from pairbus.backlog.served_queue import ServedQueue
from pairbus.spark.leash.epochs import Epochs, deal

QUEUES = [ServedQueue(index % 2, f"q/{index}") for index in range(10)]


@pytest.mark.parametrize("shards", [1, 3, 7, 10, 40])
def test_every_queue_has_one_shard_and_no_shard_is_empty(shards: int) -> None:
    dealt = deal(QUEUES, shards, epoch=5)
    served = [queue for shard in dealt for queue in shard.queues]
    assert sorted(served) == sorted(QUEUES)
    assert len(dealt) == min(shards, len(QUEUES))
    assert {shard.epoch for shard in dealt} == {5}
    sizes = [len(shard.queues) for shard in dealt]
    assert max(sizes) - min(sizes) <= 1
    assert [shard.number for shard in dealt] == list(range(len(dealt)))


def test_a_long_epoch_follows_one_without_work_and_a_busy_one_is_short_again() -> None:
    epochs = Epochs(busy=5, longest=900)
    assert [epochs.left(number, now=0, handled=0) for number in range(3)] == [5, 900, 900]
    assert epochs.left(3, now=0, handled=1) == 5
    assert epochs.left(4, now=0, handled=1) == 900


@pytest.mark.parametrize(("poll", "length"), [(900, 900), (300, 900), (400, 1200), (3600, 3600), (0.5, 900)])
def test_a_long_epoch_is_a_whole_number_of_polls(poll: float, length: float) -> None:
    epochs = Epochs(busy=5, longest=900, poll=poll)
    assert [epochs.left(number, now=0, handled=0) for number in range(2)] == [5, length]


def test_all_shards_of_an_epoch_end_together() -> None:
    epochs = Epochs(busy=5, longest=900)
    assert epochs.left(1, now=100, handled=0) == 5
    assert epochs.left(1, now=103, handled=7) == 2
    assert epochs.left(2, now=107, handled=7) == 5
    assert epochs.left(3, now=112, handled=7) == 900


def test_a_shard_that_had_no_slot_gets_a_turn_after_the_others() -> None:
    epochs = Epochs(busy=5, longest=900)
    assert epochs.left(1, now=100, handled=0) == 5
    assert epochs.left(1, now=105, handled=7) == 5
    assert epochs.left(1, now=110.5, handled=9) == 5
    assert epochs.left(2, now=116, handled=9) == 5
