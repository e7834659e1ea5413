import pytest

from pairbus.pairing.errors import ScheduledInBacklogError
from pairbus.pairing.scheduling import BacklogNumbers, check_cancellable


def test_numbers_are_negative_and_given_out_once() -> None:
    numbers = BacklogNumbers()
    assert numbers.take(3) == [-1, -2, -3]
    assert numbers.take(0) == []
    assert numbers.take(2) == [-4, -5]


def test_only_numbers_of_the_primary_can_be_cancelled() -> None:
    check_cancellable([1, 2, 2**40])
    with pytest.raises(ScheduledInBacklogError) as caught:
        check_cancellable([7, -2, -9])
    assert caught.value.numbers == (-2, -9)
