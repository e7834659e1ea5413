"""The turns in which the queues of a drain begin."""

import asyncio
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.pump.turns import Turn, Turns
from tests.examples import examples
from tests.simulation.loop import SimulatedLoop


class _Queue:
    """As much of a source as a turn looks at."""

    def __init__(self, *, is_told: bool = True) -> None:
        self.is_told = is_told


def _turn(gate: Turns, queue: _Queue | None = None) -> Turn:
    return Turn(gate, queue or _Queue())  # type: ignore[arg-type]


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(1, 30), st.integers(1, 50))
def test_every_queue_begins_and_few_at_a_time(seed: int, turns: int, queues: int, enough: int) -> None:
    """Whatever the others do: some never end their turn, and what is in hand may stay."""
    random, loop = Random(seed), SimulatedLoop(1)
    gate = Turns(most=turns, enough=enough, pause=0.1)
    inside = in_hand = most_inside = 0

    async def drain(number: int) -> float:
        nonlocal inside, in_hand, most_inside
        turn = _turn(gate)
        await turn.take()
        begun = loop.time()
        inside += 1
        most_inside = max(most_inside, inside)
        await asyncio.sleep(random.random())
        in_hand += 3
        gate.note_in_hand(in_hand)
        if random.random() < 0.2:
            return begun  # its turn never ends
        turn.end()
        turn.end()  # more often than it began
        inside -= 1
        if random.random() < 0.8:
            in_hand -= 3
            gate.note_in_hand(in_hand)
        return begun

    async def play() -> list[float]:
        return await asyncio.gather(*(drain(number) for number in range(queues)))

    begun = loop.run(play(), limit=600.0)
    assert max(begun) <= 0.1 * queues + 1e-6, "nobody waits for those that do not move"
    assert most_inside <= turns + 10 * max(begun) + 1, "beyond the turns one begins each tenth of a second"


def test_a_queue_waits_for_a_turn_and_for_what_is_in_hand() -> None:
    loop = SimulatedLoop(1)
    gate = Turns(most=1, enough=10, pause=60.0)

    async def play() -> None:
        first, second, third = (_turn(gate) for _ in range(3))
        await first.take()
        waiting = asyncio.create_task(second.take())
        await asyncio.sleep(1.0)
        assert not waiting.done()
        first.end()
        await waiting
        gate.note_in_hand(10)
        second.end()
        waiting = asyncio.create_task(third.take())
        await asyncio.sleep(1.0)
        assert not waiting.done()
        gate.note_in_hand(9)
        await waiting
        assert loop.time() < 60.0

    loop.run(play(), limit=600.0)


@pytest.mark.parametrize("reason", ["it is long", "it does not say when it has no more", "all are to end"])
def test_when_nobody_has_to_wait(reason: str) -> None:
    loop = SimulatedLoop(1)
    gate = Turns(most=1, enough=10, pause=60.0)

    async def play() -> None:
        queue = _Queue()
        first = _turn(gate, queue)
        await first.take()
        others = [asyncio.create_task(_turn(gate).take()) for _ in range(1 if "long" in reason else 5)]
        await asyncio.sleep(1.0)
        assert not any(task.done() for task in others)
        if "long" in reason:
            first.note(600)
            first.note(600)
        elif "say" in reason:
            queue.is_told = False
            first.end()
        else:
            gate.open()
        await asyncio.gather(*others)
        assert loop.time() < 60.0

    loop.run(play(), limit=600.0)


def test_who_was_called_off_takes_no_turn() -> None:
    loop = SimulatedLoop(1)
    gate = Turns(most=1, enough=10, pause=60.0)

    async def play() -> None:
        first, last = _turn(gate), _turn(gate)
        await first.take()
        gone = asyncio.create_task(_turn(gate).take())
        await asyncio.sleep(1.0)
        gone.cancel()
        waiting = asyncio.create_task(last.take())
        await asyncio.sleep(1.0)
        first.end()
        await waiting
        assert loop.time() < 60.0

    loop.run(play(), limit=600.0)


def test_who_is_called_off_with_the_turn_in_hand_gives_it_back() -> None:
    loop = SimulatedLoop(1)
    gate = Turns(most=1, enough=10, pause=60.0)

    async def play() -> None:
        first, last = _turn(gate), _turn(gate)
        await first.take()
        gone = asyncio.create_task(_turn(gate).take())
        await asyncio.sleep(1.0)
        waiting = asyncio.create_task(last.take())
        await asyncio.sleep(1.0)
        first.end()  # it is given to the one that is called off before it can know
        gone.cancel()
        await waiting
        assert loop.time() < 60.0

    loop.run(play(), limit=600.0)


def test_a_queue_that_does_not_tell_needs_no_turn() -> None:
    loop = SimulatedLoop(1)
    gate = Turns(most=1, enough=10, pause=60.0)

    async def play() -> None:
        for _ in range(5):
            await _turn(gate, _Queue(is_told=False)).take()
        assert loop.time() == 0.0

    loop.run(play(), limit=600.0)
