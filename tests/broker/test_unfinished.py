"""Messages that have begun to come, over all connections: they take no more memory than they may."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus import conditions
from pairbus.amqp.performatives import AmqpError
from pairbus.broker.links import unfinished
from pairbus.broker.links.unfinished import Unfinished

pytestmark = pytest.mark.usefixtures("noisy")
MOST = unfinished.MOST_BYTES


class Line:
    """A connection that holds something."""

    def __init__(self, account: Unfinished) -> None:
        self._account = account
        self.name = "1"
        self.size = 0
        self.is_over = False

    def hold(self, size: int) -> None:
        self.size = size
        self._account.note(self, size)

    def close(self, error: AmqpError | None) -> None:
        assert error is not None
        assert error.condition == conditions.RESOURCE_LIMIT
        self.is_over, self.size = True, 0


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, MOST // 2)), max_size=60))
def test_the_one_that_holds_the_most_has_to_go(steps: list[tuple[int, int]]) -> None:
    account = Unfinished(1)
    lines = [Line(account) for _ in range(10)]
    for number, size in steps:
        line = lines[number]
        if line.is_over:
            continue
        sizes = [each.size for each in lines]
        sizes[number] = size
        gone = [each.is_over for each in lines]
        line.hold(size)
        assert sum(each.size for each in lines) <= MOST
        fallen = [each for each, was in zip(range(10), gone, strict=True) if lines[each].is_over and not was]
        assert bool(fallen) is (sum(sizes) > MOST)
        assert all(sizes[each] == max(sizes) for each in fallen)


def test_three_of_the_largest_always_fit() -> None:
    account = Unfinished(MOST)
    lines = [Line(account) for _ in range(4)]
    for line in lines[:3]:
        line.hold(MOST)
    assert not any(line.is_over for line in lines)
    lines[3].hold(1)
    assert [line.is_over for line in lines].count(True) == 1
