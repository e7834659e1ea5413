import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.pairing.errors import BacklogUnavailableError
from pairbus.pairing.rotation import Rotation

QUEUES = [f"contoso/x-servicebus-transfer/{index}" for index in range(10)]


def make(count: int = 10, *, seed: int = 1) -> Rotation:
    return Rotation(QUEUES[:count], cool_down=60, random=random.Random(seed).random)


def test_a_sender_keeps_its_choice() -> None:
    rotation = make()
    first = rotation.choose("orders", 0)
    assert {rotation.choose("orders", now) for now in range(100)} == {first}


def test_senders_spread_over_all_queues() -> None:
    rotation = make()
    chosen = {rotation.choose(sender, 0) for sender in range(200)}
    assert chosen == set(QUEUES)


def test_a_queue_that_fails_is_left_by_everybody() -> None:
    rotation = make(2)
    before = {sender: rotation.choose(sender, 0) for sender in range(20)}
    assert rotation.fail(QUEUES[0], 10, reason="refused")
    assert {rotation.choose(sender, 10) for sender in before} == {QUEUES[1]}


def test_a_queue_returns_after_its_cool_down_and_those_that_moved_stay() -> None:
    rotation = make(2)
    for sender in range(20):
        rotation.choose(sender, 0)
    rotation.fail(QUEUES[0], 10, reason="refused")
    moved = {sender: rotation.choose(sender, 11) for sender in range(20)}
    assert rotation.usable(69.9) == [QUEUES[1]]
    assert rotation.usable(70) == QUEUES[:2]
    assert {sender: rotation.choose(sender, 70) for sender in range(20)} == moved
    assert {rotation.choose(("new", sender), 70) for sender in range(20)} == set(QUEUES[:2])


def test_late_failures_do_not_prolong_an_absence() -> None:
    rotation = make(2)
    assert rotation.fail(QUEUES[0], 10, reason="refused")
    assert not rotation.fail(QUEUES[0], 40, reason="refused as well")
    assert rotation.usable(70) == QUEUES[:2]
    assert rotation.fail(QUEUES[0], 70, reason="still refused")


def test_none_left_says_when_the_next_returns_and_why() -> None:
    rotation = make(2)
    rotation.fail(QUEUES[0], 10, reason="first")
    rotation.fail(QUEUES[1], 20, reason="second")
    with pytest.raises(BacklogUnavailableError) as caught:
        rotation.choose("orders", 30)
    assert (caught.value.queues, caught.value.retry_after, caught.value.last_failure) == (2, 40, "second")
    assert rotation.choose("orders", 70) == QUEUES[0]


def test_a_success_clears_the_record_but_does_not_end_an_absence() -> None:
    rotation = make(2)
    rotation.fail(QUEUES[0], 10, reason="refused")
    rotation.succeed(QUEUES[0], 11)
    assert rotation.usable(11) == [QUEUES[1]]
    assert rotation.status(11)[0].failures == 1
    rotation.succeed(QUEUES[0], 70)
    (first, second) = rotation.status(70)
    assert (first.failures, first.usable, first.returns_at, first.last_failure) == (0, True, None, "refused")
    assert (second.name, second.usable, second.last_failure) == (QUEUES[1], True, None)


def test_a_rotation_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Rotation([], cool_down=1, random=random.random)


@given(st.floats(0, 1, exclude_max=True), st.integers(1, 10))
def test_any_chance_chooses_a_queue(chance: float, count: int) -> None:
    assert Rotation(QUEUES[:count], cool_down=1, random=lambda: chance).choose("x", 0) in QUEUES[:count]
