"""Rows of messages: what is written into one can be read from it."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.amqp.message import Header, Properties, encode_data, encode_header, encode_properties, scan
from pairbus.broker.engine.message import Content, Incoming, StoredMessage
from pairbus.broker.store.checksums import properties_checksum, record_checksum
from pairbus.broker.store.rows import PLACE_STEP, message_rows, read_message
from tests.engine.observing import TOLD

FLAGS = st.none() | st.booleans()
IDS = st.text(max_size=40) | st.uuids() | st.binary(max_size=9)


@given(
    st.builds(Header, FLAGS, st.none() | st.integers(0, 255), st.none() | st.integers(0, 1 << 31), FLAGS),
    st.binary(max_size=20),
)
def test_a_message_comes_back_as_it_was(header: Header, body: bytes) -> None:
    content = stored_and_read(Incoming.parse(encode_header(header) + encode_data(body)))
    assert (content.durable, content.priority) == (header.durable, header.priority)
    assert (content.ttl_ms, content.first_acquirer) == (header.ttl, header.first_acquirer)


@given(
    st.builds(Header, FLAGS, st.none() | st.integers(0, 255), st.none() | st.integers(0, 1 << 31)),
    st.builds(Properties, IDS, subject=st.none() | st.text()),
    st.integers(0, 600),
)
def test_a_message_is_kept_as_it_came(header: Header, properties: Properties, size: int) -> None:
    payload = encode_header(header) + encode_properties(properties) + encode_data(b"x" * size)
    scan(payload)  # whose header is known from then on
    incoming = Incoming.parse(payload)
    row = row_of(incoming.store(7, 1000.0, None))
    if incoming.content.as_it_came:
        assert row[-3:] == (b"", b"", payload)
    stored_and_read(incoming)


CHANGES: dict[str, Callable[[StoredMessage], None]] = {
    "properties": lambda message: message.set_properties(Properties("other", subject="new")),
    "application properties": lambda message: message.set_application_properties({"why": "because"}),
    "hops": lambda message: setattr(message, "hops", 3),
    "source": lambda message: setattr(message, "dead_letter_source", "orders"),
    "first number": lambda message: setattr(message, "enqueued_sequence_number", 11),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("is_copy", [False, True], ids=["itself", "a copy"])
def test_what_has_changed_is_not_taken_for_what_came(
    change: Callable[[StoredMessage], None], is_copy: bool
) -> None:
    incoming = Incoming.parse(encode_properties(Properties("id")) + encode_data(b"x" * 300))
    assert incoming.content.as_it_came
    message = incoming.store(7, 1000.0, None)
    if is_copy:
        message = message.copy(7)
    change(message)
    assert not message.content.as_it_came
    check(message)


def test_an_id_that_is_given_is_kept() -> None:
    incoming = Incoming.parse(encode_properties(Properties(subject="no id")) + encode_data(b"x" * 300))
    incoming.name("given")
    assert stored_and_read(incoming).message_id == "given"


def test_properties_that_were_changed_belong_to_a_message_as_it_came() -> None:
    message = Incoming.parse(encode_properties(Properties("id")) + encode_data(b"x" * 300)).store(
        7, 0.0, None
    )
    (row,) = message_rows({PLACE_STEP + 7: message}, 1, 1)
    message.set_application_properties({"why": "because"})
    applied = message.application_properties_bytes
    cells = (*row[:4], properties_checksum(applied), *row[5:12])
    found = read_message((*cells, record_checksum(*cells), applied, *row[14:]))
    assert_same(found.content, message.content)
    assert not found.content.as_it_came


def row_of(message: StoredMessage) -> tuple[Any, ...]:
    """The row of a message, as SQLite gives it back."""
    (row,) = message_rows({PLACE_STEP + 7: message}, 1, 1)
    return tuple(bytes(value) if isinstance(value, bytearray) else value for value in row)


def stored_and_read(incoming: Incoming) -> Content:
    return check(incoming.store(7, 1000.0, None))


def check(message: StoredMessage) -> Content:
    """What comes back of a message, which is the same."""
    found = read_message(row_of(message)).content
    assert_same(found, message.content)
    return found


def assert_same(found: Content, content: Content) -> None:
    for name in TOLD:
        assert getattr(found, name) == getattr(content, name), name
    assert b"".join(found.bare) == b"".join(content.bare)
