"""The lease of a pair: one has it, the others wait, and whoever loses it knows before another can have it."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from pairbus import conditions
from pairbus.broker import Broker
from pairbus.broker.counters import OperationKind
from pairbus.broker.engine.settings import QueueSettings
from pairbus.lease.holding import SessionHold
from pairbus.lease.lease import PairLease
from pairbus.lease.view import Holder, parse_holder, read_lease
from pairbus.ledger.operation_log import OperationSums
from pairbus.pairing.names import lease_queue_name
from pairbus.pump.amqp_transport import AmqpTransport
from pairbus.pump.pair import PumpPair
from pairbus.wire.errors import TransportError
from pairbus.wire.meter import Meter
from tests.waiting import PATIENCE, eventually

QUEUE = lease_queue_name("contoso")
# The shortest that a lock may last.
LOCK = 5.0


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        broker["contoso-dr"].create_queue(QUEUE, QueueSettings(requires_session=True, lock_duration=LOCK))
        yield broker


@dataclass
class Rival:
    """Somebody who wants the lease, and when it was allowed to work."""

    broker: Broker
    name: str
    times: list[tuple[float, bool]] = field(default_factory=list)
    words: list[str | None] = field(default_factory=list)
    recorder: OperationSums = field(default_factory=lambda: OperationSums(role="lease"))
    # Also that of answers which come: a machine that stands still is no outage.
    timeout: float = PATIENCE

    def open(self) -> AmqpTransport:
        sides = [self.broker[one].connection_string for one in ("contoso", "contoso-dr")]
        side = PumpPair.from_connection_strings(*sides).secondary.resolve()
        transport = AmqpTransport(side.place(), side.tokens(), timeout=self.timeout, container_id=self.name)
        transport.meter = Meter("contoso-dr", self.recorder)
        return transport

    def note(self, lease: PairLease) -> None:
        self.times.append((time.monotonic(), lease.may_work))
        self.words.append(lease.why)

    @asynccontextmanager
    async def asking(self, *, orphans: float = 0.0) -> AsyncIterator[PairLease]:
        holder = Holder.of_this_process(self.name, kind="test", now=time.time(), orphans=orphans)
        lease = PairLease(self.open, "contoso", holder=holder, on_change=self.note)
        task = asyncio.create_task(lease.run())
        try:
            yield lease
        finally:
            lease.stop()
            await asyncio.wait_for(task, 60)

    def spans(self) -> list[tuple[float, float]]:
        """From when to when it could work."""
        times = [*self.times, (time.monotonic(), False)]
        return [(begun, end) for (begun, may_work), (end, _) in pairwise(times) if may_work]


def overlap(one: Rival, other: Rival) -> bool:
    return any(a < d and c < b for a, b in one.spans() for c, d in other.spans())


async def test_one_has_it_and_the_other_gets_it_when_it_is_given_back(broker: Broker) -> None:
    hold_for_long(broker)
    first, second = Rival(broker, "first"), Rival(broker, "second")
    async with second.asking() as waiting:
        await eventually(lambda: waiting.state == "held")
        async with first.asking() as lease:
            await eventually(lambda: lease.state == "taken")
            waiting.stop()
            await eventually(lambda: lease.state == "held")
    assert not overlap(first, second)


async def test_the_holder_is_named_and_leaves_nothing_behind(broker: Broker) -> None:
    hold_for_long(broker)
    first, second = Rival(broker, "first"), Rival(broker, "second")
    looking = first.open()
    async with first.asking() as lease:
        await eventually(lambda: lease.state == "held")
        async with second.asking() as other:
            await eventually(lambda: "a syphon (test) on" in (other.why or ""))
            view = await read_lease(looking, "contoso")
        assert (view.is_held, view.holder and view.holder.run) == (True, "first")
    assert (await read_lease(looking, "contoso")).is_held is False
    await looking.close()
    assert broker["contoso-dr"].message_count(QUEUE) == 0


async def test_it_is_renewed_and_all_of_it_is_in_the_ledger(broker: Broker) -> None:
    first, second = Rival(broker, "first"), Rival(broker, "second")
    async with first.asking() as lease, second.asking() as other:
        await eventually(lambda: "held" in (lease.state, other.state))
        holder = first if lease.state == "held" else second
        begun = time.monotonic()
        await eventually(lambda: time.monotonic() - begun > 1.5 * LOCK)
        if len(holder.times) == 1:  # or the machine was so late that it was lost, which is as it should be
            assert lease.state != other.state
    assert not overlap(first, second)
    counted: dict[str, int] = {}
    for one in (first, second):
        for key, sums in one.recorder.take().items():
            assert key[2] == ("lease_receive" if key[3] == "delivery" else "lease")
            counted[key[3]] = counted.get(key[3], 0) + sums[0]
    assert counted["management"] >= 2
    told = {kind.value: broker["contoso-dr"].count(kind, entity=QUEUE) for kind in OperationKind}
    assert counted == {kind: count for kind, count in told.items() if count}


async def test_a_holder_that_is_cut_off_is_told_before_another_has_it(broker: Broker) -> None:
    first, second = Rival(broker, "first", timeout=2.0), Rival(broker, "second")
    async with first.asking() as lease:
        await eventually(lambda: lease.state == "held")
        broker["contoso-dr"].faults.set("blackhole")  # nothing of it is read any more
        await eventually(lambda: not lease.may_work)
        broker["contoso-dr"].faults.clear()
        async with second.asking() as other:  # and now the first one comes back, and asks again
            await eventually(lambda: "held" in (lease.state, other.state))
    assert not overlap(first, second)


async def test_a_holder_whose_word_is_taken_slowly_renews_all_the_same(broker: Broker) -> None:
    """Nothing depends on the word, and the lock ends however long others take for it."""
    broker["contoso-dr"].faults.set("delay", entity=QUEUE, seconds=600)
    first, second = Rival(broker, "first", timeout=600.0), Rival(broker, "second")
    async with first.asking() as lease:
        await eventually(lambda: lease.state == "held")
        asked = broker["contoso-dr"].count(OperationKind.MANAGEMENT, entity=QUEUE)
        async with second.asking():
            await eventually(
                lambda: broker["contoso-dr"].count(OperationKind.MANAGEMENT, entity=QUEUE) > asked + 2,
                what="a renewal",
            )
    assert not overlap(first, second)


async def test_a_holder_that_takes_it_again_and_hears_nothing_more_stops_in_time(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pumps run while it asks what was left for it, and the lock ends however long that takes."""
    first = Rival(broker, "first", timeout=600.0)

    async def be_silent(self: SessionHold) -> None:
        await asyncio.Event().wait()

    async with first.asking() as lease:
        await eventually(lambda: lease.state == "held")
        monkeypatch.setattr(SessionHold, "recall", be_silent)
        broker["contoso-dr"].faults.set("reset")
        await eventually(lambda: any(one.closed_at for one in broker["contoso-dr"].connections()))
        broker["contoso-dr"].faults.clear()
        await eventually(lambda: not lease.may_work)
    assert any("nobody answers" in str(why) for why in first.words)


async def test_a_holder_whose_link_is_lost_takes_it_again_at_once(broker: Broker) -> None:
    first = Rival(broker, "first")
    async with first.asking() as lease:
        await eventually(lambda: lease.state == "held")
        broker["contoso-dr"].faults.set("reset")
        await eventually(lambda: any(one.closed_at for one in broker["contoso-dr"].connections()))
        broker["contoso-dr"].faults.clear()
        await eventually(lambda: lease.state == "held" and is_connected(broker, "first"))


def is_connected(broker: Broker, name: str) -> bool:
    connections = broker["contoso-dr"].connections()
    return any(one.container_id == name and one.closed_at is None for one in connections)


def hold_for_long(broker: Broker) -> None:
    """Let nobody lose the lease whom a busy machine keeps from renewing it."""
    settings = QueueSettings(requires_session=True, lock_duration=60.0)
    broker["contoso-dr"].update_queue(QUEUE, settings)


async def test_a_killed_holder_is_replaced(broker: Broker) -> None:
    hold_for_long(broker)
    transport = Rival(broker, "first").open()
    await SessionHold.take(transport, QUEUE)
    async with Rival(broker, "second").asking() as other:
        await eventually(lambda: other.state == "taken")
        assert other.why == "the lease of contoso is held by another syphon, which left no word of itself"
        await transport.close()  # as the end of its process does
        await eventually(lambda: other.state == "held")


@pytest.mark.parametrize(
    "settings", [None, QueueSettings()], ids=["there is no queue", "the queue has no sessions"]
)
async def test_where_there_is_none_the_work_goes_on_and_that_is_told(
    broker: Broker, settings: QueueSettings | None
) -> None:
    broker["contoso-dr"].delete_queue(QUEUE)
    if settings is not None:
        broker["contoso-dr"].create_queue(QUEUE, settings)
    async with Rival(broker, "first").asking() as lease:
        await eventually(lambda: lease.state == "unavailable")
        assert lease.may_work
        assert "`pairbus provision` makes the queue" in (lease.why or "")


async def test_a_secondary_that_is_down_gives_no_lease(broker: Broker) -> None:
    broker["contoso-dr"].faults.set("refuse")
    async with Rival(broker, "first").asking() as lease:
        await eventually(lambda: lease.state == "unreachable")
        assert not lease.may_work
        broker["contoso-dr"].faults.clear()
        await eventually(lambda: lease.state == "held")


async def test_pumps_that_outlive_a_killed_holder_have_ended_before_the_next_one_works(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They notice it after a while, if they are held by files or objects."""
    monkeypatch.setattr("pairbus.lease.lease._ASK_AGAIN", 0.05)
    monkeypatch.setattr("pairbus.lease.lease._RETRY", 0.05)
    hold_for_long(broker)
    transport = Rival(broker, "first").open()
    hold = await SessionHold.take(transport, QUEUE)
    left = Holder.of_this_process("first", kind="Spark", now=time.time(), orphans=0.5)
    await hold.remember(json.dumps(asdict(left)).encode())
    second = Rival(broker, "second")
    async with second.asking() as other:
        await eventually(lambda: other.state == "taken")
        assert not other.is_ours
        died = time.monotonic()  # or a moment later: the other one may have the lease before this returns
        await transport.close()  # as the end of its process does
        await eventually(lambda: other.is_ours)
        await eventually(lambda: other.state == "held")
        assert second.spans()[0][0] - died >= 0.5
    words = [why for why in second.words if why is not None]
    assert words[-1].startswith("the pumps are ending of a syphon (Spark) on")
    async with Rival(broker, "third").asking() as next_one:
        await eventually(lambda: next_one.may_work)
        assert next_one.why is None, "the second one has ended as it should"


@pytest.mark.parametrize("deed", ["recall", "remember"])
async def test_who_cannot_hear_of_pumps_or_leave_word_of_its_own_does_not_work_yet(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, deed: str
) -> None:
    """A secondary is throttled most easily while the pumps of a killed holder are still at work."""
    monkeypatch.setattr("pairbus.lease.lease._ASK_AGAIN", 0.05)
    refusals = [TransportError(conditions.SERVER_BUSY, "wait 2 seconds")] * 2
    given = getattr(SessionHold, deed)

    async def be_busy(self: SessionHold, *told: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return await given(self, *told)

    monkeypatch.setattr(SessionHold, deed, be_busy)
    first = Rival(broker, "first")
    async with first.asking(orphans=5.0) as lease:
        await eventually(lambda: lease.may_work)
        assert refusals == []
    assert "wait 2 seconds" in str(first.words[0])


async def test_who_may_leave_no_word_works_without(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(self: SessionHold, *told: Any) -> Any:
        raise TransportError(conditions.NOT_IMPLEMENTED, "no such thing")

    monkeypatch.setattr(SessionHold, "recall", refuse)
    first = Rival(broker, "first")
    async with first.asking() as lease:
        await eventually(lambda: lease.state == "held")
    assert first.words == [None, None]


async def test_no_error_ends_the_asking(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else pumps that hold the lease would go on without it, and those that wait would wait for ever."""
    monkeypatch.setattr("pairbus.lease.lease._ASK_AGAIN", 0.01)
    first, certificates = Rival(broker, "first"), [FileNotFoundError("no such file: ca.pem")]
    given = first.open

    def open_transport() -> AmqpTransport:
        if certificates:
            raise certificates.pop()
        return given()

    monkeypatch.setattr(first, "open", open_transport)
    async with first.asking() as lease:
        await eventually(lambda: lease.state == "held")
    assert [may_work for _, may_work in first.times] == [False, True, False]


@pytest.mark.parametrize("since", ['"yesterday"', "1e300", "-1", "true", "null"])
def test_a_word_that_nobody_can_read_is_none(since: str) -> None:
    told = f'{{"host":"a","pid":1,"run":"r","kind":"local","since":{since}}}'
    assert parse_holder(told.encode()) is None
    assert parse_holder(told.replace(since, "1.0").encode()) is not None


async def test_who_looks_takes_nothing_that_nobody_has_left_word_of(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking = Rival(broker, "first").open()
    with monkeypatch.context() as patch:
        patch.setattr("pairbus.lease.view.SessionHold.take", None)
        assert (await read_lease(looking, "contoso")).is_held is False
    broker["contoso-dr"].delete_queue(QUEUE)
    assert (await read_lease(looking, "contoso")).trouble is not None
    await looking.close()


async def test_the_word_of_one_who_died_is_not_believed(broker: Broker) -> None:
    looking = Rival(broker, "first").open()
    hold = await SessionHold.take(looking, QUEUE)
    assert hold.duration <= LOCK, "what the queue says counts, not what provisioning would have set"
    await hold.announce("{}", message_id="dead")
    hold.release()
    assert (await read_lease(looking, "contoso")).is_held is False
    await looking.close()
