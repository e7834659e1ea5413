"""Messages of every sort as the official SDK sends them, made by hypothesis."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from azure.servicebus.amqp import AmqpMessageHeader, AmqpMessageProperties
from hypothesis import strategies as st

__all__ = ["annotated_messages", "plain_messages", "property_maps", "some_texts", "texts"]

texts = st.text(st.characters(codec="utf-8"), max_size=20)
some_texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
# The header of an SDK message has a symbol there, which is ASCII.
_ascii = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20)
_names = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=12)
_moments = st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1)).map(
    lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000, tzinfo=UTC)
)
_scalars: Any = st.one_of(
    st.booleans(),
    st.integers(-(2**31), 2**31 - 1),  # larger ones the SDK takes with their type only
    st.integers(-(2**63), 2**63 - 1).map(lambda number: {"TYPE": "LONG", "VALUE": number}),
    st.integers(-200, 200),
    st.floats(allow_nan=False),
    texts,
    st.text(min_size=250, max_size=300, alphabet="äbc"),
    texts.map(str.encode),  # the SDK fails on a property whose bytes are no text
    st.uuids(),
    _moments,
)
property_maps = st.dictionaries(_names, _scalars, max_size=6)
_some_ids = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=40)
_ids = st.one_of(st.none(), _some_ids)
_optional = st.one_of(st.none(), some_texts)
# What a value of AMQP can be, as far as the SDK's encoder takes it from Python.
_values = st.recursive(
    st.one_of(st.booleans(), st.integers(-(2**31), 2**31 - 1), texts, st.binary(max_size=20), st.uuids()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=5,
)


@st.composite
def plain_messages(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments of a `ServiceBusMessage`, as applications make them. A message shows its body as text, and
    may have none, so that hypothesis could not tell of it.
    """
    session = draw(_optional)
    return {
        "body": draw(st.one_of(st.binary(max_size=400), texts)),
        "application_properties": draw(property_maps),
        "session_id": session,
        "message_id": draw(_ids) or str(uuid.UUID(int=draw(st.integers(0, 2**64)))),
        "scheduled_enqueue_time_utc": draw(
            st.one_of(st.none(), st.just(datetime(2100, 5, 6, 7, 8, 9, tzinfo=UTC)))
        ),
        "time_to_live": draw(
            st.one_of(st.none(), st.integers(10**7, 2**32 - 1).map(lambda ms: timedelta(milliseconds=ms)))
        ),
        "content_type": draw(st.one_of(st.none(), _ascii)),
        "correlation_id": draw(_optional),
        "subject": draw(_optional),
        "partition_key": draw(st.one_of(st.none(), st.just(session))),
        "to": draw(_optional),
        "reply_to": draw(_optional),
        "reply_to_session_id": draw(_optional),
    }


@st.composite
def annotated_messages(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments of an `AmqpAnnotatedMessage`, with whatever AMQP knows of a message."""
    body: dict[str, Any] = draw(
        st.one_of(
            st.fixed_dictionaries({"data_body": st.lists(st.binary(max_size=30), min_size=1, max_size=3)}),
            st.fixed_dictionaries({"value_body": _values}),
            st.fixed_dictionaries(
                {"sequence_body": st.lists(st.lists(_values, max_size=3), min_size=1, max_size=2)}
            ),
        )
    )
    return {
        **body,
        "header": AmqpMessageHeader(durable=draw(st.booleans()), priority=draw(st.integers(0, 255))),
        "properties": AmqpMessageProperties(
            message_id=draw(st.one_of(_some_ids, st.uuids())),
            user_id=draw(st.one_of(st.none(), st.binary(min_size=1, max_size=9))),
            correlation_id=draw(_ids),
            content_encoding=draw(st.one_of(st.none(), _ascii)),
            group_sequence=draw(st.one_of(st.none(), st.integers(0, 2**32 - 1))),
            creation_time=draw(st.one_of(st.none(), st.integers(0, 2**42))),
        ),
        "application_properties": draw(property_maps),
        "annotations": draw(st.dictionaries(_ascii.map(lambda name: f"x-opt-my-{name}"), texts, max_size=2)),
    }
