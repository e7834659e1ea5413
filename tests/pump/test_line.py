"""A line to a namespace: its deadlines hold, its end is told, and nothing of it is left behind."""

import asyncio
import time
import weakref

import pytest

from pairbus import conditions
from pairbus.amqp.performatives import AmqpError
from pairbus.plumbing.collector import uncollected
from pairbus.pump.amqp_transport import AmqpTransport
from pairbus.wire.errors import CONNECTION_LOST, UNANSWERED, TransportError
from pairbus.wire.line import AmqpLine
from pairbus.wire.sign_in import open_line
from tests.waiting import PATIENCE, eventually

from .bench import Bench

HEARTBEAT = bytes.fromhex("0000000802000000")


async def connect(bench: Bench) -> AmqpLine:
    side = bench.pair().primary.resolve()
    return await open_line(side.place(), side.tokens(), timeout=PATIENCE, container_id="test")


def transport_of(bench: Bench) -> AmqpTransport:
    side = bench.pair().primary.resolve()
    return AmqpTransport(side.place(), side.tokens(), timeout=PATIENCE)


def is_connected(bench: Bench) -> bool:
    return any(one.closed_at is None for one in bench.primary.connections())


def read_all(line: AmqpLine) -> None:
    """As much as one read takes: there may be more."""
    buffer = line.get_buffer(-1)
    buffer[:] = HEARTBEAT * (len(buffer) // len(HEARTBEAT))
    line.buffer_updated(len(buffer))


async def test_a_peer_that_falls_silent_after_a_full_read_is_not_waited_for(bench: Bench) -> None:
    line = await connect(bench)
    waiting = asyncio.create_task(line.answer(line.loop.create_future(), 0.2))
    bench.primary.faults.set("silence")
    await asyncio.sleep(0)
    read_all(line)
    with pytest.raises(TransportError) as met:
        await asyncio.wait_for(waiting, PATIENCE)
    assert met.value.condition == UNANSWERED
    line.cut(CONNECTION_LOST, "the test is over")


async def test_no_deadline_counts_while_there_is_more_to_read(bench: Bench) -> None:
    line, answer = await connect(bench), asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(line.answer(answer, 0.01))
    ends = line.loop.time() + 0.1
    while line.loop.time() < ends:
        read_all(line)
        await asyncio.sleep(0)
    assert not waiting.done()
    answer.set_result("there")
    assert await waiting == "there"
    await line.close()


async def test_an_answer_is_gone_with_whoever_waited_for_it(bench: Bench) -> None:
    """Without the collector of garbage, which would walk over all that a pump has in hand."""
    line = await connect(bench)
    with uncollected():
        answer = line.loop.create_future()
        line.loop.call_soon(answer.set_result, None)
        await line.answer(answer, PATIENCE, is_moving=lambda: True)
        left = weakref.ref(answer)
        del answer
        await asyncio.sleep(0)  # the loop itself has what it is busy with
        assert left() is None
    await line.close()


async def test_a_line_whose_closing_is_called_off_is_cut(bench: Bench) -> None:
    line = await connect(bench)
    bench.primary.faults.set("silence")
    closing = asyncio.create_task(line.close(timeout=PATIENCE))
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait({closing})
    assert line.lost is not None
    bench.primary.faults.clear()
    await eventually(lambda: not is_connected(bench))


async def test_tokens_are_put_though_the_links_for_them_were_lost(bench: Bench) -> None:
    bench.create("orders")
    line = await connect(bench)
    for end in list(line._links.values()):
        end.abandon()  # type: ignore[attr-defined]
    await line.authorize("orders")
    assert line.has_grant
    await line.close()


async def test_a_transport_that_is_closed_opens_nothing_any_more(bench: Bench) -> None:
    bench.create("orders")
    transport = transport_of(bench)
    await transport.line("orders")
    await transport.close()
    with pytest.raises(TransportError) as met:
        await transport.line("orders")
    assert met.value.condition == CONNECTION_LOST
    await eventually(lambda: not is_connected(bench))


async def test_who_waits_for_a_line_that_is_called_off_is_told_so(bench: Bench) -> None:
    """And is not cancelled: nobody would take up again what a cancelled step held."""
    bench.primary.faults.set("silence")
    transport = transport_of(bench)
    waiting = asyncio.create_task(transport.line("orders"))
    await asyncio.sleep(0)
    await transport.close()
    with pytest.raises(TransportError) as met:
        await asyncio.wait_for(waiting, PATIENCE)
    assert met.value.condition == CONNECTION_LOST


async def test_tokens_that_are_put_at_once_share_new_links_for_lost_ones(bench: Bench) -> None:
    host, line = bench.broker._hosts["contoso"], await connect(bench)
    (peer,) = host.peers

    def detach_all() -> None:
        for endpoint in list(peer.endpoints.values()):
            peer.detach(endpoint, AmqpError(conditions.INTERNAL_ERROR, "for the test", {}))

    bench.broker.call(detach_all)
    assert line.put_token is not None
    audience = f"sb://{line.place.host}/"
    token = await bench.pair().primary.resolve().tokens().token(audience, time.time())
    await eventually(lambda: not line._links)
    await asyncio.gather(*(line.put_token(audience, token.kind, token.value) for _ in range(2)))
    assert len(peer.endpoints) == 2
    await line.close()
