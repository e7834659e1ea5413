"""Those who wait in line for a backlog queue go in one transfer, and each has its own fate."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import OperationTimeoutError

from pairbus.aio import PairedSender
from pairbus.client.sending.rounds import Convoy, Round
from pairbus.client.sending.wrapping import WrappedMessage
from pairbus.testing import ManualTimers

from .scene import BACKLOG, HELD_BACK, TRANSPORT, Scene, eventually, sending_method, text

NAMES = [f"{number:02d}" for number in range(12)]


class Line:
    """A path that has failed over, a queue that has taken one message, and who is in line for it."""

    def __init__(self, scene: Scene, sender: PairedSender) -> None:
        self.scene = scene
        self.sender = sender
        self.sends: list[asyncio.Task[None]] = []
        #: How many messages the SDK was given at once.
        self.transfers: list[int] = []
        self._fault: dict[str, Any] | None = None
        self._is_cleared = False
        self._acts: list[Callable[[int], None]] = [self._count]
        self._watch_transfers()

    def _watch_transfers(self) -> None:
        """Have something done with the number of messages of each transfer to the backlog, before it."""
        route: Any = self.sender._client.pair.backlog
        transmit, send_convoy = route.transmit, route._send_convoy

        def act(messages: int) -> None:
            for each in reversed(self._acts):
                each(messages)

        class Watched(Convoy):
            __slots__ = ()

            def transmit(self, sender: Any) -> Any:
                act(len(self.rounds))
                return super().transmit(sender)

        def transmit_one(wanted: Any, sender: Any) -> Any:
            act(len(wanted.messages))
            return transmit(wanted, sender)

        async def transmit_several(link: Any, queue: str, convoy: Any) -> None:
            convoy.__class__ = Watched
            await send_convoy(link, queue, convoy)

        route.transmit, route._send_convoy = transmit_one, transmit_several

    def _count(self, messages: int) -> None:
        self.transfers.append(messages)
        if messages > 1 and self._fault is not None:
            self._strike()
        elif self._is_cleared and self._fault is None:
            self.scene.secondary.faults.clear()

    @classmethod
    async def form(cls, scene: Scene, **settings: Any) -> Line:
        sender = scene.sender(**settings)
        sender._client.fail_over("orders")
        sender._client.pair.backlog.rotation._random = lambda: 0.0
        await sender.send_messages(text("first"))
        return cls(scene, sender)

    def send(self, messages: Sequence[Any], **settings: Any) -> None:
        self.sends += [
            self.scene.begin(self.sender.send_messages(message, **settings)) for message in messages
        ]

    async def until_under_way(self) -> None:
        """Until the first has gone, and the others are on their way behind it."""
        if TRANSPORT == "sdk":
            await eventually(lambda: len(self.transfers) >= 2 and self.link.is_calling)
        else:
            await eventually(lambda: self.link.length >= len(NAMES))

    def strike(self, kind: str, **settings: Any) -> None:
        """Have the secondary struck by a fault when those who wait set out together; else at once."""
        self._fault = {"kind": kind, **settings}
        if TRANSPORT != "sdk":
            self._strike()

    def clear_with_the_next(self) -> None:
        """The fault is over when somebody goes after those."""
        self._is_cleared = True
        if TRANSPORT != "sdk":
            self.scene.secondary.faults.clear()

    def last(self, seconds: float, timers: ManualTimers) -> None:
        """Each transfer takes so long from now on."""

        def pass_time(messages: int) -> None:
            timers._now += seconds

        self._acts.append(pass_time)

    def _strike(self) -> None:
        fault, self._fault = self._fault, None
        self.scene.secondary.faults.set(**(fault or {}))

    @property
    def link(self) -> Any:
        return self.sender._client.pair.backlog._links[BACKLOG[0]]

    async def ends_in_time(self, timers: ManualTimers) -> list[str]:
        """The same, while time passes."""
        while not all(send.done() for send in self.sends):
            await self.scene.rest(at_most=0.2)
            await timers.advance(1.0)
        return await self.ends()

    async def ends(self) -> list[str]:
        """How each call ended."""
        found = await asyncio.gather(*self.sends, return_exceptions=True)
        return ["done" if one is None else type(one).__name__ for one in found]


def messages(names: Sequence[str] = NAMES) -> list[ServiceBusMessage]:
    return [text(name) for name in names]


def rows(state: Path) -> Counter[tuple[str, str | None]]:
    """The redirect records: of which message, and with which outcome."""
    found = [
        json.loads(line)
        for path in (state / "records").glob("redirects*")
        for line in path.read_text().splitlines()
    ]
    return Counter((row["message_id"], row["outcome"]) for row in found if "message_id" in row)


async def test_those_in_line_go_together_in_their_order_and_each_has_its_record(
    still: Scene, tmp_path: Path
) -> None:
    line = await Line.form(still, state_dir=tmp_path)
    line.send(messages())
    assert await line.ends() == ["done"] * 12
    assert still.backlog_ids() == ["first", *NAMES]
    if TRANSPORT == "sdk":
        assert line.transfers == [1, 11]
    assert still.diary.outcomes("backlog") == ["ok"] * 13
    await line.sender._client.close()
    assert rows(tmp_path) == Counter((name, None) for name in ("first", *NAMES))


async def test_what_a_caller_changes_while_its_message_waits_changes_nothing(
    still: Scene, tmp_path: Path
) -> None:
    line = await Line.form(still, state_dir=tmp_path)
    given = messages()
    line.send(given)
    await asyncio.sleep(0)  # they are in line
    for message in given:
        message.message_id, message.subject, message.application_properties = "other", "other", {"a": 1}
    assert set(await line.ends()) == {"done"}
    assert still.backlog_ids() == ["first", *NAMES]
    await line.sender._client.close()
    assert rows(tmp_path) == Counter((name, None) for name in ("first", *NAMES))


async def test_what_does_not_go_together_keeps_its_place(still: Scene) -> None:
    line = await Line.form(still)
    keyed = ServiceBusMessage("k", message_id="06", partition_key="p")
    large = [ServiceBusMessage(b"x" * 120_000, message_id=f"{number:02d}") for number in (8, 9, 10)]
    odd: list[Any] = [*messages(NAMES[:4]), messages(NAMES[4:6]), keyed, text("07"), *large, text("11")]
    line.send(odd)
    assert set(await line.ends()) == {"done"}
    assert still.backlog_ids() == ["first", *NAMES]
    if TRANSPORT == "sdk":  # the list goes by itself, and so does the key
        assert line.transfers == [1, 3, 2, 1, 3, 2]


@pytest.mark.parametrize("gone", [0, 5, 11])
async def test_who_is_cancelled_leaves_the_others_on_their_way(
    still: Scene, tmp_path: Path, gone: int
) -> None:
    line = await Line.form(still, state_dir=tmp_path)
    line.strike("delay", seconds=HELD_BACK)
    line.send(messages(["ahead", *NAMES]))
    await line.until_under_way()
    line.sends[1 + gone].cancel()
    await asyncio.sleep(0)
    still.give_answers()
    assert Counter(await line.ends()) == {"done": 12, "CancelledError": 1}
    found = still.backlog_ids()
    assert [name for name in found if name != NAMES[gone]] == [
        "first",
        "ahead",
        *(name for name in NAMES if name != NAMES[gone]),
    ]
    await line.sender._client.close()
    assert rows(tmp_path)[NAMES[gone], "unknown"] == 1
    assert still.diary.outcomes("backlog").count("unknown") == 1


async def test_who_is_out_of_time_leaves_the_others_on_their_way(
    still: Scene, manual_timers: ManualTimers
) -> None:
    line = await Line.form(still)
    line.strike("silence")
    line.send(messages(["ahead", *NAMES[:3]]))
    line.send(messages(["hasty"]), timeout=2.0)
    line.send(messages(NAMES[3:]))
    await line.until_under_way()
    await manual_timers.advance(2.0)
    hasty = line.sends[4]
    await asyncio.wait({hasty})
    with pytest.raises(OperationTimeoutError):
        hasty.result()
    assert not any(send.done() for send in line.sends[1:] if send is not hasty)
    still.secondary.faults.clear()
    assert Counter(await line.ends_in_time(manual_timers)) == {"done": 13, "OperationTimeoutError": 1}
    assert {"first", "ahead", *NAMES} <= set(still.backlog_ids())


async def test_what_is_refused_together_goes_message_by_message(still: Scene) -> None:
    """Of a batch nobody knows for the sake of which message it was refused."""
    line = await Line.form(still)
    line.strike("error", condition="com.microsoft:argument-error")
    line.clear_with_the_next()
    line.send(messages())
    assert await line.ends() == ["done"] * 12
    assert still.backlog_ids() == ["first", *NAMES]
    assert still.diary.rotations == []
    if TRANSPORT == "sdk":
        assert line.transfers == [1, 11, *[1] * 11]
        assert Counter(still.diary.outcomes("backlog")) == {"ok": 13, "failed": 11}


class Incomparable:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("code of a message")

    __hash__ = object.__hash__


@pytest.mark.parametrize("part", ["application_properties", "annotations"])
async def test_what_cannot_be_written_fails_alone(still: Scene, part: str) -> None:
    line = await Line.form(still)
    wrong = text("wrong")
    setattr(wrong.raw_amqp_message, part, {b"x-opt-partition-key": Incomparable()})
    line.send([*messages(NAMES[:6]), wrong, *messages(NAMES[6:])])
    found = await line.ends()
    assert found[:6] == found[7:] == ["done"] * 6
    assert found[6] == "ServiceBusError"
    assert still.backlog_ids() == ["first", *NAMES]


async def test_what_a_throttled_queue_refuses_together_is_taken_in_order(
    still: Scene, manual_timers: ManualTimers
) -> None:
    line = await Line.form(still)
    still.secondary.faults.set("busy")
    line.send(messages())
    await eventually(lambda: "failed" in still.diary.outcomes("backlog"))
    still.secondary.faults.clear()
    assert await line.ends_in_time(manual_timers) == ["done"] * 12
    assert still.backlog_ids() == ["first", *NAMES]
    assert still.diary.rotations == []


async def test_those_whom_a_throttled_queue_refuses_together_have_their_time_when_it_is_their_turn(
    still: Scene, manual_timers: ManualTimers
) -> None:
    """To wait for the first of them, which waits for the queue, takes none of it."""
    line = await Line.form(still)
    line.strike("error", condition="com.microsoft:server-busy")  # without a word for how long
    line.clear_with_the_next()
    line.send(messages(["ahead", *NAMES]))
    if TRANSPORT == "sdk":
        await eventually(lambda: "failed" in still.diary.outcomes("backlog"))
    line.last(3.0, manual_timers)
    assert await line.ends_in_time(manual_timers) == ["done"] * 13
    assert still.backlog_ids() == ["first", "ahead", *NAMES]
    if TRANSPORT == "sdk":
        assert line.transfers == [1, 12, 1, 11]


async def test_those_who_met_a_silent_queue_together_have_their_time_at_the_next(
    still: Scene, manual_timers: ManualTimers
) -> None:
    line = await Line.form(still)
    line.strike("delay", entity=BACKLOG[0], seconds=600.0)
    line.send(messages(["ahead", *NAMES]))
    await line.until_under_way()
    line.last(2.0, manual_timers)
    assert await line.ends_in_time(manual_timers) == ["done"] * 13
    second = next(queue for queue in BACKLOG[1:] if still.messages(queue, secondary=True))
    taken = [message.message_id for message in still.messages(second, secondary=True)]
    assert [name for name in taken if name in NAMES] == NAMES


@pytest.mark.parametrize("number", [1, 12])
async def test_nobody_waits_for_a_throttled_queue_of_a_side_that_has_ended(still: Scene, number: int) -> None:
    """Time stands still here: whoever waits for a rest to end waits for ever."""
    line = await Line.form(still)
    sender, calls = line.link._sender, 0
    name = sending_method(sender)
    send = getattr(sender, name)

    async def fault_and_send(*given: Any, **settings: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == min(number, 2):
            still.secondary.faults.set("busy")
            line.sender._client.fault("away", side="secondary")
        await send(*given, **settings)

    setattr(sender, name, fault_and_send)
    line.send(messages(NAMES[:number]))
    await eventually(lambda: all(send.done() for send in line.sends))
    assert (await line.ends())[-1] == "PairFaultedError"


async def test_an_answer_that_is_lost_is_unknown_for_each_and_all_go_on_in_order(
    still: Scene, manual_timers: ManualTimers, tmp_path: Path
) -> None:
    line = await Line.form(still, state_dir=tmp_path)
    line.strike("delay", entity=BACKLOG[0], seconds=600.0)
    line.send(messages(["ahead", *NAMES]))
    await line.until_under_way()
    assert await line.ends_in_time(manual_timers) == ["done"] * 13
    second = next(queue for queue in BACKLOG[1:] if still.messages(queue, secondary=True))
    taken = [message.message_id for message in still.messages(second, secondary=True)]
    assert [name for name in taken if name in NAMES] == NAMES
    await line.sender._client.close()
    unknown = {name for (name, outcome), count in rows(tmp_path).items() if outcome == "unknown"}
    assert set(NAMES) <= unknown
    assert still.diary.outcomes("backlog").count("unknown") == len(unknown)


async def test_a_client_that_is_closed_lets_everybody_go(still: Scene) -> None:
    line = await Line.form(still)
    line.strike("silence")
    line.send(messages(["ahead", *NAMES]))
    await line.until_under_way()
    await line.sender._client.close()
    assert "done" not in (await line.ends())[1:]


def test_who_has_less_time_left_goes_by_itself() -> None:
    """Its attempt would be given up earlier than that of the others, or theirs with it."""
    fresh, other, late = (
        Round("orders", None, parcel=WrappedMessage(text(name).raw_amqp_message, name, None, 1))
        for name in ("1", "2", "3")
    )
    late.set_out(0.0, 10.0)
    late.halt(13.0)
    convoy = Convoy(1000, now=13.0, send_timeout=10.0)
    assert [convoy.takes(each) for each in (fresh, other, late)] == [True, True, False]
    assert (convoy.rounds, convoy.limit) == ([fresh, other], 10.0)
    alone = Convoy(1000, now=13.0, send_timeout=10.0)
    assert [alone.takes(each) for each in (late, fresh)] == [True, False]
    assert alone.limit == 2.0
