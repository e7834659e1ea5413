"""The short way for attach frames means what the general codec means, and writes what that writes."""

from dataclasses import fields
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.amqp import fastattach
from pairbus.amqp.composites import encode_composite
from pairbus.amqp.errors import DecodeError
from pairbus.amqp.fastattach import encode_attach, read_attach
from pairbus.amqp.fastframes import encode_flow
from pairbus.amqp.frames import HEADER_SIZE, decode_performative, encode_frame
from pairbus.amqp.performatives import ACCEPTED, Attach, Coordinator, Flow, Source, Target
from pairbus.amqp.types import Symbol
from tests.amqp.values import TEXT
from tests.examples import examples

_ADDRESSES = st.none() | st.sampled_from(["", "orders", "ü" * 40, "a" * 256]) | TEXT
_MAPS = st.sampled_from([None, {}, {Symbol("k"): 1}])
_SYMBOLS = st.sampled_from([None, (), (Symbol("a"), Symbol("b"))])
_NUMBERS = st.sampled_from([None, 0, 1, 255, 256, 1 << 31])
_SOURCES = st.builds(Source, _ADDRESSES) | st.builds(
    Source,
    _ADDRESSES,
    durable=st.integers(0, 2),
    distribution_mode=st.sampled_from([None, "copy"]),
    filter=_MAPS,
    default_outcome=st.sampled_from([None, ACCEPTED]),
    capabilities=_SYMBOLS,
)
_TARGETS = st.builds(Target, _ADDRESSES) | st.builds(Target, _ADDRESSES, dynamic=st.booleans())
ATTACHES = st.builds(
    Attach,
    TEXT | st.just("n" * 300),
    st.sampled_from([0, 1, 119, 255, 256, 1 << 20]),
    st.booleans(),
    st.integers(0, 2),
    st.integers(0, 1),
    st.none() | _SOURCES,
    st.none() | _TARGETS | st.builds(Coordinator),
    _MAPS,
    st.booleans(),
    _NUMBERS,
    _NUMBERS,
    _SYMBOLS,
    _SYMBOLS,
    _MAPS,
)


def _read_generally(data: bytes) -> Any:
    try:
        found, reached = decode_performative(data, HEADER_SIZE, len(data))
    except DecodeError as error:
        return error.condition
    return found if reached == len(data) else "bytes follow"


def _read(data: bytes) -> Any:
    """As a connection does."""
    try:
        found = read_attach(data, HEADER_SIZE, len(data))
    except DecodeError as error:
        return error.condition
    return _read_generally(data) if found is None else found


@settings(max_examples=examples(200))
@given(ATTACHES, st.integers(0, 65535))
def test_the_same_bytes_are_written(attach: Attach, channel: int) -> None:
    assert encode_attach(channel, attach) == encode_frame(channel, attach)


@settings(max_examples=examples(200))
@given(ATTACHES, ATTACHES)
def test_the_same_is_read_whatever_was_read_before(first: Attach, second: Attach) -> None:
    for attach in (first, second, first):
        data = encode_frame(3, attach)
        assert _read(data) == _read_generally(data) == attach


@settings(max_examples=examples(400))
@given(ATTACHES, st.data())
def test_broken_attaches(attach: Attach, data: st.DataObject) -> None:
    raw = bytearray(encode_composite(attach))
    _read(b"\0" * HEADER_SIZE + bytes(raw))  # so that the memo knows its parts
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(3, len(raw) - 1))
        raw[place] = data.draw(
            st.sampled_from([0x40, 0x41, 0x43, 0x45, 0x50, 0x52, 0x56, 0x70, 0xA1, 0xC0, 0xD0, 0, 1, 7, 255])
        )
    frame = b"\0" * HEADER_SIZE + bytes(raw[: data.draw(st.just(len(raw)) | st.integers(3, len(raw)))])
    assert _read(frame) == _read_generally(frame)


def test_what_follows_in_the_buffer_is_not_read() -> None:
    """A frame that claims more than it has must not take it from the next one."""
    attach = encode_composite(Attach("n", 0, False, source=Source("a"), target=Target("b")))
    assert read_attach(attach * 2, 0, len(attach)) is not None
    for size in range(3, len(attach)):
        assert read_attach(attach * 2, 0, size) is None
    longer = attach[:4] + bytes([attach[4] + 1]) + attach[5:]
    assert read_attach(longer + attach, 0, len(attach)) is None


def test_a_link_of_a_known_kind_takes_the_short_way() -> None:
    def make(number: int) -> bytes:
        return encode_composite(Attach(f"n{number}", number, True, 0, 1, Source(f"q{number}"), Target("t")))

    first = make(0)
    read_attach(first, 0, len(first))
    known = dict(fastattach.memo)
    second = make(1)
    assert read_attach(second, 0, len(second)) == Attach("n1", 1, True, 0, 1, Source("q1"), Target("t"))
    assert fastattach.memo == known


def test_what_can_be_changed_is_not_shared() -> None:
    raw = encode_composite(Attach("n", 0, False, source=Source("a", filter={}), target=Target("b")))
    first, second = (read_attach(raw, 0, len(raw)) for _ in range(2))
    assert first is not None
    assert second is not None
    assert first == second
    assert first.source is not second.source
    assert isinstance(first.source, Source)
    assert isinstance(second.source, Source)
    assert first.source.filter is not second.source.filter


def test_the_memo_does_not_grow() -> None:
    for number in range(2000):
        attach = Attach("n", 0, False, source=Source("a"), target=Target("b"), max_message_size=number)
        raw = encode_composite(attach)
        assert read_attach(raw, 0, len(raw)) == attach
    assert len(fastattach.memo) <= 512


@settings(max_examples=examples(100))
@given(st.tuples(*[st.sampled_from([None, 0, 1, 255, 256, 0xFFFFFFFF])] * 8), st.booleans(), st.booleans())
def test_flows_are_written_alike(numbers: tuple[Any, ...], drain: bool, echo: bool) -> None:
    names = [field.name for field in fields(Flow)[:8]]
    flow = Flow(**dict(zip(names, numbers, strict=True)), drain=drain, echo=echo)
    assert encode_flow(7, numbers, drain=drain, echo=echo) == encode_frame(7, flow)
