"""Rows of Arrow batches as messages.

1. The columns are those of a read. What the service sets (numbers, states, dead letters) is passed over, so
   that what was read can be written as it is; any other column is a mistake and refused on the driver.
2. `body` may be text. `properties` may be what a read gives, a map of plain values, or a struct: of that each
   field is a property of its own type, and those that are null are left out.
3. Properties repeat but for the message id: what stands behind the id is encoded once.
4. A row that no message can be made of is told with its reason, and is none of the others' concern.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import types as T

from pairbus import words
from pairbus.amqp.encoding import encode
from pairbus.amqp.errors import DecodeError, EncodeError
from pairbus.amqp.message import (
    Header,
    encode_annotations,
    encode_application_properties,
    encode_data,
    encode_header,
    scan,
)
from pairbus.amqp.types import Byte, Float, Int, Short, Symbol, Timestamp, UInt
from pairbus.errors import ConfigurationError
from pairbus.pairing.envelope import check_properties

from .columns import COLUMNS
from .values import UnreadableValue, from_text

_MOST_TTL = 2**32 - 1
_KINDS = {"data", "value", "sequence", "none"}
_MEMO_SIZE = 4096
_WHOLE = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_PLAIN = (*_WHOLE, T.StringType, T.DoubleType, T.FloatType, T.BooleanType, T.BinaryType, T.TimestampType)
# What may stand in a column instead of what a read gives.
_ALSO: dict[str, tuple[type[T.DataType], ...]] = {
    "string": (T.StringType,),
    "bigint": _WHOLE,
    "timestamp": (T.TimestampType,),
    "binary": (T.BinaryType,),
    "double": (T.DoubleType, T.FloatType, *_WHOLE),
    "boolean": (T.BooleanType,),
}


class OutRow(NamedTuple):
    """A message to send and its entity, or the problem with its row."""

    entity: str
    payload: bytes
    session_id: str | None
    partition_key: str | None
    problem: str | None = None


def check_columns(schema: T.StructType) -> None:
    """Refuse a schema that messages cannot be made of, and say what would do."""
    if "body" not in schema.fieldNames():
        raise ConfigurationError("A write needs a column `body`, of bytes or text")
    for field in schema.fields:
        column = COLUMNS.get(field.name)
        if column is None:
            known = ", ".join(name for name, column in COLUMNS.items() if column.set_by == "sender")
            raise ConfigurationError(f"There is no place in a message for the column {field.name!r}: {known}")
        if column.set_by != "sender":
            continue
        if not _is_fit(field.name, field.dataType, column.sql_type):
            raise ConfigurationError(
                f"The column {field.name!r} is {field.dataType.simpleString()}, and must be {column.sql_type}"
            )


def _is_fit(name: str, kind: T.DataType, sql_type: str) -> bool:
    if name == "body" and isinstance(kind, T.StringType):
        return True
    if sql_type.startswith("map"):
        if isinstance(kind, T.StructType):
            return all(isinstance(field.dataType, _PLAIN) for field in kind.fields)
        return (
            isinstance(kind, T.MapType)
            and isinstance(kind.keyType, T.StringType)
            and (isinstance(kind.valueType, _PLAIN) or _is_typed(kind.valueType))
        )
    return isinstance(kind, _ALSO[sql_type])


def _is_typed(kind: T.DataType) -> bool:
    return isinstance(kind, T.StructType) and kind.fieldNames() == ["type", "value"]


class RowEncoder:
    """Makes messages of the rows of one partition. `new_id` gives an id to the row of a number."""

    def __init__(self, *, entity: str | None, new_id: Callable[[int], str]) -> None:
        self._entity = entity
        self._new_id = new_id
        self._number = 0

    def encode(self, batch: pa.RecordBatch, *, now_ms: int) -> Iterator[OutRow]:
        """The messages of a batch, in order."""
        try:
            columns = _read_columns(batch)
        except UnreadableValue as error:
            yield from self._encode_singly(batch, str(error), now_ms)
            return
        names = tuple(columns)
        for cells in zip(*columns.values(), strict=True):
            row = dict(zip(names, cells, strict=True))
            number, self._number = self._number, self._number + 1
            if row.get("message_id") is None:
                row["message_id"] = self._new_id(number)
            yield self._encode(row, now_ms)

    def _encode_singly(self, batch: pa.RecordBatch, problem: str, now_ms: int) -> Iterator[OutRow]:
        """Rule 4, where Arrow cannot tell which row it is."""
        if batch.num_rows == 1:
            self._number += 1
            yield OutRow(self._entity or "", b"", None, None, problem)
            return
        for place in range(batch.num_rows):
            yield from self.encode(batch.slice(place, 1), now_ms=now_ms)

    def _encode(self, row: dict[str, Any], now_ms: int) -> OutRow:
        entity = self._entity or row.get("entity") or ""
        session, key = row.get("session_id"), row.get("partition_key")
        try:
            if not entity:
                raise ConfigurationError("its column `entity` is null")
            payload = encode_row(row, now_ms=now_ms)
        except (ConfigurationError, EncodeError, DecodeError, OverflowError) as error:
            return OutRow(entity, b"", session, key, str(error) or type(error).__name__)
        return OutRow(entity, payload, session, key)


def encode_row(row: dict[str, Any], *, now_ms: int) -> bytes:
    """The message of a row by the names of its columns."""
    lives = row.get("time_to_live")
    if lives is not None and not 0 <= lives < float("inf"):
        raise ConfigurationError(f"time_to_live is {lives}, and has to be a number of seconds")
    ttl = None if lives is None else min(round(lives * 1000), _MOST_TTL)
    expires, created = row.get("absolute_expiry"), row.get("created")
    if lives is not None:  # as the SDK does; a long life shows in the expiry alone
        created = now_ms if created is None else created
        expires = created + round(lives * 1000) if expires is None else expires
    head = b""
    durable, priority = row.get("durable"), row.get("priority")
    if ttl is not None or durable is not None or priority is not None:
        head = encode_header(Header(durable=durable, priority=priority, ttl=ttl))
    tail = (
        row.get("user_id"),
        row.get("to"),
        row.get("subject"),
        row.get("reply_to"),
        row.get("correlation_id"),
        row.get("content_type"),
        row.get("content_encoding"),
        expires,
        created,
        row.get("session_id"),
        row.get("group_sequence"),
        row.get("reply_to_session_id"),
    )
    return b"".join(
        (
            head,
            _annotations(row),
            _properties(row["message_id"], tail),
            _application_properties(row.get("properties")),
            _body(row.get("body"), row.get("body_kind")),
        )
    )


def _annotations(row: dict[str, Any]) -> bytes:
    scheduled = row.get("scheduled")
    found: dict[Any, Any] = {
        Symbol(name): value
        for name, value in (
            (words.SCHEDULED_TIME, None if scheduled is None else Timestamp(scheduled)),
            (words.PARTITION_KEY, row.get("partition_key")),
            (words.VIA_PARTITION_KEY, row.get("via_partition_key")),
        )
        if value is not None
    }
    if row.get("annotations"):
        found.update({Symbol(name): value for name, value in _plain_map(row["annotations"]).items()})
    return encode_annotations(found) if found else b""


_TAIL_KINDS: tuple[Callable[[Any], Any] | None, ...] = (
    None, None, None, None, None, Symbol, Symbol, Timestamp, Timestamp, None, UInt, None,
)  # fmt: skip


def _properties(message_id: str, tail: tuple[Any, ...]) -> bytes:
    rest, fields = _encode_tail(tail)
    raw = message_id.encode()
    first = b"\xa1%c%b" % (len(raw), raw) if len(raw) < 256 else b"\xb1%b%b" % (len(raw).to_bytes(4), raw)
    content, count = first + rest, fields + 1
    if len(content) < 255:
        return b"\x00\x53\x73\xc0%c%c%b" % (len(content) + 1, count, content)
    return b"\x00\x53\x73\xd0%b%b%b" % ((len(content) + 4).to_bytes(4), count.to_bytes(4), content)


@lru_cache(_MEMO_SIZE)
def _encode_tail(tail: tuple[Any, ...]) -> tuple[bytes, int]:
    count = max((index + 1 for index, value in enumerate(tail) if value is not None), default=0)
    fields = [
        encode(value if make is None or value is None else make(value))
        for value, make in zip(tail[:count], _TAIL_KINDS, strict=False)
    ]
    return b"".join(fields), count


def _application_properties(found: Any) -> bytes:
    if not found:
        return b""
    properties = _plain_map(found)
    check_properties(properties)
    return encode_application_properties(properties) if properties else b""


def _plain_map(found: Any) -> dict[str, Any]:
    """A cell of a map or struct as AMQP values."""
    if isinstance(found, dict):
        return {name: value for name, value in found.items() if value is not None}
    return {name: _plain(value) for name, value in found}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        if value["type"] is None:
            raise UnreadableValue("a property has no type")
        return from_text(value["type"], value["value"])
    return value


def _body(body: bytes | None, kind: str | None) -> bytes:
    data = body or b""
    if kind is None or kind == "data":
        return encode_data(data)
    if kind not in _KINDS:
        raise ConfigurationError(f"body_kind is {kind!r}, and has to be one of {', '.join(sorted(_KINDS))}")
    if kind == "none":
        return b""
    if scan(data).body_kind != kind or scan(data).body_bytes != data:
        raise ConfigurationError(f"the body has to be what AMQP writes for a body of the kind {kind}")
    return bytes(data)


# -- cells


def _read_columns(batch: pa.RecordBatch) -> dict[str, Sequence[Any]]:
    """The cells of what a sender sets; UnreadableValue if a text is none: Spark makes text of any bytes."""
    columns: dict[str, Sequence[Any]] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if COLUMNS[name].set_by != "sender":
            continue
        if name == "body":  # text or not: it is sent as it is
            column = column.view(_BYTES_OF.get(column.type, column.type))
        try:
            columns[name] = _values(column)
        except UnicodeDecodeError as error:
            raise UnreadableValue(f"its column {name!r} has text that is not UTF-8") from error
    return columns


_BYTES_OF = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}
_MAKERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], Any]], ...] = (
    (pa.types.is_int32, Int),
    (pa.types.is_int16, Short),
    (pa.types.is_int8, Byte),
    (pa.types.is_float32, Float),
)


def _values(column: pa.Array) -> Sequence[Any]:
    """The cells of a column; moments are milliseconds, and properties have the types of AMQP."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        found: list[Any] = column.cast(pa.timestamp("ms", kind.tz), safe=False).cast(pa.int64()).to_pylist()
        return found
    if pa.types.is_struct(kind):
        fields = {field.name: _typed(column.field(index)) for index, field in enumerate(kind)}
        rows = [dict(zip(fields, cells, strict=True)) for cells in zip(*fields.values(), strict=True)]
        return [
            row if there else None for row, there in zip(rows, column.is_valid().to_pylist(), strict=True)
        ]
    if pa.types.is_map(kind) and pa.types.is_timestamp(kind.item_type):
        moments = column.cast(pa.map_(kind.key_type, pa.timestamp("ms")), safe=False)
        return [
            None if cell is None else [(key, None if at is None else Timestamp(at)) for key, at in cell]
            for cell in moments.cast(pa.map_(kind.key_type, pa.int64())).to_pylist()
        ]
    cells: list[Any] = column.to_pylist()
    if pa.types.is_map(kind) and not pa.types.is_struct(kind.item_type):
        make = _maker(kind.item_type)
        return [
            None if cell is None else [(key, None if value is None else make(value)) for key, value in cell]
            for cell in cells
        ]
    return cells


def _typed(column: pa.Array) -> list[Any]:
    """As AMQP has them; moments may lie beyond the years that Python knows."""
    is_moment = pa.types.is_timestamp(column.type)
    make = Timestamp if is_moment else _maker(column.type)
    cells = _values(column) if is_moment else column.to_pylist()
    return [None if value is None else make(value) for value in cells]


def _maker(kind: pa.DataType) -> Callable[[Any], Any]:
    for is_kind, make in _MAKERS:
        if is_kind(kind):
            return make
    return lambda value: value
