"""Messages: sections found in one pass, each decoded only when somebody asks.

A broker keeps bodies and properties as the bytes that came, and rewrites header and annotations alone. So
`scan` walks over section headers, notes where each begins and ends, and looks into none. `scan_large` does so
with a message whose body is better left where it is.
"""

import struct
from dataclasses import fields
from typing import Any, Literal, cast

from .composites import (
    ADDRESS,
    BINARY,
    BOOLEAN,
    IDENTIFIER,
    STRING,
    SYMBOL,
    TIMESTAMP,
    UBYTE,
    UINT,
    Composite,
    composite,
    encode_composite,
    from_fields,
    take_field,
)
from .decoding import decode, decode_exactly, skip
from .encoding import encode_into
from .errors import DecodeError, EncodeError
from .limits import MAX_HEAD, MAX_SECTIONS
from .types import Blob, Symbol

BodyKind = Literal["data", "sequence", "value", "none"]
Identifier = str | bytes | Any  # also ULong and UUID

HEADER, DELIVERY_ANNOTATIONS, ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES = range(0x70, 0x75)
DATA, SEQUENCE, VALUE, FOOTER = range(0x75, 0x79)

VALUE_MARK = b"\x00\x53\x77"
"""What stands before the value of an amqp-value section."""

_BODY_KINDS: dict[int, BodyKind] = {DATA: "data", SEQUENCE: "sequence", VALUE: "value", FOOTER: "none"}
_NAMES = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
}

# Bytes, where only views are looked at through a window; the longest name has 31.
_LONGEST_DESCRIPTOR = 64

_u32 = struct.Struct(">I").unpack_from
_pack_u32 = struct.Struct(">I").pack


@composite(0x70, "amqp:header:list", BOOLEAN, UBYTE, UINT, BOOLEAN, UINT, frozen=True)
class Header(Composite):
    """How a message is to be delivered; ttl is in milliseconds. None is what nobody has said: it means
    false, or a priority of 4, but is not passed on as that.
    """

    durable: bool | None = None
    priority: int | None = None
    ttl: int | None = None
    first_acquirer: bool | None = None
    delivery_count: int = 0


@composite(
    0x73,
    "amqp:properties:list",
    *(IDENTIFIER, BINARY, ADDRESS, STRING, ADDRESS, IDENTIFIER, SYMBOL, SYMBOL, TIMESTAMP, TIMESTAMP),
    *(STRING, UINT, STRING),
)
class Properties(Composite):
    """The standard properties; times are milliseconds since the epoch."""

    message_id: Identifier | None = None
    user_id: bytes | None = None
    to: str | None = None
    subject: str | None = None
    reply_to: str | None = None
    correlation_id: Identifier | None = None
    content_type: str | None = None
    content_encoding: str | None = None
    absolute_expiry_time: int | None = None
    creation_time: int | None = None
    group_id: str | None = None
    group_sequence: int | None = None
    reply_to_group_id: str | None = None


NO_HEADER = Header()

_MEMO_SIZE = 1024
#: Headers repeat; a peer that varies them makes us decode, not grow.
known_headers: dict[bytes, Header] = {}


class MessageSections:
    """Where the sections of an encoded message are."""

    __slots__ = (
        "_body",
        "_end",
        "_header",
        "_properties",
        "_property_values",
        "_spans",
        "body_kind",
        "payload",
    )

    def __init__(
        self, payload: bytes, spans: dict[int, tuple[int, int]], body: int, end: int, kind: BodyKind
    ) -> None:
        self.payload = payload
        self._spans = spans
        self._body = body
        self._end = end
        self.body_kind: BodyKind = kind
        self._header: Header | None = None
        self._properties: Properties | None = None
        self._property_values: list[Any] | None = None

    @property
    def has_maps(self) -> bool:
        """Whether there are annotations of either kind, or application properties."""
        spans = self._spans
        return ANNOTATIONS in spans or APPLICATION_PROPERTIES in spans or DELIVERY_ANNOTATIONS in spans

    @property
    def header(self) -> Header:
        if self._header is None:
            self._header = _read_header(self._raw(HEADER))
        return self._header

    @property
    def properties(self) -> Properties:
        if self._properties is None:
            self._properties = Properties(*self.property_values)
        return self._properties

    @property
    def property_values(self) -> list[Any]:
        """The values of the properties in their order, those at the end that are null perhaps left out: for
        whoever wants a few.
        """
        if self._property_values is None:
            span = self._spans.get(PROPERTIES)
            self._property_values = read_properties(self.payload, *span) if span else []
        return self._property_values

    @property
    def delivery_annotations(self) -> dict[Any, Any]:
        return self._map(DELIVERY_ANNOTATIONS)

    @property
    def annotations(self) -> dict[Any, Any]:
        return self._map(ANNOTATIONS)

    @property
    def application_properties(self) -> dict[Any, Any]:
        return self._map(APPLICATION_PROPERTIES)

    @property
    def header_bytes(self) -> bytes:
        return self._raw(HEADER)

    @property
    def annotations_bytes(self) -> bytes:
        return self._raw(ANNOTATIONS)

    @property
    def properties_bytes(self) -> bytes:
        return self._raw(PROPERTIES)

    @property
    def application_properties_bytes(self) -> bytes:
        return self._raw(APPLICATION_PROPERTIES)

    @property
    def body_bytes(self) -> bytes:
        """Body sections and footer as they came, in the order of the standard."""
        return self.payload[self._body : self._end]

    @property
    def body(self) -> Blob:
        """The same; of a large message it is a view."""
        return self.body_bytes

    def data_sections(self) -> list[bytes]:
        """The binaries of the data sections: of a batch, its messages."""
        if self.body_kind != "data":
            return []
        sections, at, payload = [], self._body, self.payload
        while at < self._end:
            code, start = _read_descriptor(payload, at)
            end = skip(payload, start)
            if code == DATA:
                sections.append(payload[start + (2 if payload[start] == 0xA0 else 5) : end])
            at = end
        return sections

    def data(self) -> bytes:
        """The binaries of the data sections in one piece."""
        payload, at = self.payload, self._body
        # One section that reaches to the end is what nearly every message has.
        if payload[at : at + 4] == b"\x00\x53\x75\xb0" and at + 8 + _u32(payload, at + 4)[0] == len(payload):
            return payload[at + 8 :]
        return b"".join(self.data_sections())

    def sequences(self) -> list[list[Any]]:
        """The lists of a body of sequences."""
        found, at = [], self._body
        while at < self._end:
            code, start = _read_descriptor(self.payload, at)
            items, at = decode(self.payload, start)
            if code == SEQUENCE:
                found.append(items)
        return found

    def value(self) -> Any:
        """The body of an amqp-value message, decoded."""
        if self.body_kind != "value":
            raise DecodeError(f"the body is {self.body_kind}, not one value")
        return decode(self.payload, _read_descriptor(self.payload, self._body)[1])[0]

    def footer(self) -> dict[Any, Any]:
        """What stands behind the body; nobody but the application reads it."""
        at = self._body
        while at < self._end:
            code, start = _read_descriptor(self.payload, at)
            if code == FOOTER:
                found: dict[Any, Any] = decode(self.payload, start)[0]
                return found
            at = skip(self.payload, start)
        return {}

    def _raw(self, code: int) -> bytes:
        span = self._spans.get(code)
        return self.payload[span[0] : span[1]] if span else b""

    def _map(self, code: int) -> dict[Any, Any]:
        span = self._spans.get(code)
        if span is None:
            return {}
        start = _read_descriptor(self.payload, span[0])[1]
        value = decode_exactly(self.payload, start, span[1])
        if not isinstance(value, dict):
            raise DecodeError("a section that must be a map is none")
        return value


class LargeSections(MessageSections):
    """Of a message whose body stays where it is: `payload` has all but that."""

    __slots__ = ("_view",)

    def __init__(
        self, payload: bytes, spans: dict[int, tuple[int, int]], body: memoryview, kind: BodyKind
    ) -> None:
        super().__init__(payload, spans, len(payload), len(payload), kind)
        self._view = body

    @property
    def body_bytes(self) -> bytes:
        return bytes(self._view)

    @property
    def body(self) -> Blob:
        return self._view

    def data_sections(self) -> list[bytes]:
        return scan(self.body_bytes).data_sections()

    def data(self) -> bytes:
        return scan(self.body_bytes).data()

    def sequences(self) -> list[list[Any]]:
        return scan(self.body_bytes).sequences()

    def value(self) -> Any:
        return scan(self.body_bytes).value()

    def footer(self) -> dict[Any, Any]:
        return scan(self.body_bytes).footer()


def scan_large(payload: memoryview) -> MessageSections:
    """Find the sections of an encoded message, and copy no more than those before its body."""
    found = scan(cast(bytes, payload))  # whose headers are read in a view as in bytes
    spans, begin, end = found._spans, found._body, found._end
    if max(begin, len(payload) - end) > MAX_HEAD:
        raise DecodeError(f"there are more than {MAX_HEAD} bytes beside the body of a message")
    head = bytes(payload[:begin])
    for code, (start, stop) in spans.items():
        if start >= end:  # what stands behind the body comes behind the others
            spans[code] = len(head), len(head) + stop - start
            head += bytes(payload[start:stop])
    return LargeSections(head, spans, payload[begin:end], found.body_kind)


def scan(payload: bytes) -> MessageSections:
    """Find the sections of an encoded message.

    Clients have orders of their own, which the service takes. Delivery annotations may stand anywhere: uamqp
    writes them before the body, the Python SDK behind it. The footer may stand before the body (go-amqp).
    """
    spans: dict[int, tuple[int, int]] = {}
    at, size, last = 0, len(payload), HEADER - 1
    try:
        while at < size:
            if payload[at + 1] == 0x53 and payload[at] == 0:
                code, start = payload[at + 2], at + 3
            else:
                code, start = _read_descriptor(payload, at)
            kind = payload[start]
            if code >= DATA:
                # One data section that reaches to the end is what nearly every message has.
                if code == DATA and kind == 0xB0 and start + 5 + _u32(payload, start + 1)[0] == size:
                    return MessageSections(payload, spans, at, size, "data")
                return _scan_body(payload, at, spans)
            if kind == 0xC0 or kind == 0xC1:
                end = start + 2 + payload[start + 1]
            elif kind == 0xD0 or kind == 0xD1:
                end = start + 5 + _u32(payload, start + 1)[0]
            elif kind == 0x45:
                end = start + 1
            else:
                raise DecodeError("a section is neither a list nor a map")
            if code > last:
                last = code
            elif code != DELIVERY_ANNOTATIONS or code in spans:
                raise DecodeError("sections are out of order or unknown")
            if end > size:
                raise DecodeError("a section is cut short")
            spans[code] = at, end
            at = end
    except (IndexError, struct.error):
        raise DecodeError("a message ends inside a section") from None
    return MessageSections(payload, spans, size, size, "none")


# Which body section may follow which (part 3.2); 0 is the beginning.
_FOLLOWERS: dict[int, tuple[int, ...]] = {
    0: (DATA, SEQUENCE, VALUE, FOOTER),
    DATA: (DATA, FOOTER),
    SEQUENCE: (SEQUENCE, FOOTER),
    VALUE: (FOOTER,),
    FOOTER: (),
}


def _scan_body(payload: Blob, begin: int, spans: dict[int, tuple[int, int]]) -> MessageSections:
    """Check that the body's sections follow each other and reach exactly to the end."""
    at, size, last = begin, len(payload), 0
    body_at, kind = begin, _BODY_KINDS[FOOTER]
    for _ in range(MAX_SECTIONS):
        code, start = _read_descriptor(payload, at)
        end = skip(payload, start)
        if code == DELIVERY_ANNOTATIONS and at > begin and end == size:
            spans.setdefault(code, (at, end))
            break
        if code not in _FOLLOWERS[last] or (code == FOOTER and body_at > begin):
            raise DecodeError("body sections are unknown, mixed or out of order")
        if code == DATA and payload[start] not in (0xA0, 0xB0):
            raise DecodeError("a data section is no binary")
        if code == FOOTER and at == begin:
            body_at = end
        else:
            kind = _BODY_KINDS[code] if not last else kind
            last = code
        at = end
        if at == size:
            break
    else:
        raise DecodeError("a message has too many sections")
    if begin < body_at < at:
        if isinstance(payload, memoryview):
            raise DecodeError("the footer of a message this large comes behind its body")
        payload = b"".join((payload[:begin], payload[body_at:at], payload[begin:body_at], payload[at:]))
    return MessageSections(cast(bytes, payload), spans, begin, at, kind)


def _read_descriptor(payload: Blob, at: int) -> tuple[int, int]:
    """A section's code, and the place of its value."""
    if payload[at] != 0:
        raise DecodeError("a section does not begin with a descriptor")
    if payload[at + 1] == 0x53:
        return payload[at + 2], at + 3
    if isinstance(payload, memoryview):
        code, start = _read_descriptor(bytes(payload[at : at + _LONGEST_DESCRIPTOR]), 0)
        return code, at + start
    descriptor, start = decode(payload, at + 1)
    if isinstance(descriptor, Symbol):
        return _NAMES.get(descriptor, 0), start
    return (descriptor, start) if isinstance(descriptor, int) else (0, start)


def _read_header(raw: bytes) -> Header:
    if not raw:
        return NO_HEADER
    header = known_headers.get(raw)
    if header is None:
        start = _read_descriptor(raw, 0)[1]
        found = from_fields(Header, decode_exactly(raw, start, len(raw)))
        assert isinstance(found, Header)
        header = found
        if len(raw) <= 32:
            if len(known_headers) >= _MEMO_SIZE:
                known_headers.clear()
            known_headers[raw] = header
    return header


# Fields of the properties that may be strings: the two ids, to, subject, reply-to and the two groups.
_TEXT_FIELDS = frozenset((0, 2, 3, 4, 5, 10, 12))
_NULLS = b"\x40" * 13


def read_properties(payload: bytes, at: int, end: int) -> list[Any]:
    """The values of a section of properties. By hand: nearly all fields are null or a short string."""
    start = at + 3 if payload[at + 1] == 0x53 else _read_descriptor(payload, at)[1]
    if payload[start] != 0xC0 or end - start < 3 or payload[start + 2] > 13:
        found = from_fields(Properties, decode_exactly(payload, start, end))
        return [getattr(found, field.name) for field in fields(Properties)]
    values: list[Any] = []
    p = start + 3
    try:
        count = payload[start + 2]
        if count and payload[p] == 0xA1:  # the message id, which many write alone
            stop = p + 2 + payload[p + 1]
            values.append(payload[p + 2 : stop].decode())
            p = stop
            if p <= end and payload[p:end] == _NULLS[: count - 1]:
                return values
        for index in range(len(values), count):
            code = payload[p]
            if code == 0x40:
                values.append(None)
                p += 1
            elif code == 0xA1 and index in _TEXT_FIELDS:
                stop = p + 2 + payload[p + 1]
                values.append(payload[p + 2 : stop].decode())
                p = stop
            else:
                value, p = decode(payload, p)
                values.append(None if value is None else take_field(Properties, index, value))
    except (IndexError, UnicodeDecodeError):
        raise DecodeError("the properties of a message are broken") from None
    if p != end:
        raise DecodeError("the properties of a message do not fill their section")
    return values


def encode_header(header: Header) -> bytes:
    """By hand, since each delivery has a header of its own."""
    durable, priority, ttl, first = header.durable, header.priority, header.ttl, header.first_acquirer
    try:
        fields = b"%c%b%b%c\x70%b" % (
            0x40 if durable is None else 0x42 - durable,
            b"\x40" if priority is None else b"\x50%c" % priority,
            b"\x40" if ttl is None else b"\x70" + _pack_u32(ttl),
            0x40 if first is None else 0x42 - first,
            _pack_u32(header.delivery_count),
        )
    except (OverflowError, struct.error):
        raise EncodeError("a number in a header is out of its range") from None
    return b"\x00\x53\x70\xc0%c\x05%b" % (len(fields) + 1, fields)


def encode_properties(properties: Properties) -> bytes:
    return encode_composite(properties)


def encode_delivery_annotations(annotations: dict[Any, Any]) -> bytes:
    return _encode_section(b"\x00\x53\x71", annotations)


def encode_annotations(annotations: dict[Any, Any]) -> bytes:
    return _encode_section(b"\x00\x53\x72", annotations)


def encode_application_properties(properties: dict[Any, Any]) -> bytes:
    return _encode_section(b"\x00\x53\x74", properties)


def encode_data(data: bytes) -> bytes:
    if len(data) < 256:
        return b"\x00\x53\x75\xa0%c%b" % (len(data), data)
    return b"\x00\x53\x75\xb0%b%b" % (_pack_u32(len(data)), data)


def encode_sequence(items: list[Any]) -> bytes:
    return _encode_section(b"\x00\x53\x76", items)


def encode_footer(entries: dict[Any, Any]) -> bytes:
    return _encode_section(b"\x00\x53\x78", entries)


def encode_value(value: Any) -> bytes:
    return _encode_section(VALUE_MARK, value)


def _encode_section(descriptor: bytes, value: Any) -> bytes:
    out = bytearray(descriptor)
    encode_into(out, value)
    return bytes(out)
