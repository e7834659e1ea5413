"""Deliveries that leave numbers out: only there is a queue looked at, and nothing of a session is overlooked.

The queue is a model: numbers, each gone, free, locked by somebody else or put aside. Free ones are delivered
in order and in pieces, as the service does; whoever is locked may come free at any time.
"""

import asyncio
from functools import cache
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from pairbus import words
from pairbus.amqp.message import encode_annotations, scan
from pairbus.amqp.types import Symbol, Timestamp
from pairbus.broker.counters import OperationKind
from pairbus.clock import SystemClock
from pairbus.ledger.receipts import MemoryReceipts
from pairbus.pump.destinations import Destinations
from pairbus.pump.intake import Intake, NumberGap
from pairbus.pump.lanes import Lanes
from pairbus.pump.options import PumpOptions
from pairbus.pump.parcel import Parcel
from pairbus.pump.rate import Limiter, Pace
from pairbus.pump.station import Station
from pairbus.pump.summary import PumpTally
from pairbus.pump.transport import BacklogSource, Delivery, Peeked, Transport
from pairbus.pump.turnstile import Entrance, Turnstile

from .bench import Bench, envelope

PARTITION = 1 << 48
SESSIONS = ("a", "b", None, None, None)


# From this number on there are none.
SESSIONLESS = 10_000


def session_of(number: int) -> str | None:
    return None if SESSIONLESS <= number < PARTITION else SESSIONS[number % len(SESSIONS)]


@cache
def payload_of(number: int) -> bytes:
    marks = {Symbol(words.SEQUENCE_NUMBER): number, Symbol(words.ENQUEUED_TIME): Timestamp(0)}
    sealed = envelope("orders", f"m{number}", session=session_of(number))
    head = sealed.index(b"\x00\x53\x73")  # annotations stand before the properties
    return sealed[:head] + encode_annotations(marks) + sealed[head:]


class ModelQueue:
    """What a peek shows, and what is delivered."""

    def __init__(self, states: dict[int, str]) -> None:
        self.states = {number: state for number, state in sorted(states.items()) if state != "gone"}
        self.pages: list[int] = []

    async def peek(self, from_sequence_number: int, limit: int) -> list[Peeked]:
        self.pages.append(limit)
        found = [number for number in self.states if number >= from_sequence_number][:limit]
        return [Peeked(one, self.states[one] == "aside", scan(payload_of(one))) for one in found]

    def deliver(self, most: int) -> list[Delivery]:
        free = [number for number, state in self.states.items() if state == "free"][:most]
        for number in free:
            self.states[number] = "ours"
        return [Delivery(payload_of(number), b"") for number in free]


def make_intake(*, drain: bool) -> tuple[Intake, Lanes[Parcel]]:
    limiter, options, clock = Limiter(), PumpOptions(drain=drain), SystemClock()
    paths = Destinations(first=1.0, longest=60.0)
    station = Station(
        pair="contoso",
        options=options,
        primary=cast(Transport, None),
        receipts=MemoryReceipts(),
        clock=clock,
        conditions=paths,
        limiter=limiter,
        turnstile=Turnstile(limiter, clock),
        entrance=Entrance(limiter, clock),
        tally=PumpTally(0.0),
        longest_wait=900.0,
    )
    lanes: Lanes[Parcel] = Lanes(paths)
    return Intake(lanes, Pace(lock_duration=60.0, most=1000), station), lanes


async def take_all(
    queue: ModelQueue, pieces: list[int], freed: list[int], *, drain: bool = False
) -> tuple[Intake, Lanes[Parcel]]:
    """Take in all that comes; before each piece one that was locked comes free."""
    intake, lanes = make_intake(drain=drain)
    source = cast(BacklogSource, queue)
    for size, chance in zip(pieces, freed, strict=True):
        locked = [number for number, state in queue.states.items() if state == "locked"]
        if chance < len(locked):
            queue.states[locked[chance]] = "free"
        letters = intake.read(queue.deliver(size))
        gap = intake.find_gap(letters)
        if gap is not None:
            await intake.look_through(source, gap)
        for letter in letters:
            check_sessions(queue, lanes, letter.mark.sequence_number)
            assert intake.take_in([letter]) == []
        for number in filter(lanes.knows, queue.states):  # these are fetched, or come by themselves
            check_sessions(queue, lanes, number)
    return intake, lanes


def check_sessions(queue: ModelQueue, lanes: Lanes[Parcel], number: int) -> None:
    assert not [
        older
        for older in queue.states
        if older < number
        and session_of(older) is not None
        and session_of(older) == session_of(number)
        and not (lanes.knows(older) or lanes.in_hand(older))
    ], f"{number} would overtake an older message of its session"


NUMBERS = st.one_of(st.integers(1, 60), st.integers(0, 3).map(lambda part: part * PARTITION + 5))
STATES = st.sampled_from(["gone", "free", "free", "free", "locked", "aside"])


@given(
    st.dictionaries(NUMBERS, STATES, max_size=40),
    st.lists(st.tuples(st.integers(1, 12), st.integers(0, 8)), max_size=12),
    st.booleans(),
)
def test_nothing_of_a_session_is_overtaken(
    states: dict[int, str], steps: list[tuple[int, int]], drain: bool
) -> None:
    queue = ModelQueue(states)

    async def play() -> None:
        sizes, freed = [size for size, _ in steps], [which for _, which in steps]
        intake, lanes = await take_all(queue, sizes, freed, drain=drain)
        source = cast(BacklogSource, queue)
        await (intake.look_through(source, NumberGap()) if drain else intake.look_beyond(source))
        aside = [number for number, state in queue.states.items() if state == "aside"]
        assert all(lanes.knows(number) for number in aside), "one that is put aside was not found"

    asyncio.run(play())


def test_a_row_without_gaps_is_not_looked_at() -> None:
    queue = ModelQueue(dict.fromkeys(range(5001, 6001), "free"))
    asyncio.run(take_all(queue, [250] * 4, [99] * 4))
    assert queue.pages == [1], "one message shows that there is nothing before the first delivery"


def test_a_gap_is_looked_at_to_its_end_and_no_further() -> None:
    states = {**dict.fromkeys(range(1, 900), "aside"), **dict.fromkeys(range(900, 2000), "free")}
    queue = ModelQueue(states)
    _, lanes = asyncio.run(take_all(queue, [100], [99]))
    assert sum(lanes.deferred_by_path().values()) == 899
    assert len(queue.pages) == 1 + 4


def test_a_drain_without_sessions_looks_back_when_it_turns_out_to_be_long() -> None:
    """Or what an earlier pump has put aside would wait for the end of a long backlog."""
    states = {SESSIONLESS: "aside", **dict.fromkeys(range(SESSIONLESS + 1, SESSIONLESS + 2000), "free")}
    queue = ModelQueue(states)
    _, lanes = asyncio.run(take_all(queue, [250] * 4, [99] * 4, drain=True))
    assert queue.pages == []
    assert not lanes.knows(SESSIONLESS)
    _, lanes = asyncio.run(take_all(ModelQueue(states), [250] * 5, [99] * 5, drain=True))
    assert lanes.knows(SESSIONLESS)


async def test_a_drain_asks_once_for_a_queue_that_has_nothing_put_aside(bench: Bench) -> None:
    """At its end, by one message, and a second time if its end is late."""
    queues = bench.create("orders", count=3)
    for turn in range(2):  # numbers begin with 1, and the second time with another one
        for queue in queues:
            bench.load(queue, [envelope("orders", f"{queue}-{turn}-{number}") for number in range(600)])
        before = bench.counted(OperationKind.MANAGEMENT)
        summary = await bench.drain(queues, drain_wait=30.0)
        assert summary.moved == 1800
        asked = bench.counted(OperationKind.MANAGEMENT) - before
        assert 3 <= asked <= 6, "600 messages are three pages, and would be looked at anew with each gap"
