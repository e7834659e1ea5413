"""Messages as Arrow batches.

1. A batch is made column by column from lists. What a column needs (annotations, properties, header, body) is
   read only if a column was asked for that needs it: a message whose body nobody wants is left closed.
2. Sections that repeat in a batch are read once: headers, application properties, and the properties behind
   a message's id. Where all messages share what a column is made of, the column is one value repeated.
3. Nothing that a sender can write ends a job: text that is none, moments beyond the year 9999 and sections
   that cannot be read are null.
4. With `envelope` a message of a backlog queue is shown as its receiver will get it: session, time to live,
   schedule, body and properties are those that it had before it was wrapped. What cannot be unwrapped is
   shown as it lies there, and `problem` says why.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cached_property, lru_cache
from operator import attrgetter, itemgetter
from typing import Any, Generic, TypeVar

import pyarrow as pa

from pairbus import words
from pairbus.amqp.errors import DecodeError
from pairbus.amqp.message import Header, MessageSections, Properties, scan
from pairbus.pairing.envelope import Unwrapped, expand_body, unwrap
from pairbus.pairing.errors import MalformedEnvelope
from pairbus.pairing.names import id_text

from .annotations import AnnotationColumns, Marks, read_annotations
from .properties import TextMap, read_map, text_map
from .sections import cut_page, read_each
from .values import to_text

T = TypeVar("T")
# From the year 1 to 9999, which is what Spark's timestamps and Python's have in common.
_FIRST_MOMENT, _LAST_MOMENT = -62_135_596_800_000, 253_402_300_799_999
_SHORT_PROPERTIES = b"\x00\x53\x73\xc0"

#: The properties behind the message id.
_Tail = tuple[Any, ...]
_FIELDS = tuple(one.name for one in fields(Properties))
_all_fields = attrgetter(*_FIELDS)
_NO_PROPERTIES = _all_fields(Properties())

_FROM_NUMBERS = {"sequence_number", "enqueued_sequence_number", "enqueued", "scheduled"}
_FROM_MARKS = {
    "state": "state",
    "partition_key": "partition_key",
    "via_partition_key": "via_partition_key",
    "dead_letter_source": "dead_letter_source",
    "annotations": "others",
}
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
# What the sender did not say reads as the standard's default.
_FROM_HEADER: Mapping[str, Callable[[Header], Any]] = {
    "delivery_count": attrgetter("delivery_count"),
    "durable": lambda header: bool(header.durable),
    "priority": lambda header: 4 if header.priority is None else header.priority,
}
_REASONS = {"dead_letter_reason": words.REASON, "dead_letter_description": words.DESCRIPTION}


class Repeated:
    """A column of one value."""

    __slots__ = ("count", "value")

    def __init__(self, value: Any, count: int) -> None:
        self.value = value
        self.count = count


#: A column as it is made: values, which may be Arrow's own, or one value for all.
Cells = Sequence[Any] | Repeated


class Alike(Generic[T]):
    """What many messages have, of which most have the same object."""

    __slots__ = ("_is_one", "values")

    def __init__(self, values: Sequence[T]) -> None:
        self.values = values
        self._is_one = len(set(map(id, values))) == 1

    def pick(self, get: Callable[[T], Any]) -> Cells:
        """A value of each; if all are one and the same, of one."""
        if self._is_one:
            return Repeated(get(self.values[0]), len(self.values))
        return [get(one) for one in self.values]


class MessagePage:
    """Messages of one entity, and what has been read of them."""

    def __init__(
        self, entity: str, payloads: Sequence[bytes], *, is_wrapped: bool = False, now: float = 0.0
    ) -> None:
        self.entity = entity
        self.payloads = payloads
        self._sections = cut_page(payloads)
        self._now = now
        self._problems: list[str | None] = [None] * len(payloads)
        self._letters: list[Unwrapped | None] | None = None
        self._letter_maps: list[TextMap | None] = []
        if is_wrapped:
            self._letters = self._open_envelopes()

    # -- what columns are made of, each read once

    @cached_property
    def annotations(self) -> AnnotationColumns:
        return read_annotations(self._sections.annotations)

    @cached_property
    def marks(self) -> Alike[Marks]:
        return Alike(self.annotations.marks)

    @cached_property
    def headers(self) -> Alike[Header]:
        return Alike(read_each(self._sections.headers, lambda raw: scan(raw).header))

    @cached_property
    def ids_and_tails(self) -> tuple[list[Any] | pa.Array, Alike[_Tail]]:
        """Message ids, and all other properties."""
        sections = self._sections.properties
        heads = set(map(itemgetter(slice(8)), sections))
        # Short lists whose first field is a short string, which is what nearly every message has.
        if not all(len(head) == 8 and head[:4] == _SHORT_PROPERTIES and head[6] == 0xA1 for head in heads):
            fields = read_each(sections, _read_properties)
            return [_id(one[0]) for one in fields], Alike([one[1:] for one in fields])
        # The count of fields tells what those behind the id mean.
        if len(heads) == 1:
            count, end = sections[0][5:6], 8 + sections[0][7]
            ids = list(map(itemgetter(slice(8, end)), sections))
            tails = list(map(count.__add__, map(itemgetter(slice(end, None)), sections)))
        else:
            ids = [raw[8 : 8 + raw[7]] for raw in sections]
            tails = [raw[5:6] + raw[8 + raw[7] :] for raw in sections]
        return _texts(ids), Alike(read_each(tails, _read_tail))

    @property
    def tails(self) -> Alike[_Tail]:
        return self.ids_and_tails[1]

    @cached_property
    def maps(self) -> Alike[TextMap | None]:
        if self._letters is not None:
            return Alike(self._letter_maps)
        return Alike(read_each(self._sections.application_properties, read_map))

    @cached_property
    def bodies(self) -> list[bytes | MessageSections]:
        """The data of each message, expanded; one whose body is not one section of data, as a whole."""
        found: list[bytes | MessageSections] = [
            payload[at:] if at else scan(payload)
            for payload, at in zip(self.payloads, self._sections.data_at, strict=True)
        ]
        return found if self._letters is None else self._expand(found)

    @cached_property
    def has_plain_data(self) -> bool:
        """Whether all bodies are one section of data."""
        return all(type(one) is bytes for one in self.bodies)

    @cached_property
    def data(self) -> pa.Array:
        return pa.array([one if isinstance(one, bytes) else _body(one) for one in self.bodies], pa.binary())

    # -- envelopes

    def _open_envelopes(self) -> list[Unwrapped | None]:
        now_ms = int(self._now * 1000)
        letters: list[Unwrapped | None] = []
        for index, enqueued in enumerate(self.annotations.enqueued):
            one = scan(self.payloads[index])
            try:
                letter = unwrap(
                    one.application_properties,
                    policy="pause",
                    now_ms=now_ms,
                    enqueued_ms=enqueued or 0,
                    expires_ms=one.properties.absolute_expiry_time,
                )
                letters.append(letter)
                self._letter_maps.append(text_map(letter.application_properties))
            except (MalformedEnvelope, DecodeError) as error:
                self._problems[index] = str(error)
                letters.append(None)
                self._letter_maps.append(read_map(self._sections.application_properties[index]))
        return letters

    def _expand(self, found: list[bytes | MessageSections]) -> list[bytes | MessageSections]:
        for index, letter in enumerate(self._letters or ()):
            if letter is not None and letter.body_size is not None:
                try:
                    (data,) = scan(self.payloads[index]).data_sections()
                    found[index] = scan(expand_body(data, letter.body_size))
                except (ValueError, MalformedEnvelope, DecodeError) as error:
                    self._problems[index] = str(error)
        return found

    def _native(self, name: str, own: Cells) -> Cells:
        """A value that the envelope keeps, where there is one."""
        if self._letters is None:
            return own
        plain = [own.value] * own.count if isinstance(own, Repeated) else own
        return [
            value if letter is None else getattr(letter.natives, name)
            for value, letter in zip(plain, self._letters, strict=True)
        ]

    # -- columns

    def column(self, name: str) -> Cells:
        """The values of a column; moments are milliseconds."""
        if name in _FROM_NUMBERS:
            numbers: Cells = getattr(self.annotations, name)
            return self._native("scheduled_ms", numbers) if name == "scheduled" else numbers
        if name in _FROM_MARKS:
            return self.marks.pick(attrgetter(_FROM_MARKS[name]))
        if name in _FROM_PROPERTIES:
            own = self.tails.pick(itemgetter(_FIELDS.index(_FROM_PROPERTIES[name]) - 1))
            return self._native("session_id", own) if name == "session_id" else own
        if name in _FROM_HEADER:
            return self.headers.pick(_FROM_HEADER[name])
        if name in _REASONS:
            return self.maps.pick(lambda found: _text_in(found, _REASONS[name]))
        return _MAKERS[name](self)

    def correlation_ids(self) -> Cells:
        place = _FIELDS.index("correlation_id") - 1
        return self.tails.pick(lambda tail: _id(tail[place]))

    def time_to_live(self) -> Cells:
        found = self._native("ttl_ms", self.headers.pick(attrgetter("ttl")))
        if isinstance(found, Repeated):
            return Repeated(_seconds(found.value), found.count)
        return [_seconds(value) for value in found]

    def expires(self) -> Cells:
        """The service counts from the time that a message was enqueued, and a scheduled one's from then."""
        lives = self.headers.pick(attrgetter("ttl"))
        if isinstance(lives, Repeated):
            if lives.value is None:
                return lives
            lives = [lives.value] * lives.count
        return [
            None if ttl is None else ttl + max(enqueued or 0, scheduled or 0)
            for ttl, enqueued, scheduled in zip(
                lives, self.annotations.enqueued, self.annotations.scheduled, strict=True
            )
        ]

    def ages(self) -> Cells:
        return [
            None if enqueued is None else max(0.0, self._now - enqueued / 1000)
            for enqueued in self.annotations.enqueued
        ]

    def paths(self) -> Cells:
        letters = self._letters or [None] * len(self.payloads)
        return [None if letter is None else letter.path for letter in letters]

    def problems(self) -> Cells:
        _ = self.bodies  # which may be what is wrong
        return self._problems

    def body_kinds(self) -> Cells:
        if self.has_plain_data:
            return Repeated("data", len(self.bodies))
        return ["data" if isinstance(one, bytes) else one.body_kind for one in self.bodies]

    def body_texts(self) -> Cells:
        if self.has_plain_data:
            texts: Cells = _texts(self.data)
            return texts
        return [
            _data_text(data) if isinstance(one, bytes) or one.body_kind == "data" else _body_text(one)
            for one, data in zip(self.bodies, self.data.to_pylist(), strict=True)
        ]


_MAKERS: dict[str, Callable[[MessagePage], Cells]] = {
    "entity": lambda page: Repeated(page.entity, len(page.payloads)),
    "message_id": lambda page: page.ids_and_tails[0],
    "correlation_id": MessagePage.correlation_ids,
    "time_to_live": MessagePage.time_to_live,
    "expires": MessagePage.expires,
    "body": lambda page: page.data,
    "body_kind": MessagePage.body_kinds,
    "body_text": MessagePage.body_texts,
    "properties": lambda page: page.maps.pick(lambda found: found),
    "path": MessagePage.paths,
    "age": MessagePage.ages,
    "problem": MessagePage.problems,
}


def make_batch(page: MessagePage, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of the schema."""
    return pa.RecordBatch.from_arrays(
        [_array(page.column(field.name), field.type) for field in schema], schema=schema
    )


def _array(values: Cells, kind: pa.DataType) -> pa.Array:
    if isinstance(values, pa.Array):
        return values
    if isinstance(values, Repeated):
        if values.value is None:
            return _nulls(values.count, kind)
        return _array([values.value], kind).take(pa.repeat(0, values.count))
    if pa.types.is_map(kind):
        return _map_array(values, kind)
    if pa.types.is_timestamp(kind):
        usual = [
            value if value is None or _FIRST_MOMENT <= value <= _LAST_MOMENT else None for value in values
        ]
        return pa.array(usual, pa.timestamp("ms", kind.tz)).cast(kind)
    return pa.array(values, kind)


@lru_cache
def _nulls(count: int, kind: pa.DataType) -> pa.Array:
    """Most columns of most batches: an array never changes, and may be had again."""
    return pa.nulls(count, kind)


def _texts(found: list[bytes] | pa.Array) -> pa.Array:
    """Bytes as text; null where they are not UTF-8."""
    data = found if isinstance(found, pa.Array) else pa.array(found, pa.binary())
    try:
        return data.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_data_text(one) for one in data.to_pylist()], pa.string())


def _map_array(maps: Sequence[TextMap | None], kind: pa.MapType) -> pa.Array:
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


def _read_properties(raw: bytes) -> tuple[Any, ...]:
    """All properties of a section; empty ones if it cannot be read."""
    try:
        return _all_fields(scan(raw).properties)
    except DecodeError:
        return _NO_PROPERTIES


def _read_tail(raw: bytes) -> _Tail:
    """The properties behind the message id, of the count of fields and these bytes."""
    return _read_properties(b"%b%c%c\x40%b" % (_SHORT_PROPERTIES, len(raw) + 1, raw[0], raw[1:]))[1:]


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
                return json.dumps([to_json(item) for item in one.sequences()], ensure_ascii=False)
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
