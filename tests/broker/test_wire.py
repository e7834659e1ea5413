"""The bytes of a delivery: what is written for the usual one at once is what is written piece by piece."""

import uuid
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pairbus.amqp.message import scan
from pairbus.broker.engine.message import MessageState
from pairbus.broker.engine.results import Handout
from pairbus.broker.links.wire import _LOCK_ANNOTATIONS, _render, render_delivery
from tests.engine.samples import message

KINDS: dict[str, dict[str, Any]] = {
    "plain": {"message_id": "1"},
    "lives for a while": {"message_id": "2", "ttl": 5.0},
    "of a session": {"session_id": "a"},
    "with properties": {"properties": {"n": 1}},
    "annotated": {"annotations": {"x-opt-partition-key": "p"}},
}


@given(
    st.sampled_from(sorted(KINDS)),
    st.uuids(),
    st.integers(0, 12),
    st.sampled_from(MessageState),
    st.floats(0, 4e9),
    st.floats(0, 4e9),
    st.sampled_from([0, 7]),
    st.sampled_from([None, "orders"]),
)
def test_a_delivery_is_written_the_same_at_once_and_piece_by_piece(
    kind: str,
    token: uuid.UUID,
    count: int,
    state: MessageState,
    enqueued_at: float,
    until: float,
    first_number: int,
    source: str | None,
) -> None:
    stored = message(**KINDS[kind]).store(5, enqueued_at, None)
    stored.state, stored.delivery_count = state, count
    stored.enqueued_sequence_number, stored.dead_letter_source = first_number, source
    rendered = render_delivery(Handout(stored, token, until))
    assert rendered == _render(stored, _LOCK_ANNOTATIONS + token.bytes, until)


def test_a_usual_delivery_says_what_it_should() -> None:
    stored = message(b"hello", message_id="1").store(5, 1.5, None)
    found = scan(bytes(render_delivery(Handout(stored, uuid.UUID(int=9), 2.5))))
    assert found.annotations == {
        "x-opt-sequence-number": 5,
        "x-opt-enqueued-time": 1500,
        "x-opt-locked-until": 2500,
    }
    assert found.delivery_annotations == {"x-opt-lock-token": uuid.UUID(int=9)}
    assert found.data() == b"hello"
