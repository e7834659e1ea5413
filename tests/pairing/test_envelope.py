import uuid
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.amqp import message as amqp
from pairbus.amqp.types import Described, Int, Symbol, Timestamp
from pairbus.options import TtlPolicy
from pairbus.pairing.envelope import (
    ALIAS_PATH,
    ALIAS_SCHEDULED,
    ALIAS_SESSION,
    ALIAS_TTL,
    BODY_ENCODING,
    BODY_SIZE,
    RESERVED_NAMES,
    Aliases,
    Long,
    Natives,
    TimestampMs,
    Unwrapped,
    check_properties,
    compress_body,
    expand_body,
    unwrap,
    wrap,
)
from pairbus.pairing.errors import MalformedEnvelope, ReservedPropertyError

NOW = 1_700_000_000_000
MINUTE = 60_000


def open_envelope(
    properties: dict[Any, Any],
    *,
    policy: TtlPolicy = "pause",
    waited_ms: int = 0,
    expires_ms: int | None = None,
) -> Unwrapped:
    return unwrap(properties, policy=policy, now_ms=NOW + waited_ms, enqueued_ms=NOW, expires_ms=expires_ms)


def on_the_wire(aliases: Aliases) -> dict[Any, Any]:
    """The aliases as the codec of the pump gives them back."""
    values = {
        name: Timestamp(value)
        if isinstance(value, TimestampMs)
        else int(value)
        if isinstance(value, int)
        else value
        for name, value in aliases.items()
    }
    return amqp.scan(amqp.encode_application_properties(values)).application_properties


def as_the_sdk(properties: dict[Any, Any]) -> dict[Any, Any]:
    """As the SDK gives received properties: keys and strings as bytes, numbers without their types."""
    return {
        key.encode(): value.encode() if isinstance(value, str) else int(value)
        for key, value in properties.items()
    }


def test_only_what_is_set_becomes_an_alias() -> None:
    wrapped = wrap("orders", Natives())
    assert wrapped.aliases == {"x-ms-path": "orders"}
    assert wrapped.natives == Natives()


def test_natives_are_cleared_and_kept_as_aliases_of_their_types() -> None:
    natives = Natives(session_id="s1", ttl_ms=90_000, expires_ms=NOW + 90_000, scheduled_ms=NOW)
    wrapped = wrap("sales/orders", natives)
    assert wrapped.natives == Natives()
    assert wrapped.aliases == {
        "x-ms-path": "sales/orders",
        "x-ms-sessionid": "s1",
        "x-ms-timetolive": 900_000_000,
        "x-ms-scheduledenqueuetimeutc": NOW,
    }
    assert type(wrapped.aliases[ALIAS_TTL]) is Long
    assert type(wrapped.aliases[ALIAS_SCHEDULED]) is TimestampMs


def test_an_empty_session_and_a_lifetime_of_nothing_are_set() -> None:
    aliases = wrap("orders", Natives(session_id="", ttl_ms=0)).aliases
    assert (aliases[ALIAS_SESSION], aliases[ALIAS_TTL]) == ("", 0)


def test_an_expiry_without_a_time_to_live_is_left_alone() -> None:
    wrapped = wrap("orders", Natives(expires_ms=NOW))
    assert wrapped.natives == Natives(expires_ms=NOW)
    assert open_envelope(dict(wrapped.aliases), expires_ms=NOW).natives == Natives(expires_ms=NOW)


@pytest.mark.parametrize("name", sorted(RESERVED_NAMES))
@pytest.mark.parametrize("spell", [str, str.upper, str.encode, str.title])
def test_a_users_property_with_a_reserved_name_is_refused(name: str, spell: Any) -> None:
    with pytest.raises(ReservedPropertyError, match="(?i)" + name):
        check_properties({"fine": 1, spell(name): 2})


def test_other_properties_are_not_refused() -> None:
    check_properties(None)
    check_properties({})
    check_properties({"x-ms-path-2": 1, "path": 2, b"\xff": 3, "": 4, "x-": 5})


natives = st.builds(
    lambda session, ttl, scheduled: Natives(
        session_id=session,
        ttl_ms=ttl,
        expires_ms=None if ttl is None else NOW + ttl,
        scheduled_ms=scheduled,
    ),
    st.none() | st.text(max_size=128),
    st.none() | st.integers(0, 2**32 - 1),
    st.none() | st.integers(-NOW, NOW),
)
paths = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}(/[A-Za-z0-9._-]{1,20}){0,3}", fullmatch=True)
properties = st.dictionaries(
    st.text(max_size=20).filter(lambda name: name.lower() not in RESERVED_NAMES),
    st.none() | st.booleans() | st.integers(-(2**31), 2**31) | st.text(max_size=20) | st.binary(max_size=20),
    max_size=5,
)


@given(paths, natives, properties, st.booleans())
def test_what_is_wrapped_comes_out_as_it_was(
    path: str, before: Natives, own: dict[Any, Any], through_sdk: bool
) -> None:
    wire = on_the_wire(wrap(path, before).aliases)
    opened = open_envelope({**own, **(as_the_sdk(wire) if through_sdk else wire)})
    assert opened.path == path
    assert opened.natives == before
    assert opened.application_properties == own
    assert (opened.body_size, opened.expired) == (None, False)


def test_the_types_of_other_properties_are_not_touched() -> None:
    own = {"a": Int(5), "b": Symbol("s"), "c": uuid.UUID(int=7), b"d": b"raw"}
    opened = open_envelope({ALIAS_PATH: "orders", **own})
    assert opened.application_properties == own
    assert [type(value) for value in opened.application_properties.values()] == [
        Int,
        Symbol,
        uuid.UUID,
        bytes,
    ]


def test_pause_gives_the_full_time_anew() -> None:
    opened = open_envelope({ALIAS_PATH: "q", ALIAS_TTL: MINUTE * 10_000}, waited_ms=10 * MINUTE)
    assert opened.natives == Natives(ttl_ms=MINUTE, expires_ms=NOW + 11 * MINUTE)
    assert not opened.expired


@pytest.mark.parametrize(("waited", "left"), [(0, 60_000), (20_000, 40_000), (59_999, 1)])
def test_deduct_gives_what_is_left(waited: int, left: int) -> None:
    opened = open_envelope({ALIAS_PATH: "q", ALIAS_TTL: MINUTE * 10_000}, policy="deduct", waited_ms=waited)
    assert opened.natives == Natives(ttl_ms=left, expires_ms=NOW + MINUTE)
    assert not opened.expired


@pytest.mark.parametrize("waited", [MINUTE, MINUTE + 1, 10**9])
def test_deduct_tells_what_has_expired(waited: int) -> None:
    opened = open_envelope({ALIAS_PATH: "q", ALIAS_TTL: MINUTE * 10_000}, policy="deduct", waited_ms=waited)
    assert opened.expired
    assert opened.natives.ttl_ms == 0


def test_a_clock_that_differs_does_not_lengthen_a_life() -> None:
    opened = open_envelope({ALIAS_PATH: "q", ALIAS_TTL: MINUTE * 10_000}, policy="deduct", waited_ms=-5000)
    assert opened.natives.ttl_ms == MINUTE


def test_the_life_of_a_scheduled_message_begins_when_it_is_due() -> None:
    envelope = {ALIAS_PATH: "q", ALIAS_TTL: MINUTE * 10_000, ALIAS_SCHEDULED: NOW + 5 * MINUTE}
    early = open_envelope(envelope, policy="deduct", waited_ms=3 * MINUTE)
    assert (early.natives.ttl_ms, early.natives.expires_ms) == (MINUTE, NOW + 6 * MINUTE)
    late = open_envelope(envelope, policy="deduct", waited_ms=5 * MINUTE + 1000)
    assert (late.natives.ttl_ms, late.expired) == (59_000, False)
    assert open_envelope(envelope, policy="deduct", waited_ms=6 * MINUTE).expired


@pytest.mark.parametrize(
    ("ticks", "ttl_ms", "expires_ms"),
    [
        (1, 1, NOW + 1),  # rounded up, or the message would be dead on arrival
        (10_001, 2, NOW + 2),
        (2**32 * 10_000, 2**32 - 1, NOW + 2**32),  # more than the header holds
        (2**63 - 2, 2**32 - 1, 253_402_243_199_000),
        (2**63 - 1, None, None),  # no limit
    ],
)
def test_ticks_become_what_the_header_can_hold(
    ticks: int, ttl_ms: int | None, expires_ms: int | None
) -> None:
    opened = open_envelope({ALIAS_PATH: "q", ALIAS_TTL: ticks})
    assert opened.natives == Natives(ttl_ms=ttl_ms, expires_ms=expires_ms)


def test_a_timespan_of_the_original_is_read() -> None:
    for descriptor in (Symbol("com.microsoft:timespan"), b"com.microsoft:timespan"):
        opened = open_envelope({ALIAS_PATH: "q", ALIAS_TTL: Described(descriptor, 10_000)})
        assert opened.natives.ttl_ms == 1


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2023, 11, 14, 22, 13, 20, 5999, tzinfo=UTC),
        datetime(2023, 11, 14, 22, 13, 20, 5999),  # the SDK's own dates may lack a zone
        datetime(2023, 11, 15, 0, 13, 20, 5999, tzinfo=timezone(timedelta(hours=2))),
    ],
)
def test_a_date_is_read_as_a_timestamp(moment: datetime) -> None:
    assert open_envelope({ALIAS_PATH: "q", ALIAS_SCHEDULED: moment}).natives.scheduled_ms == NOW + 5


@pytest.mark.parametrize(
    ("envelope", "reason"),
    [
        (None, "it has no property x-ms-path"),
        ({"other": 1}, "it has no property x-ms-path"),
        ({ALIAS_PATH: None}, "x-ms-path must be a string, not null"),
        ({ALIAS_PATH: 5}, "x-ms-path must be a string, not int"),
        ({ALIAS_PATH: b"\xff"}, "x-ms-path must be a string, not bytes"),
        ({ALIAS_PATH: ""}, "not the path"),
        ({ALIAS_PATH: "/"}, "not the path"),
        ({ALIAS_PATH: "a//b"}, "not the path"),
        ({ALIAS_PATH: "orders/$management"}, "not the path"),
        ({ALIAS_PATH: "$cbs"}, "not the path"),
        ({ALIAS_PATH: "a\nb"}, "not the path"),
        ({ALIAS_PATH: "x" * 261}, "261 characters"),
        ({ALIAS_SESSION: 5}, "x-ms-sessionid must be a string, not int"),
        ({ALIAS_SESSION: "s" * 129}, "129 characters"),
        ({ALIAS_TTL: "60"}, "x-ms-timetolive must be a count of 100 ns ticks, not str"),
        ({ALIAS_TTL: True}, "not bool"),
        ({ALIAS_TTL: 1.5}, "not float"),
        ({ALIAS_TTL: -1}, "-1 is below 0"),
        ({ALIAS_TTL: Described(Symbol("com.example:other"), 1)}, "not Described"),
        ({ALIAS_TTL: Described(Symbol("com.microsoft:timespan"), "1")}, "not str"),
        ({ALIAS_SCHEDULED: "2023-11-14"}, "x-ms-scheduledenqueuetimeutc must be an AMQP timestamp, not str"),
        ({ALIAS_SCHEDULED: None}, "not null"),
        ({BODY_ENCODING: "gzip", BODY_SIZE: 5}, "x-pairbus-body-encoding must be 'deflate', not 'gzip'"),
        ({BODY_SIZE: 5}, "x-pairbus-body-encoding must be 'deflate', not None"),
        ({BODY_ENCODING: "deflate"}, "x-pairbus-body-size must be a number of bytes, not null"),
        ({BODY_ENCODING: "deflate", BODY_SIZE: 10**10}, "no message is larger"),
    ],
)
def test_what_cannot_be_unwrapped_says_why(envelope: dict[Any, Any] | None, reason: str) -> None:
    given = (
        envelope
        if envelope is None or ALIAS_PATH in envelope or "other" in envelope
        else {
            ALIAS_PATH: "orders",
            **envelope,
        }
    )
    with pytest.raises(MalformedEnvelope, match=reason) as caught:
        unwrap(given, policy="pause", now_ms=NOW, enqueued_ms=NOW)
    assert caught.value.dead_letter_reason == "MalformedEnvelope"


wild = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.builds(Described, inner, inner),
    max_leaves=3,
)


@given(st.dictionaries(st.sampled_from(sorted(RESERVED_NAMES)), wild), st.sampled_from(["pause", "deduct"]))
def test_nothing_but_a_malformed_envelope_is_ever_raised(envelope: dict[Any, Any], policy: TtlPolicy) -> None:
    try:
        opened = unwrap(envelope, policy=policy, now_ms=NOW, enqueued_ms=NOW)
    except MalformedEnvelope:
        return
    assert opened.path
    assert opened.application_properties == {}
    assert opened.natives.ttl_ms is None or 0 <= opened.natives.ttl_ms < 2**32


@given(st.binary(max_size=3000))
def test_a_compressed_body_is_expanded_to_the_bit(body: bytes) -> None:
    compressed = compress_body(body)
    wire = on_the_wire(wrap("orders", Natives()).aliases | compressed.markers)
    opened = open_envelope({**wire, "mine": 1})
    assert opened.body_size == len(body)
    assert opened.application_properties == {"mine": 1}
    assert expand_body(compressed.data, opened.body_size) == body


def test_body_sections_of_every_kind_pass_through_compression() -> None:
    for section in (amqp.encode_data(b"one") + amqp.encode_data(b"two"), amqp.encode_value({"a": [1, None]})):
        compressed = compress_body(section)
        assert expand_body(compressed.data, len(section)) == section


@pytest.mark.parametrize("size", [0, 999, 1001, 5000])
def test_a_body_of_another_size_than_promised_is_malformed(size: int) -> None:
    with pytest.raises(MalformedEnvelope, match="does not have"):
        expand_body(compress_body(b"x" * 1000).data, size)


def test_a_torn_or_foreign_body_is_malformed() -> None:
    data = compress_body(bytes(range(256)) * 4).data
    with pytest.raises(MalformedEnvelope):
        expand_body(data[:-3], 1024)
    with pytest.raises(MalformedEnvelope, match="cannot be expanded"):
        expand_body(b"not compressed", 1024)


def test_a_bomb_is_not_unpacked() -> None:
    bomb = compress_body(bytes(50_000_000)).data
    with pytest.raises(MalformedEnvelope, match="does not have the 10 bytes"):
        expand_body(bomb, 10)
