"""What is told about a backlog: before a drain, after it, and when something is missing."""

import asyncio
import dataclasses
import random
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from azure.servicebus import ServiceBusMessage

import tests.ledger
from pairbus import PairedServiceBusClient, SendAvailabilityOptions
from pairbus.backlog.plan import plan_backlog
from pairbus.backlog.redrive import DeadLetterChoice, redrive
from pairbus.client.state.records import UNANSWERED
from pairbus.errors import ConfigurationError
from pairbus.ledger.receipts import operation_id
from pairbus.ledger.reckoning import KeyCounts, Reckoning, reckon
from pairbus.ledger.retention import trim
from pairbus.ledger.segment import SegmentWriter, closed_segments
from pairbus.spark import (
    Backlog,
    PumpOptions,
    PumpPair,
    Syphon,
    compact_receipts,
    verify,
)
from pairbus.spark.receipts import read_receipts
from pairbus.spark.redirects import read_redirects
from pairbus.spark.verdict import _load_handled, _reckon, _recorded, _signs, _sum_up, _tell
from tests.ledger.histories import PAIRS, History, JsonTable, judge
from tests.ledger.test_receipts import receipt

from .bus import OTHER_ENV, SECONDARY_ENV, Bus, Letter
from .conftest import IS_LONG

# Written by that version.
VERSION_0_1_0 = Path(tests.ledger.__file__).parent / "version_0_1_0"
pytestmark = pytest.mark.timeout(900)


def record(
    records: Path,
    bus: Bus,
    letters: list[Letter],
    *,
    queue: str | None = None,
    is_open: bool = False,
    outcome: str | None = None,
) -> SegmentWriter:
    """Redirect records, as a client writes them."""
    writer = SegmentWriter(records, "redirects", is_chained=True)
    writer.append(
        {
            "message_id": letter.id,
            "path": letter.path.upper(),  # paths are case-insensitive
            "session_id": letter.session,
            "queue": queue or bus.backlog[0],
            "at": time.time(),
            "outcome": outcome,
        }
        for letter in letters
    )
    if not is_open:
        writer.close(ends=True)
    return writer


@pytest.mark.long
def test_what_the_paired_client_redirected_arrives_and_is_verified(
    spark: Any, bus: Bus, pair: PumpPair, tmp_path: Path
) -> None:
    state = tmp_path / "a state [1] {2}"  # patterns to Spark, a name to everybody else
    bus.create_entities(queues=["orders"], sessions=["carts"], topics=["news"])
    options = SendAvailabilityOptions(failover_interval=0, backlog_queue_count=10)
    bus.primary.faults.set("refuse")
    with PairedServiceBusClient.from_connection_strings(
        bus.primary.policies["tests"], bus.secondary.policies["tests"], options=options, state_dir=state
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
    waiting = verify(spark, [Backlog(pair=pair)], records=[state / "records"])
    assert (waiting.redirected, waiting.waiting, waiting.lost) == (11, 11, 0)
    summary = Syphon(spark, pair, state=state).run(once=True)
    assert (summary.moved, summary.dead_lettered) == (11, 0)
    assert sorted(bus.ids("orders")) == [f"o{n}" for n in range(5)]
    assert bus.ids("carts") == [f"c{n}" for n in range(5)]
    assert bus.ids("news/Subscriptions/all") == ["n0"]
    verdict = verify(spark, [Backlog(pair=pair)], records=[state / "records"])
    assert (verdict.redirected, verdict.delivered, verdict.waiting, verdict.lost) == (11, 11, 0, 0)
    assert (verdict.duplicated, verdict.unexpected) == (0, 0)
    assert verdict.is_clean
    assert verdict.is_spotless
    assert waiting.is_clean
    assert not waiting.is_spotless


@pytest.mark.long
def test_a_message_deleted_by_hand_is_named(spark: Any, bus: Bus, pair: PumpPair, tmp_path: Path) -> None:
    bus.create_entities(queues=["orders"], sessions=[], topics=[])
    sent = [Letter(path="orders", id=f"m{n}") for n in range(4)]
    stray = Letter(path="gone", id="stray")
    late = Letter(path="orders", id="late")
    records = tmp_path / "records"
    record(records, bus, [*sent, stray])
    record(records, bus, [sent[0], sent[0], stray], outcome=UNANSWERED)  # the primary may have them as well
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
    assert (verdict.unexpected, verdict.duplicated, verdict.at_most_duplicated) == (1, 0, 3)
    assert verdict.is_complete


@pytest.mark.long
def test_what_waited_through_several_runs_is_called_no_duplicate(
    spark: Any, bus: Bus, pair: PumpPair, tmp_path: Path
) -> None:
    bus.create_entities(queues=["orders"], sessions=[], topics=[])
    sent = [Letter(path="orders", id=f"m{n}") for n in range(40)]
    record(tmp_path / "records", bus, sent)
    bus.put(sent)
    bus.primary.faults.set("refuse")
    for _ in range(3):
        assert Syphon(None, pair, state=tmp_path).run(once=True).waiting == 40
    bus.primary.faults.clear()
    assert Syphon(None, pair, state=tmp_path).run(once=True).moved == 40
    verdict = verify(spark, [Backlog(pair=pair)], records=[tmp_path / "records"])
    assert (verdict.delivered, verdict.at_most_duplicated) == (40, 0)
    assert verdict.is_spotless


@pytest.mark.long
def test_every_message_counts_by_itself(spark: Any, bus: Bus, pair: PumpPair, tmp_path: Path) -> None:
    bus.create_entities(queues=["orders"], sessions=[], topics=[])
    twice = [Letter(path="orders", id="twice"), Letter(path="orders", id="twice")]
    odd = Letter(path="orders", id=b"\xffid")  # type: ignore[arg-type]  # AMQP allows ids of bytes
    poison = [Letter(path="gone", id="purged"), Letter(path="gone", id="redriven")]
    records = tmp_path / "records"
    record(records, bus, [*twice, dataclasses.replace(odd, id="\\xffid"), *poison])
    bus.put([*twice, odd, *poison], spread=lambda index, letter: index)
    assert bus.take(bus.backlog[1]).message_id == "twice"
    Syphon(spark, pair, state=tmp_path).run(once=True)
    verdict = verify(spark, [Backlog(pair=pair)], records=[records])
    assert [(one.message_id, one.count) for one in verdict.missing] == [("twice", 1)]
    assert (verdict.delivered, verdict.dead_lettered, verdict.unexpected) == (2, 2, 0)
    # Receipts say that both were dead-lettered. Now one is purged, the other is redriven and then stolen.
    bus.take(f"{bus.backlog[3]}/$DeadLetterQueue")
    asyncio.run(redrive(pair, bus.backlog, DeadLetterChoice()))
    redriven = verify(spark, [Backlog(pair=pair)], records=[records])
    assert (redriven.lost, redriven.waiting, redriven.dead_lettered) == (2, 1, 0)
    bus.take(bus.backlog[4])
    verdict = verify(spark, [Backlog(pair=pair)], records=[records])
    assert sorted(one.message_id for one in verdict.missing) == ["purged", "redriven", "twice"]
    assert (verdict.redirected, verdict.lost, verdict.delivered) == (5, 3, 2)


@pytest.mark.long
def test_pairs_do_not_stand_in_for_each_other(spark: Any, bus: Bus, pair: PumpPair, tmp_path: Path) -> None:
    other = Bus(bus.broker, primary="fabrikam")
    letter = Letter(path="orders", id="same")
    for one in (bus, other):
        one.create_entities(queues=["orders"], sessions=[], topics=[])
        one.put([letter])
        record(tmp_path, one, [letter])
    other.take(other.backlog[0])
    both = [Backlog(pair=pair), Backlog(pair=PumpPair.from_env(OTHER_ENV, SECONDARY_ENV))]
    Syphon(spark, both, state=tmp_path / "state", records=tmp_path).run(once=True)
    verdict = verify(spark, both, records=[tmp_path])
    assert (verdict.redirected, verdict.delivered, verdict.lost) == (2, 1, 1)
    assert [one.queue for one in verdict.missing] == [other.backlog[0]]
    alone = verify(spark, both[:1], records=[tmp_path])
    assert (alone.redirected, alone.delivered, alone.is_clean) == (1, 1, True)
    assert (alone.duplicated, alone.at_most_duplicated) == (0, 0)
    assert alone.notes == ("1 redirect records are of other pairs, and are left out",)
    with pytest.raises(ConfigurationError, match="same name"):
        verify(spark, [both[0], both[0]], records=[tmp_path])


@pytest.mark.long
def test_what_is_not_on_record_makes_no_clean_verdict(
    spark: Any, bus: Bus, pair: PumpPair, tmp_path: Path
) -> None:
    letters = [Letter(path="orders", id=f"m{n}") for n in range(3)]
    bus.put(letters[1:])
    records, empty = tmp_path / "records", tmp_path / "empty"
    record(records, bus, letters)
    (segment,) = closed_segments(records, "redirects")
    lines = segment.read_bytes().splitlines(keepends=True)
    backlog = [Backlog(pair=pair)]
    damaged = (b"{broken}\n", b"[]\n", b"\n", b'{"message_id": "m0"}\n', lines[0][:40])
    segment.write_bytes(b"".join([*lines[1:], *damaged]))
    verdict = verify(spark, backlog, records=[records])
    assert (verdict.lost, verdict.redirected, verdict.is_clean) == (0, 2, False)
    (gap,) = [gap for gap in verdict.gaps if gap.startswith("5 redirect records cannot be read in ")]
    assert segment.name in gap
    assert [gap for gap in verdict.gaps if "commit 1 of" in gap and "was edited" in gap]
    segment.unlink()
    verdict = verify(spark, backlog, records=[records])
    assert (verdict.unexpected, verdict.is_clean) == (2, False)
    (gap,) = verdict.gaps
    assert "commits 1 to 1 of" in gap
    empty.mkdir()
    verdict = verify(spark, backlog, records=[empty, tmp_path / "missing"])
    assert (verdict.lost, verdict.is_clean) == (0, False)
    assert [gap.partition(" ")[0] for gap in verdict.gaps] == ["there"] * 3


def test_records_of_version_0_1_0_count(spark: Any, bus: Bus, pair: PumpPair, tmp_path: Path) -> None:
    """A table, segments, and what a killed client and pump have left; compacted today they tell the same."""
    records = shutil.copytree(VERSION_0_1_0, tmp_path / "records")
    verdict = verify(spark, [Backlog(pair=pair)], records=[records])
    assert (verdict.redirected, verdict.delivered, verdict.lost) == (5, 4, 1)
    assert [one.message_id for one in verdict.missing] == ["m5"]
    assert verdict.is_complete
    of_receipts = (
        f"the table {records / 'receipts-000001.parquet'} has no manifest: it is of version 0.1.0",
        "2 receipts are of version 0.1.0, and not chained",
    )
    assert verdict.notes == ("5 redirect records are of version 0.1.0, and not chained", *of_receipts)
    assert compact_receipts(spark, records).table == records / "receipts-000002.parquet"
    found = read_receipts(spark, records)
    assert (found.rows.count(), found.gaps, found.notes) == (4, (), of_receipts)


def test_nothing_that_was_redirected_is_on_record_too(
    spark: Any, bus: Bus, pair: PumpPair, tmp_path: Path
) -> None:
    strings = bus.primary.policies["tests"], bus.secondary.policies["tests"]
    with PairedServiceBusClient.from_connection_strings(*strings, state_dir=tmp_path):
        pass
    verdict = verify(spark, [Backlog(pair=pair)], records=[tmp_path / "records"])
    assert (verdict.redirected, verdict.is_spotless, verdict.notes) == (0, True, ())


def test_a_queue_beyond_the_count_is_looked_at_if_a_record_names_it(
    spark: Any, bus: Bus, pair: PumpPair, tmp_path: Path
) -> None:
    letter = Letter(path="orders", id="m")
    record(tmp_path, bus, [letter], queue=bus.backlog[9])
    bus.put_raw(bus.backlog[9], [letter.wrapped()])
    verdict = verify(spark, [Backlog(pair=pair, count=2)], records=[tmp_path])
    assert (verdict.lost, verdict.waiting) == (0, 1)


class ParquetTable(JsonTable):
    """As Spark writes it."""

    def write(self, path: Path, rows: list[dict[str, Any]]) -> None:
        moments = [{**row, "moved": datetime.fromtimestamp(row["moved"], UTC)} for row in rows]
        types = {"moved": pa.timestamp("us", "UTC"), "repeats": pa.int64()}
        schema = pa.schema([(name, types.get(name, pa.string())) for name in PLAYED])
        pq.write_table(pa.Table.from_pylist(moments, schema), path)

    def read(self, path: Path) -> list[dict[str, Any]]:
        return [{**row, "moved": row["moved"].timestamp()} for row in pq.read_table(path).to_pylist()]


PLAYED = ("op", "writer", "path", "message_id", "backlog_queue", "moved", "outcome", "repeats")


def test_spark_judges_as_plain_python_does(spark: Any, tmp_path: Path) -> None:
    """Which is tried on many more histories, and whatever can be done to them."""
    table = ParquetTable()
    history = History(tmp_path, 5, table)
    history.play(60)
    assert list(tmp_path.glob("*.parquet/_manifest.json")), "a table is part of it"
    chance = random.Random(5)
    chance.shuffle(history.waiting)
    half = sorted(copy.enqueued for copy in history.waiting)[len(history.waiting) // 2]
    cases = [(history.waiting, 0.0), (history.waiting[3:], 0.0), (history.waiting[3:], half)]
    for waiting, since in cases if IS_LONG else cases[::2]:
        plain = judge(tmp_path, waiting, history.dead, table, since=since)
        assert plain.is_clean == (waiting is history.waiting)
        redirects = read_redirects(spark, [tmp_path], PAIRS)
        handled = _load_handled(spark, [tmp_path], PAIRS)
        lying = [
            (copy.key.pair, copy.key.path, copy.key.message_id, copy.name, int(is_dead), int(not is_dead))
            for is_dead, copies in ((False, waiting), (True, history.dead))
            for copy in copies
        ]
        columns = "pair string, path string, message_id string, copy string, lies_dead int, lies_waiting int"
        seen = _signs(spark.createDataFrame(lying, columns))
        recorded = _recorded(redirects.rows.where(f"at >= {since}"))
        reckoned = _reckon(_sum_up(recorded, seen, handled.rows, since=since))
        told = _tell(reckoned, refused=0, gaps=(*redirects.gaps, *handled.gaps), notes=())
        assert (told.redirected, told.lost) == (plain.redirected, plain.lost)
        assert told.is_clean == plain.is_clean


@pytest.mark.parametrize(
    ("apart", "name", "lost", "unclear"),
    [
        (0.3, "q:1:{}", 0, 0),
        (5000.0, "q:1:{}", 0, 1),
        (5000.0, "q:1:{}R", 0, 0),  # damaged, which the chain tells
    ],
)
def test_an_older_message_does_not_stand_in_for_one_with_its_id(
    spark: Any, apart: float, name: str, lost: int, unclear: int
) -> None:
    """Unless it is the same, and the records were removed up to the moment at which it was sent."""
    since = 1_790_000_000.0
    came, at = since - 0.1, since - 0.1 + apart
    key, named = ("contoso", "orders", "m1"), "pair string, path string, message_id string"
    recorded = spark.createDataFrame(
        [(*key, "q", at, None)], f"{named}, queue string, at double, outcome string"
    )
    arrived = [(*key, name.format(int(came * 1000)), 1)]
    handled = _signs(spark.createDataFrame(arrived, f"{named}, copy string, has_arrived int"))
    seen = handled.where("false")
    (told,) = _reckon(_sum_up(_recorded(recorded), seen, handled, since=since)).collect()
    assert (told["lost"], told["unclear"], told["unexpected"]) == (lost, unclear, 0)


def test_tables_reckon_as_numbers_do(spark: Any) -> None:
    choice = random.Random(7)
    keys = [KeyCounts(*(choice.randint(0, 3) for _ in KeyCounts._fields)) for _ in range(300)]
    table = spark.createDataFrame(keys, ", ".join(f"{name} long" for name in KeyCounts._fields))
    for row in _reckon(table).collect():
        key = KeyCounts(*(row[name] for name in KeyCounts._fields))
        assert reckon(key) == tuple(row[name] for name in Reckoning._fields)


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
    assert plan.notes == (
        "2 backlog queues are missing, which `pairbus provision` makes: "
        "contoso/x-servicebus-transfer/10, contoso/x-servicebus-transfer/11",
    )
    assert float(plan.cost) > 0
    assert bus.left() == 7
    assert bus.locked() == 0


@pytest.mark.long
def test_records_that_were_copied_count_once(spark: Any, bus: Bus, pair: PumpPair, tmp_path: Path) -> None:
    """Under other names, in other places, a part of them, all of them in one file: none of it is a loss."""
    letters = [Letter(path="orders", id=f"m{n}") for n in range(6)]
    bus.put(letters)
    records, elsewhere = tmp_path / "records", tmp_path / "elsewhere"
    elsewhere.mkdir()
    for group in (letters[:2], letters[2:4], letters[4:]):
        record(records, bus, group)
    first, second, third = closed_segments(records, "redirects")
    both = first.read_bytes() + second.read_bytes()
    (records / "redirects-1 (copy).jsonl").write_bytes(first.read_bytes())
    (elsewhere / "redirects-all.jsonl").write_bytes(both + both)
    (elsewhere / f"redirects-{third.name}").write_bytes(third.read_bytes())
    third.write_bytes(2 * third.read_bytes())
    for head in records.glob("*.head"):
        shutil.copy(head, elsewhere)
    verdict = verify(spark, [Backlog(pair=pair)], records=[records, elsewhere])
    assert (verdict.redirected, verdict.waiting, verdict.lost) == (6, 6, 0)
    assert (verdict.gaps, verdict.is_clean) == ((), True)
    assert [note for note in verdict.notes if "stand elsewhere too" in note]
    assert not [note for note in verdict.notes if "0.1.0" in note]


@pytest.mark.parametrize("is_closed", [pytest.param(True, marks=pytest.mark.long), False])
def test_rows_of_any_shape_are_told_and_crash_nothing(spark: Any, tmp_path: Path, is_closed: bool) -> None:
    """Their links are whole: somebody has written them so."""
    odd = (2**70, -1.5, 1e308, float("nan"), True, None, "", [1], {"a": 1})
    whole = {
        "receipts": receipt(1),
        "redirects": {"message_id": "m", "path": "p", "queue": "contoso/x-servicebus-transfer/0", "at": 1.0},
    }
    for kind, row in whole.items():
        writer = SegmentWriter(tmp_path, kind, is_chained=True)
        writer.append([{**row, name: value} for name in row for value in odd])
        if is_closed:
            writer.close()
    receipts = read_receipts(spark, tmp_path)
    assert any("receipts cannot be read" in gap for gap in receipts.gaps)
    assert receipts.rows.where("path IS NULL OR moved IS NULL").count() == 0
    redirects = read_redirects(spark, [tmp_path], ["contoso"])
    assert any("redirect records cannot be read" in gap for gap in redirects.gaps)


@pytest.mark.long
def test_what_was_removed_in_time_is_neither_missing_nor_unexpected(
    spark: Any, bus: Bus, pair: PumpPair, tmp_path: Path
) -> None:
    queue, now = bus.backlog[0], time.time()
    redirects = SegmentWriter(tmp_path, "redirects", is_chained=True)
    receipts = SegmentWriter(tmp_path, "receipts", is_chained=True)
    for number, age in enumerate((40, 1)):
        at = now - age * 86_400
        redirects.append([{"message_id": f"m{number}", "path": "orders", "queue": queue, "at": at}])
        redirects.close()
        op = operation_id("contoso", queue, number, int(at * 1000))
        known = {"op": op, "message_id": f"m{number}", "path": "orders", "backlog_queue": queue}
        receipts.append([{**receipt(number), **known, "enqueued": at, "moved": at + 5.0}])
    redirects.close(ends=True)
    receipts.close(ends=True)
    assert trim(tmp_path, before=now - 30 * 86_400).redirects == 1
    verdict = verify(spark, [Backlog(pair=pair)], records=[tmp_path])
    assert (verdict.redirected, verdict.delivered, verdict.unexpected, verdict.gaps) == (1, 1, 0, ())
    assert verdict.is_spotless
    assert any("was removed, and is not judged" in note for note in verdict.notes)
