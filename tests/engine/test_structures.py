"""The parts that make everything quick: table, line, deadlines, alarms, tokens."""

import copy
import pickle
import uuid

from hypothesis import given
from hypothesis import strategies as st

from pairbus.broker.engine.deadlines import NEVER, Alarm, Alarms, Deadlines
from pairbus.broker.engine.message import StoredMessage
from pairbus.broker.engine.namespace import new_token
from pairbus.broker.engine.number_line import NumberLine
from pairbus.broker.engine.table import MessageTable
from tests.engine.samples import START, message


def stored(number: int) -> StoredMessage:
    return message(message_id=str(number)).store(number, START, None)


@given(
    st.lists(st.integers(1, 3000), unique=True, max_size=60),
    st.sets(st.integers(1, 3000)),
    st.integers(0, 3000),
    st.booleans(),
)
def test_a_table_is_a_sorted_mapping(added: list[int], removed: set[int], start: int, at_once: bool) -> None:
    table = MessageTable()
    for number in added:
        table.add(stored(number))
    if at_once:
        table.remove_all([number for number in added if number in removed])
    else:
        for number in removed & set(added):
            table.remove(number)
    left = sorted(set(added) - removed)
    assert len(table) == len(left)
    assert [each.sequence_number for each in table.since(0)] == left
    assert [each.sequence_number for each in table.since(start)] == [n for n in left if n >= start]
    for number in added:
        assert (table.get(number) is None) is (number in removed)


def test_a_walk_through_a_table_starts_where_it_is_asked_to() -> None:
    table = MessageTable()
    record = stored(1)
    for number in range(1, 100_001):
        record = record.copy(number)
        table.add(record)
    for number in range(1, 90_001):
        table.remove(number)
    assert len(table._keys) == len(table._blocks) <= 10_000 // 256 + 2
    assert next(table.since(1)).sequence_number == 90_001
    assert next(table.since(99_999)).sequence_number == 99_999


@given(st.lists(st.integers(1, 50), unique=True), st.data())
def test_a_line_gives_the_smallest_that_waits(numbers: list[int], data: st.DataObject) -> None:
    line, waiting = NumberLine(), set[int]()
    for number in numbers:
        line.put(number)
        waiting.add(number)
        if data.draw(st.booleans()):
            taken = line.pop(data.draw(st.integers(1, 4)))
            assert taken == sorted(waiting)[: len(taken)]
            back = data.draw(st.integers(0, len(taken)))
            match data.draw(st.sampled_from(["put", "put back", "leave"])):
                case "put":
                    for number in taken:
                        line.put(number)
                case "put back":
                    line.put_back(taken[back:])
                    waiting -= set(taken[:back])
                case _:
                    waiting -= set(taken)
    gone = data.draw(st.sets(st.sampled_from(numbers))) if numbers else set()
    line.sweep(lambda number: number not in gone)
    assert len(line) == len(waiting - gone)
    assert line.pop(len(line) + 1) == sorted(waiting - gone)
    assert line.pop(1) == []


TIMES = st.floats(0, 30).map(lambda when: round(when, 2))


@given(st.lists(st.tuples(st.sampled_from(["add", "add", "remove", "pop"]), TIMES, st.integers(0, 9))))
def test_deadlines_give_what_is_due_and_alive(steps: list[tuple[str, float, int]]) -> None:
    deadlines: Deadlines[int] = Deadlines()
    alive: dict[int, float] = {}
    for what, when, key in steps:
        if what == "pop":
            due = sorted((at, each) for each, at in alive.items() if at <= when)
            assert list(deadlines.pop_due(when)) == [each for _, each in due]
            for _, each in due:
                del alive[each]
        else:
            if key in alive:
                deadlines.remove(alive.pop(key), key)
            if what == "add":
                deadlines.add(when, key)
                alive[key] = when
        earliest = min(alive.values(), default=NEVER)
        assert len(deadlines) == len(alive)
        assert earliest - 1 < deadlines.next() <= earliest or earliest == deadlines.next() == NEVER
    now = 100.0
    assert sorted(deadlines.pop_due(now)) == sorted(alive)
    assert deadlines.next() == NEVER


def test_what_is_added_while_things_are_due_is_due_too() -> None:
    deadlines: Deadlines[int] = Deadlines()
    deadlines.add(5.5, 1)
    found = []
    for key in deadlines.pop_due(7.0):
        found.append(key)
        if key < 5:
            deadlines.add(5.0 + key / 2, key + 1)
    assert found == [1, 2, 3, 4, 5]


def test_deadlines_that_come_and_go_leave_nothing() -> None:
    deadlines: Deadlines[int] = Deadlines()
    for n in range(5000):
        deadlines.add(float(n), n)
        deadlines.remove(float(n), n)
    assert len(deadlines._buckets) == 0
    assert len(deadlines._seconds) <= 65
    assert deadlines.next() == NEVER


class Clock(Alarm):
    """Notes when it is woken, and sets its alarm anew from a list."""

    def __init__(self, alarms: Alarms, times: list[float]) -> None:
        super().__init__(self.tick)
        self.alarms = alarms
        self.times = times
        self.woken: list[float] = []

    def tick(self, now: float) -> None:
        self.woken.append(now)
        self.alarms.set(self, self.times.pop(0) if self.times else NEVER)


def test_alarms_ring_for_the_latest_word_only() -> None:
    alarms = Alarms()
    clock = Clock(alarms, [])
    for when in range(1000, 100, -1):
        alarms.set(clock, float(when))
    alarms.set(clock, 500.0)
    assert len(alarms._heap) <= 66
    assert alarms.next() == 500.0
    alarms.ring(499.0)
    assert clock.woken == []
    alarms.ring(600.0)
    alarms.ring(2000.0)
    assert clock.woken == [600.0]
    assert alarms.next() is None


def test_a_sleeper_that_is_due_again_is_woken_again() -> None:
    alarms = Alarms()
    clock = Clock(alarms, [10.0, 20.0, 30.0])
    alarms.set(clock, 5.0)
    alarms.ring(20.0)
    assert clock.woken == [20.0, 20.0, 20.0]
    assert alarms.next() == 30.0


def test_an_alarm_that_is_taken_back_does_not_ring() -> None:
    alarms = Alarms()
    clocks = [Clock(alarms, []) for _ in range(200)]
    for clock in clocks:
        alarms.set(clock, 5.0)
    for clock in clocks[1:]:
        alarms.set(clock, NEVER)
    alarms.ring(5.0)
    assert [len(clock.woken) for clock in clocks] == [1] + [0] * 199


def test_tokens_are_ordinary_uuids() -> None:
    tokens = {new_token() for _ in range(1000)}
    assert len(tokens) == 1000
    for token in list(tokens)[:50]:
        twin = uuid.UUID(bytes_le=token.bytes_le)
        assert token.version == 4
        assert token.variant == uuid.RFC_4122
        assert twin == token
        assert hash(twin) == hash(token)
        assert pickle.loads(pickle.dumps(token)) == token
        assert copy.copy(token) == token
        assert str(uuid.UUID(str(token))) == str(token)
