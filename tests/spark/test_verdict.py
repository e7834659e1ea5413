"""What is told about a backlog: before a drain, after it, and when something is missing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from pairbus import PairedServiceBusClient, SendAvailabilityOptions
from pairbus.backlog.plan import plan_backlog
from pairbus.backlog.redrive import DeadLetterChoice, redrive
from pairbus.ledger import SegmentWriter
from pairbus.spark import Backlog, PumpOptions, PumpPair, Syphon, verify

from .bus import Bus, Letter

pytestmark = pytest.mark.timeout(300)


def record(records: Path, bus: Bus, letters: list[Letter], *, is_open: bool = False) -> SegmentWriter:
    """Redirect records, as a client writes them."""
    writer = SegmentWriter(records, "redirects")
    writer.append(
        {
            "message_id": letter.id,
            "path": letter.path.upper(),  # paths are case-insensitive
            "session_id": letter.session,
            "queue": bus.backlog[0],
            "at": time.time(),
        }
        for letter in letters
    )
    if not is_open:
        writer.close()
    return writer


def test_what_the_paired_client_redirected_arrives_and_is_verified(
    spark: Any, bus: Bus, pair: PumpPair, tmp_path: Path
) -> None:
    bus.create_entities(queues=["orders"], sessions=["carts"], topics=["news"])
    options = SendAvailabilityOptions(failover_interval=0, backlog_queue_count=10)
    bus.primary.faults.set("refuse")
    with PairedServiceBusClient.from_connection_strings(
        bus.primary.policies["tests"], bus.secondary.policies["tests"], options=options, state_dir=tmp_path
    ) as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages([ServiceBusMessage(f"order {n}", message_id=f"o{n}") for n in range(5)])
        with client.get_queue_sender("carts") as sender:
            for n in range(5):
                sender.send_messages(ServiceBusMessage(f"cart {n}", message_id=f"c{n}", session_id="s"))
        with client.get_topic_sender("news") as sender:
            sender.send_messages(ServiceBusMessage("news", message_id="n0", subject="today"))
    assert bus.left() == 11
    bus.primary.faults.clear()
    waiting = verify(spark, [Backlog(pair=pair)], records=[tmp_path / "records"])
    assert (waiting.redirected, waiting.waiting, waiting.lost) == (11, 11, 0)
    summary = Syphon(spark, pair, state=tmp_path).run(once=True)
    assert (summary.moved, summary.dead_lettered) == (11, 0)
    assert sorted(bus.ids("orders")) == [f"o{n}" for n in range(5)]
    assert bus.ids("carts") == [f"c{n}" for n in range(5)]
    assert bus.ids("news/Subscriptions/all") == ["n0"]
    verdict = verify(spark, [Backlog(pair=pair)], records=[tmp_path / "records"])
    assert (verdict.redirected, verdict.delivered, verdict.waiting, verdict.lost) == (11, 11, 0, 0)
    assert (verdict.duplicated, verdict.unrecorded) == (0, 0)
    assert verdict.is_clean


def test_a_message_deleted_by_hand_is_named(spark: Any, bus: Bus, pair: PumpPair, tmp_path: Path) -> None:
    bus.create_entities(queues=["orders"], sessions=[], topics=[])
    sent = [Letter(path="orders", id=f"m{n}") for n in range(4)]
    stray = Letter(path="gone", id="stray")
    late = Letter(path="orders", id="late")
    records = tmp_path / "records"
    record(records, bus, [*sent, stray])
    bus.put([*sent, stray], spread=lambda index, letter: index)
    taken = bus.take(bus.backlog[2])
    Syphon(spark, pair, state=tmp_path).run(once=True)
    writer = record(records, bus, [late], is_open=True)  # of a client that runs
    bus.put([late])
    unknown = Letter(path="orders", id="unknown")
    bus.put([unknown])
    verdict = verify(spark, [Backlog(pair=pair)], records=[records])
    writer.close()
    assert [one.message_id for one in verdict.missing] == [taken.message_id] == ["m2"]
    assert verdict.lost == 1
    assert not verdict.is_clean
    assert verdict.redirected == 6
    assert (verdict.delivered, verdict.dead_lettered, verdict.waiting) == (3, 1, 2)
    assert (verdict.unrecorded, verdict.duplicated) == (1, 0)


async def test_dead_letters_go_back_into_play_by_path_and_reason(bus: Bus, pair: PumpPair) -> None:
    for path, reason in (("orders", "EntityNotFound"), ("carts", "EntityNotFound"), ("orders", "Other")):
        await bury(bus, pair, Letter(path=path, id=f"{path}-{reason}", session="s"), reason)
    chosen = DeadLetterChoice(paths=["Orders"], reasons=["entitynotfound"])
    done = await redrive(pair, bus.backlog[:2], chosen)
    assert done.redriven == {"EntityNotFound": 1}
    assert done.left == {"EntityNotFound": 1, "Other": 1}
    (back,) = bus.found(bus.backlog[0], on_secondary=True)
    assert back.message_id == "orders-EntityNotFound"
    assert b"DeadLetterReason" not in back.application_properties_bytes
    assert b"x-ms-sessionid" in back.application_properties_bytes
    dead = bus.found(f"{bus.backlog[0]}/$DeadLetterQueue", on_secondary=True)
    assert [message.message_id for message in dead] == ["carts-EntityNotFound", "orders-Other"]
    rest = await redrive(pair, bus.backlog, DeadLetterChoice())
    assert rest.redriven == {"EntityNotFound": 1, "Other": 1}
    assert bus.secondary.message_count(f"{bus.backlog[0]}/$DeadLetterQueue") == 0
    assert bus.left() == 3


async def bury(bus: Bus, pair: PumpPair, letter: Letter, reason: str) -> None:
    """Put a letter into the first backlog queue and dead-letter it there."""
    from pairbus.pump.pump import open_transport

    bus.put_raw(bus.backlog[0], [letter.wrapped()])
    transport = open_transport(pair.secondary.resolve(), PumpOptions())
    source = transport.source(bus.backlog[0])
    (delivery,) = await source.receive(1, 5.0)
    assert await source.dead_letter(delivery, reason=reason, description="for the test") is None
    await source.close()
    await transport.close()


async def test_a_plan_tells_what_a_drain_would_do(bus: Bus, pair: PumpPair) -> None:
    bus.create_entities(queues=["orders"], sessions=[], topics=["news"])
    bus.put([Letter(path="Orders", id=f"o{n}", body=b"x" * 70_000) for n in range(3)])
    bus.put([Letter(path="news", id="n0"), Letter(path="gone", id="g0")])
    bus.put([Letter(path="orders", id="short", ttl_ms=1)])
    bus.put_raw(bus.backlog[1], [Letter(path="x" * 300, id="odd").wrapped()])
    backlog = Backlog(pair=pair, count=12)
    plan = await plan_backlog(backlog, PumpOptions(ttl_policy="deduct"), rate=10, now=time.time() + 60)
    assert plan.paths.keys() == {"orders", "news", "gone", "(none)"}
    assert plan.messages == 7
    assert plan.seconds == pytest.approx(0.7)
    assert plan.paths["orders"].messages == 4
    assert plan.paths["orders"].problems() == ["1 expired"]
    assert plan.paths["orders"].oldest == pytest.approx(60, abs=10)
    assert plan.paths["gone"].is_missing
    assert not plan.paths["news"].is_missing
    assert plan.paths["(none)"].problems() == ["1 malformed"]
    assert plan.poison == 3
    assert plan.operations == 3 * (3 * 2 + 4)
    assert len(plan.notes) == 2
    assert float(plan.cost) > 0
    assert bus.left() == 7
    assert bus.locked() == 0
