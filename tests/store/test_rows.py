"""Rows of messages: what is written into one can be read from it."""

from __future__ import annotations

from dataclasses import fields

from hypothesis import given
from hypothesis import strategies as st

from pairbus.amqp.message import Header, encode_data, encode_header
from pairbus.broker.engine.message import Content, Incoming
from pairbus.broker.store.rows import PLACE_STEP, message_row, read_message

FLAGS = st.none() | st.booleans()


@given(
    st.builds(Header, FLAGS, st.none() | st.integers(0, 255), st.none() | st.integers(0, 1 << 31), FLAGS),
    st.binary(max_size=20),
)
def test_a_message_comes_back_as_it_was(header: Header, body: bytes) -> None:
    message = Incoming.parse(encode_header(header) + encode_data(body)).store(7, 1000.0, None)
    found = read_message(message_row(PLACE_STEP + 7, message, 1, 1))
    for field in fields(Content):
        assert getattr(found.content, field.name) == getattr(message.content, field.name), field.name
    content = found.content
    assert (content.durable, content.priority) == (header.durable, header.priority)
    assert (content.ttl_ms, content.first_acquirer) == (header.ttl, header.first_acquirer)
