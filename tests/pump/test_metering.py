"""What a pump records is what the broker counts: for a path that refuses, and through a long idle poll."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from pairbus.broker.counters import OperationKind
from pairbus.ledger.operation_log import OperationSums
from pairbus.pump import amqp_transport
from pairbus.pump.options import PumpOptions
from pairbus.pump.pair import ResolvedSide
from pairbus.pump.pump import OpenTransport, Pump, open_transport
from pairbus.pump.transport import Transport
from pairbus.stages import Stage
from pairbus.wire.meter import Meter
from tests.waiting import PATIENCE, eventually

from .bench import Bench, envelope

# Namespace, entity, kind.
Cells = Counter[tuple[str, str, str]]


class Sums(OperationSums):
    """A ledger in memory."""

    def start(self) -> None:
        """There is no thread to start."""

    def close(self) -> None:
        """There is nothing to close."""

    @property
    def completed(self) -> int:
        """How many completions are known, up to now."""
        return sum(
            count for (_, _, _, kind, *_), (count, *_) in list(self._sums.items()) if kind == "complete"
        )

    def cells(self) -> tuple[Cells, Cells]:
        """What is known to have been done, and what may have been."""
        known, unknown = Cells(), Cells()
        for (namespace, entity, _, kind, _, _, _), (count, unsure, _) in self.take().items():
            known[namespace, entity.lower(), kind] += count
            unknown[namespace, entity.lower(), kind] += unsure
        return +known, +unknown


def counted(bench: Bench) -> Cells:
    cells = Cells()
    for namespace in (bench.primary, bench.secondary):
        for tally in namespace.counters():
            if tally.kind is not OperationKind.ADMIN:
                cells[namespace.name, tally.entity.lower(), tally.kind.value] += tally.count
    return +cells


def metered(
    bench: Bench, queue: str, sums: Sums, options: PumpOptions, *, opening: OpenTransport = open_transport
) -> Pump:
    ledger: Any = sums
    return Pump(
        bench.pair(), [queue], options=options, receipts=bench.receipts, ledger=ledger, transport=opening
    )


async def test_exact_for_a_path_that_refuses(bench: Bench) -> None:
    """Refused sends, messages put aside, fetched and put aside again."""
    (queue,) = bench.create("good", "bad")
    for path in ("good", "bad"):
        bench.load(queue, [envelope(path, f"{path}{number}") for number in range(15)])
    bench.primary.faults.set("disabled", entity="bad")
    sums = Sums(role="pump")
    options = PumpOptions(drain=True, drain_wait=0.5, first_back_off=0.2)
    summary = await metered(bench, queue, sums, options).run()
    assert (summary.moved, summary.waiting) == (15, 15)
    bench.primary.faults.clear()
    await metered(bench, queue, sums, options).run()
    known, unknown = sums.cells()
    assert unknown == Cells()
    assert known == counted(bench)


class CalledSums(Sums):
    """Also counts how often each kind was recorded."""

    def __init__(self) -> None:
        super().__init__(role="pump")
        self.calls = Counter[str]()

    def record(self, namespace: str, entity: str, *, kind: str, **others: Any) -> None:
        self.calls[kind] += 1
        super().record(namespace, entity, kind=kind, **others)


async def test_messages_that_come_together_are_recorded_together(bench: Bench) -> None:
    """One record for each message was a twentieth of what a pump does."""
    (queue,) = bench.create("orders")
    bench.load(queue, [envelope("orders", f"{number}") for number in range(500)])
    sums = CalledSums()
    assert (await metered(bench, queue, sums, PumpOptions(drain=True)).run()).moved == 500
    assert sums.calls["delivery"] <= 100
    assert sums.calls["send"] <= 100
    known, unknown = sums.cells()
    assert unknown == Cells()
    assert known == counted(bench)


async def test_a_long_poll_is_split_where_the_service_would_close_the_link(bench: Bench) -> None:
    """A poll of 0.9 s over links that may idle for 0.2 s: five receives of 0.18 s each."""
    (queue,) = bench.create("orders")

    def open_impatient(side: ResolvedSide, options: PumpOptions) -> Transport:
        transport = open_transport(side, options)
        transport.longest_wait = 0.2
        return transport

    sums = Sums(role="pump")
    pump = metered(bench, queue, sums, PumpOptions(poll=0.9), opening=open_impatient)
    running = asyncio.create_task(pump.run())
    async with asyncio.timeout(PATIENCE):
        await eventually(lambda: bench.counted(OperationKind.EMPTY_RECEIVE) >= 6)
    bench.load(queue, [envelope("orders", "late")])
    async with asyncio.timeout(PATIENCE):
        await eventually(lambda: bench.primary.message_count("orders") >= 1)
    pump.stop()
    summary = await running
    assert summary.moved == 1
    known, unknown = sums.cells()
    assert unknown == Cells()
    assert known["contoso-dr", queue, "empty_receive"] >= 6
    assert known == counted(bench)


async def test_a_long_poll_outlives_a_link_that_the_service_took_for_idle(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is one receive while the link stays, also by TLS, and no failure when it does not."""
    monkeypatch.setattr(amqp_transport, "SERVICE_LINK_IDLE", 0.0)
    (queue,) = bench.create("orders")
    sums = Sums(role="pump")
    pump = metered(bench, queue, sums, PumpOptions(poll=600.0))
    running = asyncio.create_task(pump.run())
    async with asyncio.timeout(PATIENCE):
        bench.load(queue, [envelope("orders", "early")])
        # The pump has heard that it is completed: a reset before that leaves it unknown.
        await eventually(lambda: sums.completed == 1)
        bench.secondary.faults.set("reset", entity=queue)
        bench.secondary.faults.clear()
        bench.load(queue, [envelope("orders", "late")])
        await eventually(lambda: bench.primary.message_count("orders") == 2)
    pump.stop()
    summary = await running
    assert (summary.moved, summary.queue_errors) == (2, {})
    known, unknown = sums.cells()
    assert unknown == Cells()
    assert known == counted(bench)


def test_what_a_client_does_is_not_booked_as_the_work_of_a_syphon() -> None:
    """It peeks by the transports of a pump, and has no other business in the backlog."""
    sums = Sums(role="client")
    meter = Meter("contoso-dr", sums, region="secondary")
    meter.note("q", "management", count=1)
    for kind in ("delivery", "complete", "empty_receive"):
        with pytest.raises(KeyError):
            meter.note("q", kind, count=1)
    assert [key[:4] for key in sums.take()] == [("contoso-dr", "q", Stage.MANAGEMENT, "management")]
