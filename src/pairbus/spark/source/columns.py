"""The columns of a message, each once: its name, its type, what it tells, and who sets it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pyspark.sql.types import StructType

from pairbus.errors import ConfigurationError

#: A property by the name of its type, and its text.
TYPED_VALUE = "struct<type: string, value: string>"

Setter = Literal["sender", "service", "envelope"]


@dataclass(frozen=True, slots=True)
class MessageColumn:
    """`set_by` says what a writer does with it: what the service sets is passed over."""

    name: str
    sql_type: str
    meaning: str
    set_by: Setter = "sender"
    needs_body: bool = False


COLUMNS = {
    column.name: column
    for column in (
        MessageColumn("entity", "string", "The queue or subscription, or its dead letters, by its path."),
        MessageColumn("sequence_number", "bigint", "Its number in the entity.", "service"),
        MessageColumn(
            "enqueued_sequence_number", "bigint", "Its number in the topic or queue before.", "service"
        ),
        MessageColumn("enqueued", "timestamp", "When the entity took it.", "service"),
        MessageColumn("state", "string", "`active`, `deferred` or `scheduled`.", "service"),
        MessageColumn("delivery_count", "bigint", "How often it was delivered in vain.", "service"),
        MessageColumn("expires", "timestamp", "When its time to live is over.", "service"),
        MessageColumn(
            "body",
            "binary",
            "The data; of another kind of body, its sections as AMQP has them.",
            needs_body=True,
        ),
        MessageColumn("body_kind", "string", "`data`, `value`, `sequence` or `none`.", needs_body=True),
        MessageColumn(
            "body_text",
            "string",
            "The body as text: data that is UTF-8; a value or sequence as text or JSON; else null.",
            "service",
            needs_body=True,
        ),
        MessageColumn("message_id", "string", "By it duplicates are detected."),
        MessageColumn("correlation_id", "string", "What it belongs to."),
        MessageColumn("session_id", "string", "Its session."),
        MessageColumn("subject", "string", "Its label."),
        MessageColumn("to", "string", "Whom it is for, as the sender says."),
        MessageColumn("reply_to", "string", "Where answers go."),
        MessageColumn("reply_to_session_id", "string", "The session of answers."),
        MessageColumn("content_type", "string", "What the body is, such as `application/json`."),
        MessageColumn("content_encoding", "string", "How the body is packed."),
        MessageColumn("user_id", "binary", "Who has made it."),
        MessageColumn("created", "timestamp", "When it was made, as the sender says."),
        MessageColumn("absolute_expiry", "timestamp", "When it expires, as the sender says."),
        MessageColumn("group_sequence", "bigint", "Its place in its session, as the sender says."),
        MessageColumn("time_to_live", "double", "Seconds."),
        MessageColumn("scheduled", "timestamp", "When it is to be enqueued."),
        MessageColumn("partition_key", "string", "By it a partitioned entity is chosen from."),
        MessageColumn("via_partition_key", "string", "The same for an entity in between."),
        MessageColumn("durable", "boolean", "As the sender says."),
        MessageColumn("priority", "bigint", "As the sender says."),
        MessageColumn("dead_letter_reason", "string", "Why it is among the dead letters.", "service"),
        MessageColumn("dead_letter_description", "string", "The same in more words.", "service"),
        MessageColumn("dead_letter_source", "string", "The entity that has buried it.", "service"),
        MessageColumn("properties", f"map<string, {TYPED_VALUE}>", "The application's own properties."),
        MessageColumn("annotations", f"map<string, {TYPED_VALUE}>", "Annotations that no other column has."),
        MessageColumn("path", "string", "Of a backlog queue: the entity that it is for.", "envelope"),
        MessageColumn("age", "double", "Of a backlog queue: seconds since it was enqueued.", "envelope"),
        MessageColumn(
            "problem",
            "string",
            "Of a backlog queue: why it cannot be sent as it is.",
            "envelope",
            needs_body=True,
        ),
    )
}
PLAIN_COLUMNS = tuple(name for name, column in COLUMNS.items() if column.set_by != "envelope")


def ddl_of_messages(names: tuple[str, ...]) -> str:
    """Spark's schema of these columns."""
    return ", ".join(f"`{name}` {COLUMNS[name].sql_type}" for name in names)


def check_schema(schema: StructType) -> None:
    """Refuse a schema that a user gave to a read and that has other columns than messages have."""
    for field in schema.fields:
        column = COLUMNS.get(field.name)
        kind = field.dataType.simpleString()
        if column is None or kind != column.sql_type.replace(" ", ""):
            raise ConfigurationError(
                f"Messages have no column {field.name!r} of the type {kind}: leave .schema(…) out, and "
                "choose by .select(…) or the option columns"
            )
