"""Links: who waits keeps its turn, and whose turn has not come is not late."""

import asyncio
from typing import Any

import pytest

from pairbus.amqp.link import Link
from pairbus.amqp.message import Properties, encode_properties
from pairbus.broker.engine.settings import QueueSettings
from pairbus.pump.amqp_transport import AmqpDestination
from pairbus.pump.options import PumpOptions
from pairbus.pump.pair import Side
from pairbus.pump.pump import open_transport
from pairbus.pump.transport import Unit
from pairbus.wire import links
from pairbus.wire.links import ReceiverLink, SenderLink, Wave
from pairbus.wire.requests import encode_ids
from tests.waiting import PATIENCE, eventually

from .bench import Bench, envelope
from .test_contract import message


async def test_a_wave_moves_as_long_as_it_or_one_before_it_is_answered() -> None:
    loop = asyncio.get_running_loop()
    first, second = Wave(loop.create_future(), 2), Wave(loop.create_future(), 2)
    waves = {1: (first, 0), 2: (first, 1), 3: (second, 0), 4: (second, 1)}

    def answer(number: int) -> None:
        wave, index = waves.pop(number)
        wave.settle(index, None)

    of_first, of_second = first.mover(waves), second.mover(waves)
    assert (of_first(), of_second()) == (False, False)
    answer(1)
    assert (of_first(), of_second()) == (True, True)
    assert (of_first(), of_second()) == (False, False), "nothing has happened since"
    answer(3)
    # The answer to 2 was passed over: it is lost, and the first wave has nothing more to wait for.
    assert (of_first(), of_second()) == (False, True)
    answer(4)
    assert second.future.done()
    assert not of_first()


async def test_nobody_overtakes_those_who_wait_for_the_link_to_open(bench: Bench) -> None:
    bench.primary.create_queue("orders")
    side = Side(connection_string=bench.primary.connection_string)
    transport = open_transport(side.resolve(), PumpOptions())
    destination = transport.destination("orders")
    assert isinstance(destination, AmqpDestination)
    early = [asyncio.create_task(destination.send([Unit([message(number)])])) for number in range(5)]
    async with asyncio.timeout(PATIENCE):
        await eventually(lambda: destination._sender.present is not None)
        assert await destination.send([Unit([message(5)])]) == [None]
        assert await asyncio.gather(*early) == [[None]] * 5
    assert bench.ids("orders") == [f"m{number}" for number in range(6)]
    await transport.close()


async def test_what_there_is_comes_together_though_it_takes_several_reads(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "_MOMENT", PATIENCE)
    (queue,) = bench.create("orders")
    for first in range(0, 100, 10):
        names = [f"{number}" for number in range(first, first + 10)]
        bench.load(queue, [envelope("orders", name, body=bytes(10_000)) for name in names])
    transport = open_transport(bench.pair().secondary.resolve(), PumpOptions())
    source = transport.source(queue)
    async with asyncio.timeout(PATIENCE):
        assert len(await source.receive(1000, 0.0, at_once=True)) == 100
        assert await source.receive(1000, 0.0, at_once=True) == []
    await transport.close()


async def test_what_has_come_is_not_kept_for_what_does_not(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A namespace that gives a part of what there is, and neither more nor the word that this was all."""
    monkeypatch.setattr(links, "_MOMENT", 0.01)
    monkeypatch.setattr(ReceiverLink, "on_flowed", lambda link, event: None)
    (queue,) = bench.create("orders")
    bench.load(queue, [envelope("orders", f"{number}") for number in range(3)])
    transport = open_transport(bench.pair().secondary.resolve(), PumpOptions(send_timeout=PATIENCE))
    async with asyncio.timeout(PATIENCE):
        assert len(await transport.source(queue).receive(1000, 0.0, at_once=True)) == 3
    await transport.close()


# How a namespace says that a message is too large, and the bytes that it then has. It detaches the link, and
# all that is on the way fails with it; or it rejects the message when it is whole, or after its first frame.
TOO_LARGE = {"detached": 20_000, "rejected whole": 20_000, "rejected unfinished": 200_000}


@pytest.mark.parametrize("how", TOO_LARGE)
@pytest.mark.parametrize("is_announced", [True, False])
@pytest.mark.parametrize("session", [None, "s"])
async def test_what_is_too_large_is_buried_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, is_announced: bool, session: str | None, how: str
) -> None:
    broken: list[Link] = []
    early: list[Link] = []
    break_link, refuse_early = Link._break, Link._refuse_early

    def be_strict(link: Link, announced: int) -> None:
        link.size_limit = link.kept_limit = link.announced_limit = announced

    def note_break(link: Link, *details: Any) -> None:
        broken.append(link)
        break_link(link, *details)

    def note_early(link: Link, partial: Any, events: Any) -> None:
        was_told = partial.is_told
        refuse_early(link, partial, events)
        if partial.is_told and not was_told:
            early.append(link)

    monkeypatch.setattr(Link, "_break", note_break)
    monkeypatch.setattr(Link, "_refuse_early", note_early)
    if how == "detached":
        monkeypatch.setattr(Link, "_limit_size", be_strict)
    if not is_announced:
        monkeypatch.setattr(SenderLink, "max_message_size", None)
    names = [f"{number:02}" for number in range(60)]
    large = {"20", "21", "40"}
    (queue,) = bench.create("orders")
    bench.primary.update_queue("orders", QueueSettings(max_message_size_in_kilobytes=1))
    for name in names:
        body = bytes(TOO_LARGE[how] if name in large else 10)
        bench.load(queue, [envelope("orders", name, session=session, body=body)])
    summary = await bench.drain([queue], first_back_off=0.01, longest_back_off=0.01)
    assert bench.dead_letters(queue) == dict.fromkeys(large, "MessageTooLarge")
    assert (summary.dead_lettered, summary.waiting) == (3, 0)
    assert list(dict.fromkeys(bench.ids("orders"))) == [name for name in names if name not in large]
    if not is_announced:  # or else nothing that is too large is sent
        assert (bool(broken), bool(early)) == (how == "detached", how == "rejected unfinished")


async def test_hundreds_of_queues_are_drained_side_by_side(bench: Bench) -> None:
    """They are opened some at a time, so that no first page passes its deadline."""
    queues = bench.create("orders", count=300)
    for index, queue in enumerate(queues):
        bench.load(queue, [envelope("orders", f"{index}-{number}") for number in range(4)])
    summary = await bench.drain(queues, send_timeout=5.0)
    assert (summary.moved, summary.unknown, summary.queue_errors) == (1200, 0, {})
    assert len(bench.ids("orders")) == len(set(bench.ids("orders"))) == 1200


def test_the_ids_of_a_request_are_written_as_other_properties_are() -> None:
    expected = encode_properties(Properties(message_id="17", reply_to="pairbus-123"))
    assert encode_ids("17", "pairbus-123") == expected
