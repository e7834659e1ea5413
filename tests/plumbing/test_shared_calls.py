"""Functions that block: asked once for all, waited for by none who is called away, and not for ever."""

import asyncio
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from pairbus.plumbing.shared_calls import SharedCalls
from tests.waiting import eventually


class Oracle:
    """Answers when it is told to, with how often it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.speaks = threading.Event()

    def ask(self, question: str) -> str:
        self.asked.append(question)
        number = len(self.asked)
        self.speaks.wait(60)
        if question == "why":
            raise LookupError(f"{question} {number}")
        return f"{question} {number}"


@pytest.fixture
def oracle() -> Iterator[Oracle]:
    oracle = Oracle()
    yield oracle
    oracle.speaks.set()
    for thread in threading.enumerate():
        if thread.name == "oracle":
            thread.join(30)


async def test_the_same_is_asked_once_at_a_time(oracle: Oracle) -> None:
    calls = SharedCalls[str](oracle.ask, name="oracle")
    names = ("when", "when", "why", "where", "why")
    asking = [asyncio.ensure_future(calls.call(name)) for name in names]
    await eventually(lambda: len(oracle.asked) == 3)
    asking.pop(0).cancel()  # who is called away takes the answer from nobody
    await asyncio.sleep(0)
    oracle.speaks.set()
    when, why, where, again = await asyncio.gather(*asking, return_exceptions=True)
    assert str(when).startswith("when")
    assert str(where).startswith("where")
    assert isinstance(why, LookupError)
    assert isinstance(again, LookupError)
    assert sorted(oracle.asked) == ["when", "where", "why"]
    assert await calls.call("when") == "when 4"


async def test_an_answer_that_does_not_come_is_not_waited_for_by_all_to_come(
    oracle: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr("pairbus.plumbing.shared_calls.time", clock)
    calls = SharedCalls[str](oracle.ask, name="oracle")
    asking = []
    for seconds in range(0, 3600, 10):
        now = 1000.0 + seconds
        asking.append(asyncio.ensure_future(calls.call("when")))
        await asyncio.sleep(0)
    await eventually(lambda: len(oracle.asked) == 7)  # after 0, 30, 90, 210, … s
    oracle.speaks.set()
    assert len(set(await asyncio.gather(*asking))) == 7


async def test_a_coroutine_function_is_awaited_whatever_it_looks_like() -> None:
    threads: set[str] = set()

    async def answer(question: str) -> str:
        threads.add(threading.current_thread().name)
        return question

    for function in (answer, lambda question: answer(question)):
        calls = SharedCalls[str](function, name="oracle")
        assert await asyncio.gather(*(calls.call("when") for _ in range(3))) == ["when"] * 3
    assert threads == {threading.current_thread().name}
