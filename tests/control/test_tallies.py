"""Counters and the list of connections by themselves, without a broker."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.broker.connections import MOST_PROPERTIES, MOST_TEXT, Connections
from pairbus.broker.counters import FORMER, Counters, OperationKind, OperationTally
from pairbus.broker.engine.breath import PAUSE
from pairbus.metering import UNIT_BYTES
from tests.examples import examples

operations = st.lists(
    st.tuples(
        st.sampled_from(["orders", "Other", "news/Subscriptions/s"]),
        st.sampled_from(["1", "2", "3"]),
        st.sampled_from(OperationKind),
        st.integers(0, 300_000),
    ),
    max_size=60,
)


def counters_of(counted: list[tuple[str, str, OperationKind, int]]) -> Counters:
    counters = Counters()
    for entity, connection, kind, size in counted:
        counters.count(entity, connection, kind=kind, size=size)
    return counters


@settings(max_examples=examples(50))
@given(operations)
def test_nothing_is_lost_and_nothing_counted_twice(
    counted: list[tuple[str, str, OperationKind, int]],
) -> None:
    tallies = list(counters_of(counted))
    assert len({(tally.entity, tally.connection, tally.kind) for tally in tallies}) == len(tallies)
    for tally in tallies:
        key = (tally.entity, tally.connection, tally.kind)
        sizes = [size for *place, size in counted if tuple(place) == key]
        assert (tally.count, tally.bytes) == (len(sizes), sum(sizes))
        assert tally.units == sum(max(1, -(-size // UNIT_BYTES)) for size in sizes)
    assert sum(tally.count for tally in tallies) == len(counted)


@settings(max_examples=examples(50))
@given(operations)
def test_totals_agree_with_the_tallies(counted: list[tuple[str, str, OperationKind, int]]) -> None:
    counters = counters_of(counted)
    for kind in OperationKind:
        tallies = [tally for tally in counters if tally.kind is kind]
        assert counters.total(kind) == sum(tally.count for tally in tallies)
        on_two = [tally.count for tally in tallies if tally.connection == "2"]
        assert counters.total(kind, connection="2") == sum(on_two)
        at_other = [tally.count for tally in tallies if tally.entity == "Other"]
        assert counters.total(kind, entity="/oTHER") == sum(at_other)


@settings(max_examples=examples(50))
@given(operations)
def test_what_is_forgotten_is_still_counted(counted: list[tuple[str, str, OperationKind, int]]) -> None:
    counters = counters_of(counted)
    before = {kind: counters.total(kind) for kind in OperationKind}
    bytes_before = sum(tally.bytes for tally in counters)
    counters.forget("2")
    counters.forget("3")
    counters.forget("no such")
    assert {kind: counters.total(kind) for kind in OperationKind} == before
    assert sum(tally.bytes for tally in counters) == bytes_before
    assert {tally.connection for tally in counters} <= {"1", FORMER}


@given(operations, st.lists(st.sampled_from(["1", "2", "3"])))
def test_sums_are_right_whatever_is_forgotten_meanwhile(
    counted: list[tuple[str, str, OperationKind, int]], gone: list[str]
) -> None:
    counters, left = counters_of(counted), iter(gone)
    counters.forget("1")
    known = PAUSE.set(lambda: counters.forget(next(left, "none")))
    try:
        sums = counters.sums()
    finally:
        PAUSE.reset(known)
    assert sums == counters.sums()
    assert sum(count for count, _, _ in sums.values()) == len(counted)
    for (entity, kind), (count, _, size) in sums.items():
        sizes = [size for at, _, of, size in counted if (at, of) == (entity, kind)]
        assert (count, size) == (len(sizes), sum(sizes))


def test_a_unit_is_64_kb_and_begins_with_the_first_byte_more() -> None:
    counters = Counters()
    for size in (0, 1, 65_536, 65_537, 131_072, 131_073):
        counters.count("orders", "1", kind=OperationKind.SEND, size=size)
    assert list(counters) == [
        OperationTally("orders", "1", OperationKind.SEND, 6, 1 + 1 + 1 + 2 + 2 + 3, 393_219)
    ]


def test_rows_are_plain() -> None:
    counters = Counters()
    counters.count("orders", "1", kind=OperationKind.SEND, size=5)
    assert json.loads(json.dumps(counters.rows())) == [
        {"entity": "orders", "connection": "1", "kind": "send", "count": 1, "units": 1, "bytes": 5}
    ]


def test_connections_come_introduce_themselves_and_go() -> None:
    connections = Connections(forget=lambda name: None)
    first = connections.add("amqp", ("127.0.0.1", 4000), 1.0)
    second = connections.add("http", ("::1", 4001, 0, 0), 2.0)
    connections.introduce(first.name, container_id="pump-1", client={"product": "pairbus"})
    closed = connections.close(second.name, 3.0)
    assert closed is not None
    assert (closed.protocol, closed.address, closed.closed_at) == ("http", "::1:4001", 3.0)
    assert connections.close(second.name, 4.0) is None
    listed = {info.name: info for info in connections}
    assert listed["1"].container_id == "pump-1"
    assert listed["1"].client == {"product": "pairbus"}
    assert listed["1"].closed_at is None
    assert json.loads(json.dumps(listed["2"].describe()))["address"] == "::1:4001"


def test_a_strangers_word_is_cut_short() -> None:
    connections = Connections(forget=lambda name: None)
    name = connections.add("amqp", None, 1.0).name
    said = {f"key {number}" + "k" * 1000: "v" * 1000 for number in range(100)}
    connections.introduce(name, container_id="c" * 1000, client=said)
    (info,) = connections
    assert len(info.client) == MOST_PROPERTIES
    assert len(json.dumps(info.describe())) < (2 * MOST_PROPERTIES + 2) * (MOST_TEXT + 20)


def test_only_so_many_that_are_gone_are_remembered() -> None:
    forgotten: list[str] = []
    connections = Connections(forget=forgotten.append, most_former=3)
    lasting = connections.add("amqp", None, 0.0).name
    names = [connections.add("amqp", None, 0.0).name for _ in range(5)]
    for name in names:
        connections.close(name, 1.0)
    assert forgotten == names[:2]
    assert [info.name for info in connections] == [*names[2:], lasting]


def test_what_strangers_say_of_themselves_is_not_remembered() -> None:
    connections = Connections(forget=lambda name: None)
    for is_stranger in (True, False):
        name = connections.add("amqp", ("127.0.0.1", 1), 1.0).name
        connections.introduce(name, container_id="c", client={"product": "p" * 1000})
        told = connections.close(name, 2.0, is_stranger=is_stranger)
        assert told is not None
        assert told.container_id == "c", "it is in the log"
    assert [(each.container_id, len(each.client)) for each in connections] == [(None, 0), ("c", 1)]
