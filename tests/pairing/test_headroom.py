from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.amqp import message as amqp
from pairbus.amqp.types import Timestamp
from pairbus.pairing.envelope import Natives, TimestampMs, compress_body, wrap
from pairbus.pairing.errors import MessageTooLargeForBacklog
from pairbus.pairing.headroom import (
    BATCH_RESERVE,
    MARKER_BYTES,
    MAX_OVERHEAD,
    HeadroomWatch,
    SplitPlan,
    batch_limit,
    check_fit,
    envelope_overhead,
    split_batch,
)

LIMIT = 262_144


def test_the_longest_envelope_is_about_550_bytes() -> None:
    assert MAX_OVERHEAD == 563
    assert 0 < MARKER_BYTES < MAX_OVERHEAD


@given(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=260),
    st.none() | st.text(st.characters(codec="utf-8"), max_size=128),
    st.none() | st.integers(0, 2**32 - 1),
    st.none() | st.integers(0, 2**45),
    st.booleans(),
    st.dictionaries(st.text(max_size=30), st.text(max_size=60), max_size=6),
)
def test_the_overhead_is_what_the_encoding_adds(
    path: str,
    session: str | None,
    ttl: int | None,
    scheduled: int | None,
    compressed: bool,
    own: dict[str, Any],
) -> None:
    natives = Natives(session_id=session, ttl_ms=ttl, scheduled_ms=scheduled)
    aliases = wrap(path, natives).aliases | (compress_body(b"body").markers if compressed else {})
    values = {
        name: Timestamp(value)
        if isinstance(value, TimestampMs)
        else int(value)
        if isinstance(value, int)
        else value
        for name, value in aliases.items()
    }
    before = len(amqp.encode_application_properties(own)) if own else 0
    added = len(amqp.encode_application_properties({**own, **values})) - before
    overhead = envelope_overhead(path, natives) + (MARKER_BYTES if compressed else 0)
    # The slack: a section that was there before, a small map, numbers below 128, which are encoded shorter.
    assert added <= overhead <= added + 12 + 7 * 2


def test_a_refusal_names_message_and_size() -> None:
    check_fit("orders", message_id="m", size=LIMIT - 100, overhead=100, backlog_limit=LIMIT)
    with pytest.raises(MessageTooLargeForBacklog, match="'m7' for 'orders' needs 262244") as caught:
        check_fit("orders", message_id="m7", size=LIMIT, overhead=100, backlog_limit=LIMIT)
    assert (caught.value.size, caught.value.limit) == (LIMIT + 100, LIMIT)


def test_lack_of_headroom_is_told_once_an_entity_and_counted() -> None:
    watch = HeadroomWatch()

    def send(path: str, size: int) -> bool:
        return watch.observe(path, size=size, overhead=100, backlog_limit=1000) is not None

    assert [send("a", 900), send("a", 901), send("a", 950), send("b", 2000)] == [False, True, False, True]
    assert (watch.count("a"), watch.count("b"), watch.count("c")) == (2, 1, 0)


def test_a_notice_speaks_to_people() -> None:
    notice = HeadroomWatch().observe("orders", size=950, overhead=100, backlog_limit=1000)
    assert str(notice).startswith(
        "a message of 950 bytes for 'orders' needs 1050 in the backlog, where 1000 fit"
    )


@pytest.mark.parametrize(
    ("requested", "primary", "backlog", "expected"),
    [
        (None, LIMIT, LIMIT, LIMIT - BATCH_RESERVE - MAX_OVERHEAD),
        (None, LIMIT, 4 * LIMIT, LIMIT),
        (1000, LIMIT, LIMIT, 1000),
        (None, LIMIT, 100, 1),
    ],
)
def test_a_batch_leaves_room_for_an_envelope(
    requested: int | None, primary: int, backlog: int, expected: int
) -> None:
    assert batch_limit(requested, primary_limit=primary, backlog_limit=backlog) == expected


def cost(size: int) -> int:
    return size + (5 if size < 256 else 8)


@given(st.lists(st.integers(0, 6000), max_size=60))
def test_a_split_loses_nothing_doubles_nothing_and_keeps_the_order(sizes: list[int]) -> None:
    limit = 5000
    plan = split_batch(sizes, limit=limit)
    placed = [index for group in plan.groups for index in group]
    assert placed == sorted(placed)
    assert sorted([*placed, *plan.oversized]) == list(range(len(sizes)))
    assert list(plan.oversized) == [index for index, size in enumerate(sizes) if size > limit]
    for group in plan.groups:
        assert len(group) == 1 or BATCH_RESERVE + sum(cost(sizes[index]) for index in group) <= limit


@given(st.lists(st.integers(0, 5000), min_size=2, max_size=60))
def test_a_split_has_no_more_groups_than_it_needs(sizes: list[int]) -> None:
    groups = split_batch(sizes, limit=5000).groups
    for one, other in pairwise(groups):
        joined = BATCH_RESERVE + sum(cost(sizes[index]) for index in one) + cost(sizes[other[0]])
        assert joined > 5000, "the first message of a group would have fitted the group before"


def test_what_needs_no_split_is_one_group() -> None:
    assert split_batch([100] * 10, limit=LIMIT) == SplitPlan((range(0, 10),), ())
    assert split_batch([], limit=LIMIT) == SplitPlan((), ())


def test_what_fits_in_no_group_is_named() -> None:
    plan = split_batch([10, 6000, 10], limit=5000)
    assert plan == SplitPlan((range(0, 1), range(2, 3)), (1,))
