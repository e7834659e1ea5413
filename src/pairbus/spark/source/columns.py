"""The columns of a message: name, type, and who sets it. docs/spark-source.md says what each tells."""

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
    set_by: Setter = "sender"
    needs_body: bool = False


COLUMNS = {
    column.name: column
    for column in (
        MessageColumn("entity", "string"),
        MessageColumn("sequence_number", "bigint", "service"),
        MessageColumn("enqueued_sequence_number", "bigint", "service"),
        MessageColumn("enqueued", "timestamp", "service"),
        MessageColumn("state", "string", "service"),
        MessageColumn("delivery_count", "bigint", "service"),
        MessageColumn("expires", "timestamp", "service"),
        MessageColumn("body", "binary", needs_body=True),
        MessageColumn("body_kind", "string", needs_body=True),
        MessageColumn("body_text", "string", "service", needs_body=True),
        MessageColumn("message_id", "string"),
        MessageColumn("correlation_id", "string"),
        MessageColumn("session_id", "string"),
        MessageColumn("subject", "string"),
        MessageColumn("to", "string"),
        MessageColumn("reply_to", "string"),
        MessageColumn("reply_to_session_id", "string"),
        MessageColumn("content_type", "string"),
        MessageColumn("content_encoding", "string"),
        MessageColumn("user_id", "binary"),
        MessageColumn("created", "timestamp"),
        MessageColumn("absolute_expiry", "timestamp"),
        MessageColumn("group_sequence", "bigint"),
        MessageColumn("time_to_live", "double"),
        MessageColumn("scheduled", "timestamp"),
        MessageColumn("partition_key", "string"),
        MessageColumn("via_partition_key", "string"),
        MessageColumn("durable", "boolean"),
        MessageColumn("priority", "bigint"),
        MessageColumn("dead_letter_reason", "string", "service"),
        MessageColumn("dead_letter_description", "string", "service"),
        MessageColumn("dead_letter_source", "string", "service"),
        MessageColumn("properties", f"map<string, {TYPED_VALUE}>"),
        MessageColumn("annotations", f"map<string, {TYPED_VALUE}>"),
        MessageColumn("path", "string", "envelope"),
        MessageColumn("age", "double", "envelope"),
        MessageColumn("problem", "string", "envelope", needs_body=True),
    )
}
PLAIN_COLUMNS = tuple(name for name, column in COLUMNS.items() if column.set_by != "envelope")


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
