"""Messages as Arrow batches.

1. A batch is made column by column from lists. What a column needs (annotations, properties, header, body) is
   read only if a column was asked for that needs it: a message whose body nobody wants is left closed.
2. Sections that repeat are read once: headers, application properties, and the properties behind a message's
   id. Where all messages of a batch share what a column is made of, the column is one value repeated.
3. Nothing that a sender can write ends a job: text that is none, moments beyond the year 9999 and sections
   that cannot be read are null.
4. With `envelope` a message of a backlog queue is shown as its receiver will get it: session, time to live,
   schedule, body and properties are those that it had before it was wrapped. What cannot be unwrapped is
   shown as it lies there, and `problem` says why.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from operator import attrgetter, itemgetter
from typing import Any

import pyarrow as pa

from pairbus import words
from pairbus.amqp.codec import decode
from pairbus.amqp.errors import DecodeError
from pairbus.amqp.message import Header, MessageSections, Properties, scan
from pairbus.pairing.envelope import Unwrapped, expand_body, unwrap
from pairbus.pairing.errors import MalformedEnvelope
from pairbus.pairing.names import id_text

from .annotations import Marks, Numbers, read_annotations
from .properties import TextMap, read_map, text_map
from .values import to_text

_SEQUENCE_SECTION = b"\x00\x53\x76"
# From the year 1 to 9999, which is what Spark's timestamps and Python's have in common.
_FIRST_MOMENT, _LAST_MOMENT = -62_135_596_800_000, 253_402_300_799_999
_MEMO_SIZE, _MEMO_BYTES = 4096, 1024

#: The properties behind the message id.
_Tail = tuple[Any, ...]
_FIELDS = (
    "message_id", "user_id", "to", "subject", "reply_to", "correlation_id", "content_type",
    "content_encoding", "absolute_expiry_time", "creation_time", "group_id", "group_sequence",
    "reply_to_group_id",
)  # fmt: skip
_all_fields = attrgetter(*_FIELDS)
_tails: dict[bytes, _Tail] = {}
_NO_PROPERTIES = _all_fields(Properties())

_FROM_NUMBERS = {"sequence_number": 0, "enqueued_sequence_number": 1, "enqueued": 2, "scheduled": 3}
_FROM_MARKS = {"state", "partition_key", "via_partition_key", "dead_letter_source"}
_FROM_PROPERTIES = {
    "session_id": "group_id",
    "subject": "subject",
    "to": "to",
    "reply_to": "reply_to",
    "reply_to_session_id": "reply_to_group_id",
    "content_type": "content_type",
    "content_encoding": "content_encoding",
    "user_id": "user_id",
    "created": "creation_time",
    "absolute_expiry": "absolute_expiry_time",
    "group_sequence": "group_sequence",
}
_FROM_HEADER = {"delivery_count", "durable", "priority"}
_REASONS = {"dead_letter_reason": words.REASON, "dead_letter_description": words.DESCRIPTION}


class Repeated:
    """A column of one value."""

    __slots__ = ("count", "value")

    def __init__(self, value: Any, count: int) -> None:
        self.value = value
        self.count = count


Column = list[Any] | Repeated


class MessagePage:
    """Messages of one entity, and what has been read of them."""

    def __init__(
        self, entity: str, messages: Sequence[MessageSections], *, is_wrapped: bool = False, now: float = 0.0
    ) -> None:
        self.entity = entity
        self.messages = messages
        self._now = now
        self._read: dict[str, list[Any]] = {}
        self._is_same: dict[str, bool] = {}
        self._problems: list[str | None] = [None] * len(messages)
        self._letters: list[Unwrapped | None] | None = None
        if is_wrapped:
            self._letters = self._open_envelopes()

    # -- what columns are made of, each read once

    def _once(self, name: str, read: Callable[[], list[Any]]) -> list[Any]:
        found = self._read.get(name)
        if found is None:
            found = self._read[name] = read()
            first = found[0] if found else None
            self._is_same[name] = all(one is first for one in found)
        return found

    def _pick(self, name: str, found: list[Any], get: Callable[[Any], Any]) -> Column:
        """A value of each; if all are one and the same, of one."""
        if found and self._is_same[name]:
            return Repeated(get(found[0]), len(found))
        return [get(one) for one in found]

    def _annotations(self) -> list[tuple[Numbers, Marks]]:
        found = self._read.get("annotations")
        if found is None:
            found = self._read["annotations"] = [
                read_annotations(one.annotations_bytes) for one in self.messages
            ]
        return found

    def _marks(self) -> list[Marks]:
        return self._once("marks", lambda: [marks for _, marks in self._annotations()])

    def _headers(self) -> list[Header]:
        return self._once("headers", lambda: [one.header for one in self.messages])

    def _ids(self) -> list[tuple[Any, _Tail]]:
        found = self._read.get("ids")
        if found is None:
            found = self._read["ids"] = [_read_properties(one) for one in self.messages]
        return found

    def _tails(self) -> list[_Tail]:
        return self._once("tails", lambda: [tail for _, tail in self._ids()])

    def _maps(self) -> list[TextMap | None]:
        return self._once(
            "maps", lambda: [read_map(one.application_properties_bytes) for one in self.messages]
        )

    def _bodies(self) -> list[MessageSections]:
        """The messages again, with their bodies expanded where they were compressed for the stay."""
        return self._once("bodies", self._expand)

    def _data(self) -> list[bytes]:
        return self._once("data", lambda: [_body(one) for one in self._bodies()])

    # -- envelopes

    def _open_envelopes(self) -> list[Unwrapped | None]:
        now_ms = int(self._now * 1000)
        letters: list[Unwrapped | None] = []
        maps: list[TextMap | None] = []
        for index, one in enumerate(self.messages):
            try:
                letter = unwrap(
                    one.application_properties,
                    policy="pause",
                    now_ms=now_ms,
                    enqueued_ms=self._annotations()[index][0][2] or 0,
                    expires_ms=one.properties.absolute_expiry_time,
                )
                letters.append(letter)
                maps.append(text_map(letter.application_properties))
            except (MalformedEnvelope, DecodeError) as error:
                self._problems[index] = str(error)
                letters.append(None)
                maps.append(read_map(one.application_properties_bytes))
        self._once("maps", lambda: maps)
        return letters

    def _expand(self) -> list[MessageSections]:
        found = list(self.messages)
        for index, letter in enumerate(self._letters or ()):
            if letter is not None and letter.body_size is not None:
                try:
                    (data,) = found[index].data_sections()
                    found[index] = scan(expand_body(data, letter.body_size))
                except (ValueError, MalformedEnvelope, DecodeError) as error:
                    self._problems[index] = str(error)
        return found

    def _native(self, name: str, own: Column) -> Column:
        """A value that the envelope keeps, where there is one."""
        if self._letters is None:
            return own
        plain = [own.value] * own.count if isinstance(own, Repeated) else own
        return [
            value if letter is None else getattr(letter.natives, name)
            for value, letter in zip(plain, self._letters, strict=True)
        ]

    # -- columns

    def column(self, name: str) -> Column:
        """The values of a column; moments are milliseconds."""
        if name in _FROM_NUMBERS:
            place = _FROM_NUMBERS[name]
            numbers: Column = [found[place] for found, _ in self._annotations()]
            return self._native("scheduled_ms", numbers) if name == "scheduled" else numbers
        if name in _FROM_MARKS:
            return self._pick("marks", self._marks(), attrgetter(name))
        if name in _FROM_PROPERTIES:
            place = _FIELDS.index(_FROM_PROPERTIES[name]) - 1
            own = self._pick("tails", self._tails(), itemgetter(place))
            return self._native("session_id", own) if name == "session_id" else own
        if name in _FROM_HEADER:
            return self._pick("headers", self._headers(), attrgetter(name))
        if name in _REASONS:
            return self._reasons(_REASONS[name])
        return _MAKERS[name](self)

    def _reasons(self, name: str) -> Column:
        found = [_text_in(one, name) for one in self._maps()]
        return found if any(found) else Repeated(None, len(found))

    def message_ids(self) -> Column:
        return [value if type(value) is str else _id(value) for value, _ in self._ids()]

    def correlation_ids(self) -> Column:
        place = _FIELDS.index("correlation_id") - 1
        return self._pick("tails", self._tails(), lambda tail: _id(tail[place]))

    def time_to_live(self) -> Column:
        found = self._native("ttl_ms", self._pick("headers", self._headers(), attrgetter("ttl")))
        if isinstance(found, Repeated):
            return Repeated(_seconds(found.value), found.count)
        return [_seconds(value) for value in found]

    def expires(self) -> Column:
        """The service counts from the time that a message was enqueued, and a scheduled one's from then."""
        headers = self._headers()
        if headers and self._is_same["headers"] and headers[0].ttl is None:
            return Repeated(None, len(headers))
        return [
            None if header.ttl is None else header.ttl + max(numbers[2] or 0, numbers[3] or 0)
            for header, (numbers, _) in zip(headers, self._annotations(), strict=True)
        ]

    def ages(self) -> Column:
        return [
            None if numbers[2] is None else max(0.0, self._now - numbers[2] / 1000)
            for numbers, _ in self._annotations()
        ]

    def paths(self) -> Column:
        letters = self._letters or [None] * len(self.messages)
        return [None if letter is None else letter.path for letter in letters]

    def problems(self) -> Column:
        self._bodies()  # which may be what is wrong
        return self._problems

    def body_texts(self) -> Column:
        return [
            _data_text(data) if one.body_kind == "data" else _body_text(one)
            for one, data in zip(self._bodies(), self._data(), strict=True)
        ]


_MAKERS: dict[str, Callable[[MessagePage], Column]] = {
    "entity": lambda page: Repeated(page.entity, len(page.messages)),
    "message_id": MessagePage.message_ids,
    "correlation_id": MessagePage.correlation_ids,
    "time_to_live": MessagePage.time_to_live,
    "expires": MessagePage.expires,
    "body": MessagePage._data,
    "body_kind": lambda page: [one.body_kind for one in page._bodies()],
    "body_text": MessagePage.body_texts,
    "properties": MessagePage._maps,
    "annotations": lambda page: page._pick("marks", page._marks(), attrgetter("others")),
    "path": MessagePage.paths,
    "age": MessagePage.ages,
    "problem": MessagePage.problems,
}


def make_batch(page: MessagePage, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of the schema."""
    return pa.RecordBatch.from_arrays(
        [_array(page.column(field.name), field.type) for field in schema], schema=schema
    )


def _array(values: Column, kind: pa.DataType) -> pa.Array:
    if isinstance(values, Repeated):
        if values.value is None:
            return pa.nulls(values.count, kind)
        if pa.types.is_string(kind):
            return pa.repeat(pa.scalar(values.value, kind), values.count)
        values = [values.value] * values.count
    if pa.types.is_map(kind):
        return _map_array(values, kind)
    if pa.types.is_timestamp(kind):
        usual = [
            value if value is None or _FIRST_MOMENT <= value <= _LAST_MOMENT else None for value in values
        ]
        return pa.array(usual, pa.timestamp("ms", kind.tz)).cast(kind)
    return pa.array(values, kind)


def _map_array(maps: list[TextMap | None], kind: pa.MapType) -> pa.Array:
    offsets: list[int | None] = []
    keys: list[str] = []
    names: list[str] = []
    texts: list[str | None] = []
    for found in maps:
        offsets.append(None if found is None else len(keys))
        if found:
            keys += found[0]
            names += found[1]
            texts += found[2]
    offsets.append(len(keys))
    items = pa.StructArray.from_arrays(
        [pa.array(names, pa.string()), pa.array(texts, pa.string())], fields=list(kind.item_type)
    )
    return pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()), pa.array(keys, pa.string()), items, type=kind
    )


def _read_properties(one: MessageSections) -> tuple[Any, _Tail]:
    """The message id, and the other properties; rule 2."""
    data = one.properties_bytes
    # A short list whose first field is a short string, which is what nearly every message has.
    if len(data) > 8 and data[1] == 0x53 and data[3] == 0xC0 and data[6] == 0xA1 and data[5]:
        end = 8 + data[7]
        tail = data[end:] + data[5:6]  # the count of fields tells what the tail means
        known = _tails.get(tail)
        if known is not None:
            try:
                return data[8:end].decode(), known
            except UnicodeDecodeError:
                return None, known
        fields = _all_properties(one)
        if len(tail) <= _MEMO_BYTES:
            if len(_tails) >= _MEMO_SIZE:
                _tails.clear()
            _tails[tail] = fields[1:]
            return fields[0], _tails[tail]
        return fields[0], fields[1:]
    fields = _all_properties(one) if data else _NO_PROPERTIES
    return fields[0], fields[1:]


def _all_properties(one: MessageSections) -> tuple[Any, ...]:
    try:
        return _all_fields(one.properties)
    except DecodeError:
        return _NO_PROPERTIES


def _text_in(found: TextMap | None, name: str) -> str | None:
    if not found or name not in found[0]:
        return None
    return found[2][found[0].index(name)]


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _id(value: Any) -> str | None:
    return value if value is None or type(value) is str else id_text(value)


def _body(one: MessageSections) -> bytes:
    return one.data() if one.body_kind == "data" else one.body_bytes


def _data_text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _body_text(one: MessageSections) -> str | None:
    try:
        match one.body_kind:
            case "value":
                return _text_of(one.value())
            case "sequence":
                return json.dumps([to_json(item) for item in sequences(one.body_bytes)], ensure_ascii=False)
            case _:
                return None
    except (UnicodeDecodeError, DecodeError, TypeError):
        return None


def _text_of(value: Any) -> str | None:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list | dict):
        return json.dumps(to_json(value), ensure_ascii=False)
    return to_text(value)[1]


def sequences(body: bytes) -> list[list[Any]]:
    """The lists of a body of sequences."""
    found, at = [], 0
    while body[at : at + 3] == _SEQUENCE_SECTION:
        items, at = decode(body, at + 3)
        found.append(items)
    return found


def to_json(value: Any) -> Any:
    """A value as people read it: types that JSON has as such, the others as text."""
    if isinstance(value, list):
        return [to_json(item) for item in value]
    if isinstance(value, dict):
        return {str(to_json(key)): to_json(item) for key, item in value.items()}
    name, text = to_text(value)
    if name in ("boolean", "null") or (isinstance(value, int) and name != "timestamp"):
        return value
    return float(value) if isinstance(value, float) and abs(value) < float("inf") else text
