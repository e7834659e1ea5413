"""Numbers as ranges, and back."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pairbus.plumbing.ranges import ranges_of


@given(st.lists(st.integers(-20, 20)))
def test_ranges_hold_the_numbers_and_no_two_of_them_touch(numbers: list[int]) -> None:
    found = ranges_of(numbers)
    assert {one for first, last in found for one in range(first, last + 1)} == set(numbers)
    assert all(before[1] + 1 < after[0] for before, after in pairwise(found))
