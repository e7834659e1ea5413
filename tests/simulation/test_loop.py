"""The loop of the simulation: time that jumps, processes that die, and ends that are never reached."""

import asyncio

import pytest

from .loop import Process, SimulatedLoop, Stuck


def test_time_jumps_to_the_next_timer() -> None:
    loop = SimulatedLoop(0)
    order: list[str] = []

    async def nap(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        order.append(name)

    async def main() -> None:
        async with asyncio.timeout(7000):
            await asyncio.gather(nap("long", 3600.0), nap("short", 1.0), nap("also short", 1.0))

    loop.run(main(), limit=10_000.0)
    assert order == ["short", "also short", "long"]
    assert loop.time() == 3600.0


def test_a_process_that_is_killed_does_nothing_more_not_even_clean_up() -> None:
    loop = SimulatedLoop(0)
    done: list[str] = []

    async def work() -> None:
        try:
            for number in range(10):
                done.append(str(number))
                await asyncio.sleep(1.0)
        finally:
            if loop.is_running():
                done.append("cleaned up")

    async def main() -> None:
        process = Process("p")
        task = loop.spawn(process, work())
        await asyncio.sleep(2.5)
        process.kill()
        await asyncio.sleep(100.0)
        assert not task.done()

    loop.run(main(), limit=1000.0)
    assert done == ["0", "1", "2"]


def test_a_process_dies_with_the_step_that_was_told() -> None:
    loop = SimulatedLoop(0)
    done: list[int] = []

    async def work() -> None:
        for number in range(10):
            done.append(number)
            await asyncio.sleep(0)

    async def main() -> None:
        process = Process("p")
        process.ends_at = 4
        loop.spawn(process, work())
        await asyncio.sleep(1.0)
        assert not process.is_alive

    loop.run(main(), limit=10.0)
    assert done == [0, 1, 2]


def test_who_waits_for_ever_is_found() -> None:
    async def wait() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Stuck, match="nothing will ever happen"):
        SimulatedLoop(0).run(wait(), limit=10.0)


def test_who_runs_in_circles_is_found() -> None:
    async def spin() -> None:
        while True:  # noqa: ASYNC110 - a loop that never rests is what is tested
            await asyncio.sleep(0)

    loop = SimulatedLoop(0)
    loop.max_steps = 1000
    with pytest.raises(Stuck, match="1000 steps"):
        loop.run(spin(), limit=10.0)


def test_what_is_handed_to_an_executor_is_done_later() -> None:
    async def main() -> int:
        return await asyncio.get_running_loop().run_in_executor(None, lambda: 7)

    loop = SimulatedLoop(0)
    assert loop.run(main(), limit=1.0) == 7
    assert loop.time() > 0
