"""Parts of the source that need no session: values as texts, ranges, shares and options."""

from __future__ import annotations

import pickle
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.amqp.message import encode_application_properties
from pairbus.errors import ConfigurationError
from pairbus.spark.source.options import OPTIONS, SourceSettings
from pairbus.spark.source.properties import read_map, text_map
from pairbus.spark.source.reader import cut
from pairbus.spark.source.stream_reader import Span, share
from pairbus.spark.source.values import UnreadableValue, from_text, to_text
from tests.amqp.values import VALUES, same


@given(value=VALUES)
def test_a_value_comes_back_from_its_text(value: Any) -> None:
    name, text = to_text(value)
    back = from_text(name, text)
    assert same(back, value)


@given(properties=st.dictionaries(st.text(max_size=300), VALUES, max_size=5))
def test_properties_are_read_from_the_wire_as_through_the_codec(properties: dict[str, Any]) -> None:
    assert read_map(encode_application_properties(properties)) == text_map(properties)


@pytest.mark.parametrize(("name", "text"), [("int", "x"), ("ubyte", "256"), ("char", "ab"), ("nothing", "1")])
def test_a_text_that_is_no_value_is_refused(name: str, text: str) -> None:
    with pytest.raises(UnreadableValue):
        from_text(name, text)


@given(first=st.integers(0, 2**60), size=st.integers(1, 10**7), parts=st.integers(1, 50))
def test_ranges_have_every_number_once(first: int, size: int, parts: int) -> None:
    ranges = cut("orders", first, first + size, parts=parts)
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
