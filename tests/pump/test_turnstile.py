"""Queues that wait for the rate, in line."""

import asyncio
from collections.abc import Callable

import pytest

from pairbus.pump.rate import Limiter
from pairbus.pump.turnstile import Turnstile
from tests.simulation.loop import SimulatedClock, SimulatedLoop

SECONDS = 10


@pytest.mark.parametrize("rate", [2.0, 40.0, 900.0])
def test_each_queue_gets_its_part_and_all_together_get_the_rate(rate: float) -> None:
    """Three queues want more than there is, one of them asks all the time."""
    loop = SimulatedLoop(1)
    limiter = Limiter(max_messages=rate, adaptive=False)
    turnstile = Turnstile(limiter, SimulatedClock(loop))
    sent = [0, 0, 0]

    def queue(number: int) -> Callable[[], None]:
        def advance() -> None:
            room, count = turnstile.room(advance), 0
            while room is not None and room.take(1):
                count += 1
            limiter.take(count, 0)
            sent[number] += count
            turnstile.wait(advance)

        return advance

    async def play() -> None:
        queues = [queue(number) for number in range(3)]
        for advance in queues:
            advance()
        for _ in range(SECONDS * 20):
            await asyncio.sleep(0.05)
            queues[0]()
        turnstile.close()

    loop.run(play(), limit=60.0)
    burst = max(1.0, rate * 0.1)
    assert 0.9 * rate * SECONDS - 1 <= sum(sent) <= rate * SECONDS + burst
    assert min(sent) >= sum(sent) / 6, "turns are equal, if not to the message"
