import dataclasses
from typing import Any, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.amqp import performatives
from pairbus.amqp.composites import Composite, encode_composite, from_described, from_fields
from pairbus.amqp.decoding import decode
from pairbus.amqp.encoding import encode
from pairbus.amqp.errors import DecodeError
from pairbus.amqp.performatives import (
    AmqpError,
    Attach,
    Begin,
    Close,
    Coordinator,
    Declared,
    DeliveryOutcome,
    DeliveryState,
    Detach,
    Disposition,
    Flow,
    Modified,
    Open,
    Rejected,
    SaslInit,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from pairbus.amqp.types import Described, Symbol, UByte, UInt, ULong
from pairbus.conditions import INVALID_FIELD
from tests.amqp.values import KEYS, SCALAR, TEXT

CLASSES = [
    cls
    for cls in vars(performatives).values()
    if isinstance(cls, type) and issubclass(cls, Composite) and cls is not Composite
]

_NAMES = st.text(st.characters(codec="ascii"), max_size=20)
_MAPS = st.dictionaries(KEYS, SCALAR.filter(lambda value: value == value), max_size=3)
_ERRORS = st.builds(AmqpError, _NAMES, TEXT, _MAPS)
_OUTCOMES = st.one_of(
    st.just(performatives.Accepted()),
    st.just(performatives.Released()),
    st.builds(Rejected, st.none() | _ERRORS),
    st.builds(Modified, st.none() | st.booleans(), st.none() | st.booleans(), st.none() | _MAPS),
    st.builds(Described, st.just(ULong(0x35)), st.just([b"unknown"])),
)
_STATES = (
    _OUTCOMES
    | st.builds(Declared, st.binary(max_size=20))
    | st.builds(TransactionalState, st.binary(max_size=20), st.none() | _OUTCOMES)
)
_SOURCES = st.builds(
    Source, st.none() | TEXT, filter=st.none() | _MAPS, default_outcome=st.none() | _OUTCOMES
)
_TARGETS = st.builds(Target, st.none() | TEXT) | st.builds(Coordinator)
_SYMBOLS = st.lists(_NAMES.map(Symbol), max_size=3).map(tuple)

_BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    str: _NAMES,
    bool: st.booleans(),
    int: st.integers(0, 255),
    bytes: st.binary(max_size=20),
    dict[Any, Any]: _MAPS,
    performatives.Symbols: _SYMBOLS,
    AmqpError: _ERRORS,
    DeliveryState: _STATES,
    DeliveryOutcome | Described: _OUTCOMES,
    Any: st.none() | TEXT,
    Source | Described: _SOURCES,
    Target | Coordinator | Described: _TARGETS,
}
_OPTIONAL: dict[Any, st.SearchStrategy[Any]] = {
    kind | None: st.none() | strategy for kind, strategy in _BY_TYPE.items()
}


def _instances(cls: type[Composite]) -> st.SearchStrategy[Composite]:
    kinds = get_type_hints(cls)
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    return st.builds(cls, **{name: (_BY_TYPE | _OPTIONAL)[kinds[name]] for name in names})


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_composite_comes_back_as_it_was(cls: type[Composite]) -> None:
    @settings(max_examples=25)
    @given(_instances(cls))
    def check(value: Composite) -> None:
        assert from_described(decode(encode_composite(value))[0]) == value

    check()


def test_there_is_a_class_for_every_performative() -> None:
    assert {cls.CODE for cls in CLASSES} == {
        *range(0x10, 0x19),
        0x1D,
        *range(0x23, 0x2A),
        *range(0x30, 0x35),
        *range(0x40, 0x45),
    }


def test_an_error_always_has_three_fields_and_a_map() -> None:
    raw = encode_composite(AmqpError("amqp:not-found"))
    found = decode(raw)[0]
    assert found.value == ["amqp:not-found", "", {}]
    inside = decode(encode_composite(Detach(0, True, AmqpError("c", "d"))))[0]
    assert inside.value[2].value == ["c", "d", {}]


def test_trailing_nulls_are_written() -> None:
    assert len(decode(encode_composite(Transfer(0)))[0].value) == 11
    assert len(decode(encode_composite(Source()))[0].value) == 11
    assert decode(encode_composite(Rejected()))[0].value == [None]


def test_missing_and_null_fields_read_as_the_default() -> None:
    short = from_fields(Open, ["me"])
    nulls = from_fields(Open, ["me", None, None, None])
    assert short == nulls == Open("me", max_frame_size=0xFFFFFFFF, channel_max=65535)
    assert from_fields(AmqpError, [Symbol("c"), None, None]) == AmqpError("c", "", {})
    assert from_fields(Begin, [None, UInt(1), UInt(2), UInt(3)]) == Begin(
        next_outgoing_id=1, incoming_window=2, outgoing_window=3
    )


def test_defaults_are_not_shared() -> None:
    first, second = (from_fields(AmqpError, [Symbol("c")]) for _ in range(2))
    assert isinstance(first, AmqpError)
    assert isinstance(second, AmqpError)
    assert first.info is not second.info


@pytest.mark.parametrize(
    ("cls", "fields"),
    [
        (Open, []),
        (Open, [None]),
        (Open, [b"bytes"]),
        (Open, ["me", None, -1]),
        (Open, ["me", None, None, UInt(65536)]),
        (Begin, [None, UInt(1), UInt(2)]),
        (Attach, ["n", True, False]),
        (Attach, ["n", UInt(0), False, None, None, []]),
        (Attach, ["n", UInt(0), False, None, None, Described(ULong(0x29), [])]),
        (Flow, [None, UInt(1), UInt(1), "x"]),
        (Disposition, [UInt(1), UInt(1)]),
        (Disposition, [True, UInt(1), None, None, "accepted"]),
        (Detach, [UInt(0), True, Described(ULong(0x24), [])]),
        (Source, [None, None, None, None, None, None, None, None, None, [1]]),
    ],
)
def test_fields_of_a_wrong_type_are_the_peers_fault(cls: type[Composite], fields: list[Any]) -> None:
    with pytest.raises(DecodeError) as caught:
        from_fields(cls, fields)
    assert caught.value.condition == INVALID_FIELD


@pytest.mark.parametrize("fields", [[None] * 2, "x", {}, None])
def test_what_is_no_field_list_is_refused(fields: Any) -> None:
    with pytest.raises(DecodeError):
        from_fields(Close, fields)


def test_peers_may_be_loose_about_widths_and_strings() -> None:
    assert from_fields(Detach, [UByte(3)]) == Detach(3)
    assert from_fields(Source, [Symbol("a")]) == Source("a")
    one, many = (
        from_fields(Source, [None] * 9 + [value]) for value in (Symbol("x"), decode(encode([Symbol("x")]))[0])
    )
    assert one == many == Source(outcomes=("x",))


def test_descriptors_may_be_symbols() -> None:
    assert from_described(Described(Symbol("amqp:accepted:list"), [])) == performatives.Accepted()


def test_described_values_of_no_known_class_are_kept() -> None:
    unknown = Described(ULong(0x999), [1])
    assert from_described(unknown) is unknown
    found = from_fields(Disposition, [True, UInt(1), None, True, unknown])
    assert isinstance(found, Disposition)
    assert found.state is unknown


def test_secrets_stay_out_of_repr() -> None:
    assert "hunter2" not in repr(SaslInit("PLAIN", b"\0me\0hunter2"))
