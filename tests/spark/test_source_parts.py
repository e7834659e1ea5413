"""Parts of the source that need no session: values as texts, ranges, shares and options."""

import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from pairbus import words
from pairbus.amqp.errors import DecodeError
from pairbus.amqp.message import (
    Header,
    Properties,
    encode_annotations,
    encode_application_properties,
    encode_data,
    encode_delivery_annotations,
    encode_header,
    encode_properties,
    encode_value,
    scan,
)
from pairbus.amqp.types import Symbol, Timestamp
from pairbus.errors import ConfigurationError
from pairbus.spark.source.annotations import read_annotations
from pairbus.spark.source.decoding import MessagePage, make_batch
from pairbus.spark.source.encoding import RowEncoder
from pairbus.spark.source.options import OPTIONS, SourceSettings
from pairbus.spark.source.properties import read_map, text_map
from pairbus.spark.source.reader import MessageReader, divide
from pairbus.spark.source.sections import cut, cut_page
from pairbus.spark.source.stream_reader import Span, share
from pairbus.spark.source.values import UnreadableValue, from_text, to_text
from tests.amqp.values import VALUES, same

from .strategies import texts


@given(value=VALUES)
def test_a_value_comes_back_from_its_text(value: Any) -> None:
    name, text = to_text(value)
    back = from_text(name, text)
    assert same(back, value)


@given(properties=st.dictionaries(st.text(max_size=300), VALUES, max_size=5))
def test_properties_are_read_from_the_wire_as_through_the_codec(properties: dict[str, Any]) -> None:
    assert read_map(encode_application_properties(properties)) == text_map(properties)


_maps = st.dictionaries(st.sampled_from("abc").map(Symbol), st.text(max_size=150), max_size=3)
_bodies = st.one_of(
    st.binary(max_size=300).map(encode_data),
    st.lists(st.binary(max_size=5), max_size=3).map(lambda found: b"".join(map(encode_data, found))),
    texts.map(encode_value),
)
_sections = st.tuples(
    st.one_of(st.just(b""), st.integers(0, 9).map(lambda count: encode_header(Header(delivery_count=count)))),
    st.one_of(st.just(b""), st.just(encode_delivery_annotations({Symbol("x"): 1}))),
    st.one_of(st.just(b""), _maps.map(encode_annotations)),
    st.one_of(st.just(b""), texts.map(lambda text: encode_properties(Properties(text, subject=20 * text)))),
    st.one_of(st.just(b""), _maps.map(encode_application_properties)),
    _bodies,
).map(b"".join)


def _scanned(payload: bytes) -> tuple[Any, ...] | None:
    try:
        one = scan(payload)
    except DecodeError:
        return None
    raw = one.header_bytes, one.annotations_bytes, one.properties_bytes, one.application_properties_bytes
    return (*raw, one.data() if len(one.data_sections()) == 1 else None)


@given(payload=_sections, size=st.integers(0, 2000), place=st.integers(0, 2000), byte=st.integers(0, 255))
def test_messages_are_cut_as_the_scanner_finds_their_sections(
    payload: bytes, size: int, place: int, byte: int
) -> None:
    changed = payload[:place] + bytes([byte]) + payload[place + 1 :]
    whole: list[bytes] = []
    for one in (payload, payload[:size], changed):
        try:
            *raw, at = cut(one)
        except DecodeError:
            assert _scanned(one) is None
        else:
            expected = _scanned(one)
            assert expected is not None
            assert tuple(raw) == expected[:4]
            assert not at or one[at:] == expected[4]
            whole.append(one)
    for page in (whole, [payload, payload]):
        assert list(zip(*cut_page(page), strict=True)) == list(map(cut, page))


_numbers = st.integers(0, 2**62)
_annotations = st.fixed_dictionaries(
    {words.SEQUENCE_NUMBER: _numbers, words.ENQUEUED_TIME: _numbers.map(Timestamp)},
    optional={
        words.SCHEDULED_TIME: _numbers.map(Timestamp),
        words.ENQUEUED_SEQUENCE_NUMBER: _numbers,
        words.MESSAGE_STATE: st.integers(0, 2),
        words.PARTITION_KEY: st.sampled_from(["one", "two"]),
        "x-other": VALUES,
    },
)


@given(found=st.lists(st.one_of(_annotations, st.just({})), max_size=8))
def test_annotations_of_many_messages_are_those_of_each(found: list[dict[str, Any]]) -> None:
    columns = read_annotations(
        [encode_annotations({Symbol(key): value for key, value in one.items()}) for one in found]
    )
    states = ("active", "deferred", "scheduled")
    assert [
        (number, before, enqueued, scheduled, marks.state, marks.partition_key, marks.others)
        for number, before, enqueued, scheduled, marks in zip(*columns, strict=True)
    ] == [
        (
            one.get(words.SEQUENCE_NUMBER),
            one.get(words.ENQUEUED_SEQUENCE_NUMBER),
            one.get(words.ENQUEUED_TIME),
            one.get(words.SCHEDULED_TIME),
            states[one.get(words.MESSAGE_STATE, 0)],
            one.get(words.PARTITION_KEY),
            text_map({key: value for key, value in one.items() if key == "x-other"}),
        )
        for one in found
    ]


@given(found=st.lists(st.one_of(st.binary(max_size=6), texts.map(str.encode)), min_size=1, max_size=5))
def test_a_broken_id_is_null_and_nothing_else_is(found: list[bytes]) -> None:
    payloads = [
        b"\x00\x53\x73\xc0%c\x04\xa1%c%b\x40\x40\xa1\x01s" % (len(raw) + 8, len(raw), raw) + encode_data(raw)
        for raw in found
    ]
    schema = pa.schema([(name, pa.string()) for name in ("message_id", "subject", "body_text")])
    columns = make_batch(MessagePage("orders", payloads), schema).to_pydict()
    expected = [raw.decode() if _is_text(raw) else None for raw in found]
    assert columns == {"message_id": expected, "subject": ["s"] * len(found), "body_text": expected}


def _is_text(raw: bytes) -> bool:
    try:
        return raw.decode() is not None
    except UnicodeDecodeError:
        return False


@pytest.mark.parametrize(("name", "text"), [("int", "x"), ("ubyte", "256"), ("char", "ab"), ("nothing", "1")])
def test_a_text_that_is_no_value_is_refused(name: str, text: str) -> None:
    with pytest.raises(UnreadableValue):
        from_text(name, text)


@given(first=st.integers(0, 2**60), size=st.integers(1, 10**7), parts=st.integers(1, 50))
def test_ranges_have_every_number_once(first: int, size: int, parts: int) -> None:
    ranges = divide("orders", first, first + size, parts=parts)
    assert len(ranges) <= parts
    assert ranges[0].first == first
    assert ranges[-1].until == first + size
    for one, following in pairwise(ranges):
        assert one.first < one.until == following.first


@given(
    sizes=st.dictionaries(st.text(min_size=1, max_size=3), st.integers(1, 500), max_size=6),
    most=st.one_of(st.none(), st.integers(1, 1000)),
)
def test_a_batch_is_shared_out_and_no_entity_starves(sizes: dict[str, int], most: int | None) -> None:
    spans = {name: Span(10, 10 + size, 0) for name, size in sizes.items()}
    shares = share(spans, most)
    assert all(0 <= shares[name] <= size for name, size in sizes.items())
    assert sum(shares.values()) == (sum(sizes.values()) if most is None else min(most, sum(sizes.values())))


def test_settings_travel_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTOSO_SECRET", "Endpoint=sb://x/;SharedAccessKeyName=k;SharedAccessKey=planted")
    chosen = SourceSettings({"connectionStringEnv": "CONTOSO_SECRET", "entity": "orders"}, "read")
    assert b"planted" not in pickle.dumps(chosen)
    assert "planted" not in repr(chosen)


def test_a_list_of_entities_may_be_loaded() -> None:
    given = {"connectionStringEnv": "CONTOSO", "paths": '["orders", "payments"]'}
    assert SourceSettings(given, "read")["entity"] == ("orders", "payments")


def test_a_place_that_cannot_serve_is_refused_before_the_first_row(tmp_path: Path) -> None:
    base = {"connectionStringEnv": "CONTOSO", "entity": "orders"}
    with pytest.raises(ConfigurationError, match="caFile names no file"):
        SourceSettings({**base, "caFile": str(tmp_path / "ca.pem")}, "read")
    taken = tmp_path / "taken"
    taken.touch()
    with pytest.raises(ConfigurationError, match="errorTable names a file"):
        SourceSettings({**base, "errorTable": str(taken)}, "write")
    for secretive in (
        "s3://AKIA:wJal@records/rows",
        "s3://AKIA@records/rows",
        "abfss://:wJal@contoso.dfs.core.windows.net/rows",
        "abfss://records@contoso.dfs.core.windows.net/rows?account_key=wJal",
    ):
        with pytest.raises(ConfigurationError, match="URI without credentials") as raised:
            SourceSettings({**base, "errorTable": secretive}, "write")
        assert "wJal" not in str(raised.value)
    place = "abfss://records@contoso.dfs.core.windows.net/rows"
    assert SourceSettings({**base, "errorTable": place}, "write")["errorTable"] == place


@pytest.mark.parametrize("mode", ["peek", "consume"])
def test_a_stream_of_dead_letters_is_refused_since_it_would_miss_some(mode: str) -> None:
    base = {"connectionStringEnv": "CONTOSO", "mode": mode}
    with pytest.raises(ConfigurationError, match="would miss some"):
        SourceSettings({**base, "path": "orders,payments/$deadletterqueue"}, "stream")
    with pytest.raises(ConfigurationError, match="deadLetters is not for a stream"):
        SourceSettings({**base, "entity": "orders", "deadLetters": "too"}, "stream")


@pytest.mark.parametrize("name", [*OPTIONS, "path", "unheardOf"])
def test_a_connection_string_in_any_option_is_refused_and_not_repeated(name: str) -> None:
    planted = "Endpoint=sb://x/;SharedAccessKeyName=k;SharedAccessKey=planted"
    given = {"connectionStringEnv": "CONTOSO", "entity": "orders", name: planted}
    with pytest.raises(ConfigurationError, match="environment variable") as caught:
        SourceSettings(given, "schema")
    assert "planted" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fromSequenceNumber", str(2**63)),
        ("fromSequenceNumber", "²"),
        ("maxMessages", "0"),
        ("jobId", "runs/2026"),
        ("jobId", "j" * 81),
    ],
)
def test_a_value_that_no_message_can_have_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"The option {name} is a"):
        SourceSettings({"connectionStringEnv": "CONTOSO", "entity": "orders", name: value}, "schema")


@pytest.mark.parametrize("kind", [("a", StringType()), ("message_id", IntegerType())])
def test_a_schema_that_messages_have_not_is_refused(kind: tuple[str, Any]) -> None:
    chosen = SourceSettings({"connectionStringEnv": "CONTOSO", "entity": "orders"}, "read")
    with pytest.raises(ConfigurationError, match="Messages have no column"):
        MessageReader(chosen, StructType([StructField(*kind)]))
    MessageReader(chosen, StructType([StructField("message_id", StringType())]))


@pytest.mark.parametrize("milliseconds", [0, -1, 1_700_000_000_123, 320_000_000_000_000])
def test_moments_beyond_the_years_of_python_are_properties_too(milliseconds: int) -> None:
    kind = pa.timestamp("us", "UTC")
    moments = pa.array([milliseconds * 1000], pa.int64()).cast(kind)
    a_map = pa.MapArray.from_arrays([0, 1], pa.array(["at"]), moments)
    for properties in (a_map, pa.StructArray.from_arrays([moments], ["at"])):
        rows = pa.record_batch({"body": pa.array(["a"]), "properties": properties})
        (row,) = RowEncoder(entity="orders", new_id="job-{}".format).encode(rows, now_ms=0)
        assert scan(row.payload).application_properties == {"at": Timestamp(milliseconds)}


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0])
def test_a_row_whose_life_is_no_time_is_told_and_the_next_is_sent(seconds: float) -> None:
    rows = pa.record_batch({"body": ["a", "b"], "time_to_live": [seconds, 5.0]})
    bad, good = RowEncoder(entity="orders", new_id="job-{}".format).encode(rows, now_ms=0)
    assert bad.problem is not None
    assert "time_to_live" in bad.problem
    assert scan(good.payload).header.ttl == 5000


@pytest.mark.parametrize("use", ["read", "stream", "write"])
def test_an_option_is_for_what_it_is_for(use: Any) -> None:
    base = {"connectionStringEnv": "CONTOSO", "entity": "orders"}
    for option in OPTIONS.values():
        if use in option.uses or option.name in base:
            continue
        with pytest.raises(ConfigurationError, match=f"{option.name} is not for a"):
            SourceSettings({**base, option.name: "1"}, use)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"startingPosition": "latest"}, "begins with the oldest"),
        ({"fromSequenceNumber": "5"}, "begins with the oldest"),
        ({"includeScheduled": "true"}, "scheduled messages"),
    ],
)
def test_what_cannot_be_consumed_is_refused(options: dict[str, str], told: str) -> None:
    base = {"connectionStringEnv": "CONTOSO", "entity": "orders", "mode": "consume"}
    with pytest.raises(ConfigurationError, match=told):
        SourceSettings({**base, **options}, "stream")
