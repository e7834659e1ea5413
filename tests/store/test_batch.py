"""How a turn is sorted before it is written."""

from hypothesis import given
from hypothesis import strategies as st

from pairbus.broker.engine.events import EngineEvent, MessageRemoved, MessageStored
from pairbus.broker.store.batch import Batch
from tests.engine.samples import message

_PLACES = {"a": 1000, "b": 2000}


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 300)), max_size=40),
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 300), st.integers(1, 150)), max_size=5),
)
def test_ranges_hold_the_keys_that_were_removed_and_no_others(
    stored: list[tuple[str, int]], removed: list[tuple[str, int, int]]
) -> None:
    events: list[EngineEvent] = [
        MessageStored(queue, message().store(number, 0.0, None)) for queue, number in stored
    ]
    gone = [(queue, number) for queue, first, count in removed for number in range(first, first + count)]
    batch = Batch()
    batch.sort([*events, *(MessageRemoved(*each) for each in gone)], _PLACES.__getitem__)
    kept = {_PLACES[queue] + number for queue, number in stored}
    wanted = {_PLACES[queue] + number for queue, number in gone} - kept
    ranges = batch.removed_ranges()
    assert sorted(wanted) == [key for first, last in ranges for key in range(first, last + 1)]
    assert all(last - first < 64 for first, last in ranges)
    assert set(batch.stored) == kept
