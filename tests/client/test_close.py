"""How a client and its senders end: what is under way, what waits, and a close that is cancelled."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pairbus.client import aio
from pairbus.client.errors import ClientClosedError
from pairbus.client.state.records import KIND
from pairbus.ledger.chain import read_heads
from pairbus.ledger.operation_log import OperationLog
from pairbus.ledger.segment import closed_segments
from pairbus.options import EntityState
from pairbus.plumbing import tasks
from pairbus.plumbing.files import hold_alone
from tests.waiting import PATIENCE

from .outage import hanging_disk, in_an_outage
from .scene import HELD_BACK, Scene, eventually, text


async def _start_in_an_outage_and_end(still: Scene, directory: Path) -> None:
    client = still.client(state_dir=directory, failover_interval=0, ordering="session")
    await client.get_queue_sender("orders").send_messages(text("1"))
    await client.close()


async def test_an_application_that_keeps_the_threads_of_its_loop_to_itself_holds_nothing_up(
    still: Scene, tmp_path: Path
) -> None:
    loop, is_over = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(1))
    loop.run_in_executor(None, is_over.wait)
    still.primary.faults.set("refuse")
    try:
        life = still.begin(_start_in_an_outage_and_end(still, tmp_path))
        await eventually(life.done)
        await life
    finally:
        is_over.set()
    assert still.backlog_ids() == ["1"]


async def test_a_closed_client_says_so(still: Scene) -> None:
    client = still.client()
    sender = client.get_queue_sender("orders")
    await sender.send_messages(text("1"))
    await client.close()
    for use in (
        lambda: sender.send_messages(text("2")),
        lambda: sender.send_messages([]),
        lambda: sender.create_message_batch(),
        lambda: client.start(),
    ):
        with pytest.raises(ClientClosedError, match="closed"):
            await use()
    for call in (lambda: client.fail_over("orders"), lambda: client.get_queue_receiver("q")):
        with pytest.raises(ValueError, match="closed"):
            call()
    await client.close()


async def test_a_client_that_is_closed_tells_its_last_status(still: Scene) -> None:
    client = still.client()
    client.fail_over("orders", reason="a drill")
    await client.get_queue_sender("orders").send_messages(text("1"))
    closing = still.begin(client.close())
    for _ in range(3):
        await asyncio.sleep(0)
    assert client.status().entities[0].health.reason == "a drill", "while it is being closed, too"
    await closing
    told = client.status()
    assert told.sides == {"primary": "closed", "secondary": "closed"}
    assert told.entities[0].sent["backlog"]["ok"] == 1
    assert client.status() is told
    unused = still.client()
    await unused.close()
    with pytest.raises(ClientClosedError):
        unused.status()


async def test_a_closed_sender_says_so_and_the_others_go_on(still: Scene) -> None:
    client = still.client()
    async with client.get_queue_sender("orders") as sender:
        await sender.send_messages(text("1"))
    with pytest.raises(ClientClosedError, match="sender"):
        await sender.send_messages(text("2"))
    await client.get_queue_sender("orders").send_messages(text("3"))
    assert still.ids() == ["1", "3"]


async def test_closing_gives_a_send_under_way_a_moment_and_refuses_those_that_wait(still: Scene) -> None:
    client = still.client(transport="sdk")  # by our own AMQP nobody would wait
    sender = client.get_queue_sender("orders")
    await sender.send_messages(text("1"))
    still.primary.faults.set("delay", seconds=HELD_BACK)
    sends = [still.begin(sender.send_messages(text(f"{number}"))) for number in range(2, 6)]
    await still.on_the_wire()
    closing = still.begin(client.close())
    await eventually(lambda: all(send.done() for send in sends[1:]))
    still.give_answers()
    await closing
    outcomes = await asyncio.gather(*sends, return_exceptions=True)
    assert outcomes[0] is None
    assert {type(outcome) for outcome in outcomes[1:]} == {ClientClosedError}
    assert "2" in still.ids()


async def test_who_fails_over_while_it_closes_begins_no_pings(still: Scene) -> None:
    """Nobody would wait for them, nor close their links."""
    client = still.client(transport="sdk", failover_interval=0.0)
    sender = client.get_queue_sender("orders")
    await sender.send_messages(text("1"))
    still.primary.faults.set("delay", seconds=HELD_BACK)
    sending = still.begin(sender.send_messages(text("2")))
    await still.on_the_wire()
    (entity,) = client.pair._entities.values()
    closing = still.begin(client.close())
    await eventually(lambda: entity._is_over)
    still.primary.faults.set("refuse")
    with pytest.raises(ClientClosedError):
        await sending
    await closing
    assert client.status().entities[0].health.state is EntityState.FAILED_OVER
    assert (entity._pinger._running, entity._pinger._idle, entity._asking) == ({}, [], set())


@pytest.mark.parametrize("side", ["primary", "backlog"])
async def test_closing_does_not_wait_for_a_silent_peer(still: Scene, side: str) -> None:
    client = still.client()
    sender = client.get_queue_sender("orders")
    if side == "backlog":
        client.fail_over("orders")
    await sender.send_messages(text("1"))
    (still.primary if side == "primary" else still.secondary).faults.set("silence")
    sends = [still.begin(sender.send_messages(text(name))) for name in ("2", "3")]
    await (still.on_the_wire() if side == "primary" else still.on_the_way_to_the_backlog())
    began = asyncio.get_running_loop().time()
    await client.close()
    assert asyncio.get_running_loop().time() - began < 60.0  # two seconds of ours; usually much less
    for sending in sends:
        with pytest.raises(ClientClosedError):
            await sending


@pytest.mark.parametrize("transport", ["sdk", "amqp"])
async def test_held_sends_are_refused_when_the_client_closes(still: Scene, transport: str) -> None:
    sender = still.sender(transport=transport, retry_delay=60.0, retry_delay_max=60.0)
    await sender.send_messages(text("1"))
    still.primary.faults.set("refuse")
    sends = [still.begin(sender.send_messages(text(name))) for name in ("2", "3")]
    await eventually(lambda: still.state() is EntityState.SUSPECT)
    await sender._client.close()
    for sending in sends:
        with pytest.raises(ClientClosedError):
            await sending


@pytest.mark.parametrize("steps", [0, 1, 2, 4, 8, 16, 64])
@pytest.mark.parametrize("ends_with_loop", [False, True])
async def test_a_close_that_is_cancelled_leaves_nothing_open(
    still: Scene, tmp_path: Path, steps: int, ends_with_loop: bool
) -> None:
    client = await in_an_outage(still, tmp_path)
    await client.get_queue_sender("orders").send_messages(text("spooled"))
    closing = asyncio.create_task(client.close())
    for _ in range(steps):
        await asyncio.sleep(0)
    for task in asyncio.all_tasks() - {asyncio.current_task()} if ends_with_loop else {closing}:
        task.cancel()
    await asyncio.wait({closing})
    await client.close()
    await eventually(lambda: _is_let_go(tmp_path))  # a thread has the word, if nobody waits for it any more
    assert ends_with_loop or not list((tmp_path / "status").glob("*.json"))
    assert ends_with_loop or set(client.status().sides.values()) == {"closed"}


async def test_closing_does_not_wait_for_a_disk_that_hangs(
    still: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left is done when it answers."""
    monkeypatch.setattr(tasks, "DISK_LIMIT", 0.05)
    client = await in_an_outage(still, tmp_path)
    with hanging_disk() as waiting:
        sending = still.begin(client.get_queue_sender("orders").send_messages(text("spooled")))
        await eventually(lambda: "pairbus-spool" in waiting)
        closing = still.begin(client.close())
        await eventually(closing.done)
        await closing
        assert waiting >= {"pairbus-spool", "pairbus-redirects"}
        assert not sending.done()
    await eventually(sending.done)
    await sending
    await eventually(lambda: _is_let_go(tmp_path))
    still.primary.faults.clear()
    await still.client(state_dir=tmp_path, enable_spool=True).start()
    await eventually(lambda: still.ids() == ["before", "spooled"])


async def test_closing_has_a_limit_for_all_that_hangs_together(
    still: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Redirect records, ledger and the last round of shipping, one after the other."""
    monkeypatch.setattr(aio, "_CLOSE_LIMIT", 0.05)
    own, shared = tmp_path / "own", tmp_path / "shared"
    client = still.client(state_dir=own, records=shared)
    client.fail_over("orders")
    await client.get_queue_sender("orders").send_messages(text("1"))
    with hanging_disk() as waiting:
        for _ in range(2):
            await client.close()
        await eventually(lambda: "pairbus-redirects" in waiting)
        assert caplog.text.count("it goes on without its caller") == 2
        with pytest.raises(ClientClosedError):
            await client.start()
    await eventually(lambda: client.status().sides == {"primary": "closed", "secondary": "closed"})
    await eventually(lambda: [path.name for path in closed_segments(shared, KIND)])


async def test_both_ledgers_are_closed_at_once(scene: Scene, tmp_path: Path) -> None:
    """Each may have to wait for a disk that hangs, and closing ends within a limit."""
    client = scene.client(state_dir=tmp_path, share_pings=True)
    client.get_queue_sender("orders")
    client.fail_over("orders")
    await eventually(lambda: client._fleet_way is not None)
    both, close = threading.Barrier(2), OperationLog.close

    def close_together(log: OperationLog) -> None:
        both.wait(PATIENCE)
        close(log)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OperationLog, "close", close_together)
        await client.close()
    assert not both.broken


def _is_let_go(state_dir: Path) -> bool:
    """Whether the spool can be taken over, and the chain of redirect records has ended."""
    [lock] = (state_dir / "spool").glob("*/.lock")
    heads = [found.head for found in read_heads(state_dir / "records", KIND)]
    with hold_alone(lock, create=False) as held:
        return held is not None and [head.is_open for head in heads if head is not None] == [False]
