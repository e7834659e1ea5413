"""The engine without Spark, and what an operator sees of it: the same as on Spark, and quicker to try."""

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from pairbus.broker.counters import OperationKind
from pairbus.errors import UnreachableError
from pairbus.ledger.operations import read_operations
from pairbus.ledger.segment import closed_segments
from pairbus.spark import PumpOptions, PumpPair, Syphon, SyphonError
from pairbus.spark.local_engine import LocalEngine
from pairbus.spark.metrics import served_metrics
from pairbus.spark.onlookers import read_statuses, remove_status, write_status
from pairbus.spark.shard import describe_failure
from pairbus.stores.errors import RecordStoreError
from pairbus.wire.errors import CONNECTION_LOST, TransportError
from tests.cli.process import call
from tests.guards.sources import ROOT
from tests.ledger.receipts import read_receipts

from .bus import OTHER_ENV, PRIMARY_ENV, SECONDARY_ENV, Bus, Letter, until
from .processes import kill_tree
from .traffic import running

PAIR = ["--primary-env", PRIMARY_ENV, "--secondary-env", SECONDARY_ENV]
RUN = ["syphon", "run", "--engine", "local", *PAIR]


def fill(bus: Bus, count: int, *, path: str = "orders") -> list[str]:
    ids = [f"{path}-{n}" for n in range(count)]
    bus.put([Letter(path=path, id=one) for one in ids])
    return ids


def test_a_drain_in_this_process_moves_all_and_leaves_the_receipts(shop: Bus, tmp_path: Path) -> None:
    ids = [*fill(shop, 300), *fill(shop, 20, path="gone")]
    done = call(*RUN, "--once", "--state", str(tmp_path / "state [1]"), "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["moved"], told["dead_lettered"], told["receipts"]) == (0, 300, 20, 320)
    assert sorted(shop.ids("orders")) == sorted(ids[:300])
    assert shop.left() == shop.locked() == 0
    segments = closed_segments(tmp_path / "state [1]" / "records", "receipts")
    rows = read_receipts(segments)
    assert sorted(row["message_id"] for row in rows.values()) == sorted(ids)
    assert told["seconds"] >= told["moving_seconds"] > 0


def test_nothing_is_sent_where_the_disk_has_no_room_for_receipts(
    shop: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each try would send what it has in hand once more."""
    fill(shop, 300)

    def write(directory: Path, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(directory))

    with monkeypatch.context() as patch:
        patch.setattr("pairbus.spark.shard.try_directory", write)
        done = call(*RUN, "--once", "--state", str(tmp_path))
    assert done.returncode == 3
    assert "No space left on device" in done.stderr
    assert shop.ids("orders") == []
    assert (shop.left(), shop.locked()) == (300, 0)
    assert call(*RUN, "--once", "--state", str(tmp_path)).returncode == 0
    assert shop.left() == 0


def test_the_summary_is_told_before_receipts_are_put_into_tables(
    shop: Bus, pair: PumpPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(shop, 10)
    order: list[object] = []

    def compact(engine: LocalEngine, places: object) -> tuple[str, ...]:
        order.append("compacted")
        raise OSError("the disk is full")

    monkeypatch.setattr(LocalEngine, "compact", compact)
    summary = Syphon(None, pair, state=tmp_path).run(
        once=True, on_summary=lambda told: order.append(told.moved)
    )
    assert order == [10, "compacted"]
    assert "the disk is full" in summary.notes[-1]


@pytest.mark.parametrize(
    "flags", [("--master", "local[2]"), ("--shards", "2"), ("--conf", "spark.a=b"), ("--leash", "file")]
)
def test_flags_of_spark_are_refused(shop: Bus, tmp_path: Path, flags: tuple[str, str]) -> None:
    done = call(*RUN, "--state", str(tmp_path), *flags)
    assert (done.returncode, f"{flags[0]} is for Spark" in done.stderr) == (2, True)


def test_a_syphon_in_this_process_serves_what_comes_until_it_is_stopped(
    shop: Bus, pair: PumpPair, tmp_path: Path
) -> None:
    # An idle epoch lasts to the end of a poll.
    options = PumpOptions(poll=0.2)
    syphon = Syphon(None, pair, state=tmp_path, options=options, busy_epoch=0.2, longest_epoch=0.4)
    with running(syphon) as done:
        fill(shop, 50)
        until(lambda: len(shop.ids("orders")) == 50)
        until(lambda: any(pump.epoch > 2 for pump in syphon.pumps()))
        shop.put([Letter(path="orders", id="late")])
        until(lambda: "late" in shop.ids("orders"))
    assert (done[0].moved, done[0].stopped, shop.locked()) == (51, False, 0)


def test_a_pump_that_cannot_work_is_told_in_its_own_words(
    shop: Bus, pair: PumpPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(shop, 1)
    syphon = Syphon(None, pair, state=tmp_path)

    def fail(*arguments: Any, **given: Any) -> None:
        write_status(tmp_path / "records", syphon._run_id, {"at": 1.0})
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pairbus.spark.shard.ReceiptLog", fail)
    with pytest.raises(SyphonError, match="No space left"):
        syphon.run(once=True)
    assert shop.left() == 1
    assert read_statuses(tmp_path / "records") == [], "nobody is told of a syphon that has ended"


def start(*arguments: str, out: Path) -> subprocess.Popen[bytes]:
    with out.open("wb") as stdout, out.with_suffix(".err").open("wb") as stderr:
        return subprocess.Popen(
            [sys.executable, "-m", "pairbus.cli", *arguments],
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )


@pytest.mark.parametrize("as_json", [True, False])
def test_a_signal_for_the_process_group_ends_a_drain_with_its_summary(
    shop: Bus, tmp_path: Path, as_json: bool
) -> None:
    fill(shop, 1000)
    out = tmp_path / "out"
    flags = ["--once", "--state", str(tmp_path), "--max-rate", "20", *(["--json"] if as_json else [])]
    process = start(*RUN, *flags, out=out)
    try:
        until(lambda: len(shop.ids("orders")) > 3)
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(timeout=120) == 4
    finally:
        kill_tree(process)
    left = shop.left()
    assert left > 0
    assert shop.locked() == 0
    said = out.read_text(encoding="utf-8")
    if as_json:
        told = json.loads(said)
        assert (told["stopped"], told["left"], told["moved"]) == (True, left, 1000 - left)
        lines = [json.loads(line) for line in out.with_suffix(".err").read_text("utf-8").splitlines()]
        assert all(line["total"] == 1000 for line in lines)
    else:
        assert f"stopped before its end: {left:,} messages are left in the backlog" in said


def test_a_stop_before_the_start_is_obeyed(shop: Bus, pair: PumpPair, tmp_path: Path) -> None:
    fill(shop, 5)
    syphon = Syphon(None, pair, state=tmp_path)
    syphon.stop()
    summary = syphon.run(once=True)
    assert (summary.stopped, summary.left, summary.moved) == (True, 5, 0)


def test_a_stop_that_comes_after_the_last_message_leaves_nothing_undone(
    shop: Bus, pair: PumpPair, tmp_path: Path
) -> None:
    syphon = Syphon(None, pair, state=tmp_path)
    syphon.stop()
    summary = syphon.run(once=True)
    assert (summary.stopped, summary.left) == (True, 0)


def admin_requests(bus: Bus) -> Counter[str]:
    """What the administration address was asked, by entity."""
    found = Counter[str]()
    for one in bus.secondary.counters():
        found[one.entity.lower()] += one.count if one.kind is OperationKind.ADMIN else 0
    return +found


def test_looks_for_queues_are_in_the_ledger(shop: Bus, pair: PumpPair, tmp_path: Path) -> None:
    """At the start, and again after a stop, to tell what is left: what the broker counts, queue by queue."""
    shop.secondary.delete_queue(shop.backlog[3])
    before = admin_requests(shop)
    syphon = Syphon(None, pair, state=tmp_path)
    syphon.stop()
    syphon.run(once=True)
    ledger = read_operations(closed_segments(tmp_path / "records", "operations"))
    asked = [one for one in ledger.operations if one.kind == "admin"]
    assert {(one.stage, one.namespace) for one in asked} == {("management", "contoso-dr")}
    found = Counter[str]()
    for one in asked:
        found[one.entity.lower()] += one.count
    assert found == admin_requests(shop) - before
    # Each time nine queues, the one that is not there, and the list of all.
    assert found.total() == 2 * 11


def test_pause_returns_when_pumps_have_let_go(shop: Bus, pair: PumpPair, tmp_path: Path) -> None:
    fill(shop, 2000)
    syphon = Syphon(None, pair, state=tmp_path, options=PumpOptions(max_rate=100))
    with running(syphon):
        until(lambda: len(shop.ids("orders")) > 20)
        for late in ("one", "another"):  # the second pause must not see the rest of the first
            done = call("syphon", "pause", *PAIR, "--state", str(tmp_path), "--json")
            held, told = shop.locked(), json.loads(done.stdout)
            assert (done.returncode, held, told["order"]) == (0, 0, "pause")
            assert told["resting"] == told["pumps"]
            before = len(shop.ids("orders"))
            shop.put([Letter(path="orders", id=late)])  # it may have moved all else by now
            call("syphon", "resume", *PAIR, "--state", str(tmp_path))
            until(lambda before=before: len(shop.ids("orders")) > before)  # type: ignore[misc]


def when(condition: Callable[[], bool], act: Callable[[], object]) -> Callable[[object], None]:
    """Listens to progress, and acts once."""
    acted: list[bool] = []

    def listen(progress: object) -> None:
        if not acted and condition():
            acted.append(True)
            act()

    return listen


def test_patience_waits_for_a_path_that_comes_back(shop: Bus, pair: PumpPair, tmp_path: Path) -> None:
    fill(shop, 30)
    fill(shop, 30, path="returns")
    shop.primary.faults.set("refuse", entity="returns")
    options = PumpOptions(patience=300.0, first_back_off=0.1, longest_back_off=0.2)
    syphon = Syphon(None, pair, state=tmp_path, options=options)
    heal = when(lambda: len(shop.waiting()) == 30, shop.primary.faults.clear)
    summary = syphon.run(once=True, on_progress=heal)
    assert (summary.moved, summary.waiting, shop.left()) == (60, 0, 0)


def test_patience_ends_and_does_not_wait_for_paths_that_were_not_chosen(
    shop: Bus, pair: PumpPair, tmp_path: Path
) -> None:
    fill(shop, 10)
    fill(shop, 10, path="returns")
    only = Syphon(None, pair, state=tmp_path, options=PumpOptions(patience=3600.0, only_paths=("orders",)))
    assert only.run(once=True).waiting == 10
    shop.primary.faults.set("refuse", entity="returns")
    brief = Syphon(None, pair, state=tmp_path, options=PumpOptions(patience=0.3, first_back_off=0.1))
    summary = brief.run(once=True)
    assert (summary.moved, summary.waiting) == (0, 10)


def test_what_waits_is_told_with_its_reason_and_its_age(shop: Bus, pair: PumpPair, tmp_path: Path) -> None:
    fill(shop, 10, path="returns")
    shop.primary.faults.set("refuse", entity="returns")
    syphon = Syphon(None, pair, state=tmp_path)
    with running(syphon):
        until(lambda: [path.waiting for path in syphon.progress().paths.values()] == [10])
        (path,) = syphon.progress().paths.values()
        oldest = min(one.enqueued_at for name in shop.backlog for one in shop.found(name, on_secondary=True))
        assert path.waiting == 10
        assert path.oldest == pytest.approx(oldest, abs=0.01)
        assert path.why
        assert syphon.progress().retries > 0


def test_patience_is_for_a_drain(shop: Bus, tmp_path: Path) -> None:
    done = call(*RUN, "--state", str(tmp_path), "--patience", "5")
    assert (done.returncode, "--patience is for --once" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            RecordStoreError("cannot put a in s3://b: gone"),
            "cannot put a in s3://b: gone; what has no receipt stays",
        ),
        (
            TransportError(CONNECTION_LOST, "cannot reach a:1: gone"),
            "pairbus:connection-lost: cannot reach a:1",
        ),
        (KeyError("a"), "KeyError: 'a'"),
    ],
)
def test_why_a_pump_has_ended_is_told_in_our_own_words(error: Exception, told: str) -> None:
    assert describe_failure(error).startswith(told)


# -- looking on


@pytest.mark.parametrize("command", [[*RUN, "--once"], RUN, ["syphon", "plan", *PAIR], ["redrive", *PAIR]])
def test_a_pair_without_backlog_queues_is_no_empty_backlog(
    shop: Bus, tmp_path: Path, command: list[str]
) -> None:
    """A name that is wrong would look like one."""
    fill(shop, 3)
    state = ["--state", str(tmp_path)] if "run" in command else []
    done = call(*command, *state, "--primary-name", "contosso")
    assert done.returncode == 2
    assert (
        "the secondary has no backlog queue of contosso: run `pairbus provision --primary-env" in done.stderr
    )


def test_a_paused_drain_has_no_rate_and_no_end(shop: Bus, pair: PumpPair, tmp_path: Path) -> None:
    fill(shop, 1000)
    syphon = Syphon(None, pair, state=tmp_path, options=PumpOptions(max_rate=50))
    place = ["--state", str(tmp_path)]
    with running(syphon):
        until(lambda: syphon.progress().rate > 1 and syphon.progress().seconds_left is not None)
        assert call("syphon", "pause", *place).returncode == 0
        progress = syphon.progress()
        assert (progress.rate, progress.seconds_left) == (0.0, None)
        assert "paused, moved" in call("syphon", "status", *place).stdout


def test_the_summary_has_the_rate_of_each_path_as_it_was(shop: Bus, pair: PumpPair, tmp_path: Path) -> None:
    """Not that of the moments in which messages were on the way."""
    fill(shop, 60)
    summary = Syphon(None, pair, state=tmp_path, options=PumpOptions(max_rate=40)).run(once=True)
    assert 0 < summary.paths["orders"].rate <= 50


def has_settled(status: dict[str, Any]) -> bool:
    """Whether 20 have been moved and 10 wait, as a syphon has written it down."""
    waiting = {path: told["waiting"] for path, told in status["paths"].items()}
    return (status["moved"], waiting.get("returns")) == (20, 10)


def test_status_tells_who_works_and_what_waits(shop: Bus, pair: PumpPair, tmp_path: Path) -> None:
    shop.make_lease()
    fill(shop, 20)
    fill(shop, 10, path="returns")
    shop.primary.faults.set("refuse", entity="returns")
    state, place = tmp_path / "state", ["--state", str(tmp_path / "state")]
    syphon = Syphon(None, pair, state=state)
    with running(syphon):
        until(lambda: any(map(has_settled, read_statuses(state / "records"))))
        told = json.loads(call("syphon", "status", *PAIR, *place, "--json").stdout)
        assert (told["lease"]["is_held"], told["lease"]["holder"]["pid"]) == (True, os.getpid())
        assert told["syphon"]["moved"] == 20
        assert told["syphon"]["who"]["since"] < told["syphon"]["at"]
        last_words = read_statuses(state / "records")[0]
        assert told["syphon"]["paths"]["returns"]["waiting"] == told["backlog"]["active"] == 10
        assert told["syphon"]["leases"] == {"contoso": "held"}
        shown = call("syphon", "status", *PAIR, *place).stdout
        assert "held by a syphon (local) on" in shown
        assert re.search(r"^returns +10 ", shown, re.MULTILINE)
        # Who reaches the records alone sees the syphon, and nobody's namespaces.
        afar = call("syphon", "status", "--records", str(state / "records"), "--json")
        assert json.loads(afar.stdout)["syphon"]["moved"] == 20
        assert json.loads(afar.stdout)["lease"] is None
    done = call("syphon", "status", *PAIR, *place)
    assert (done.returncode, "lease    held by nobody" in done.stdout) == (0, True)
    assert "syphon   none runs with this state or these records" in done.stdout
    assert call("syphon", "status", *place).returncode == 3
    # What one that was killed has left is no sign of life while nobody holds the lease.
    write_status(state / "records", "killed", last_words)
    done = call("syphon", "status", *PAIR, *place)
    assert "syphon   none is heard of; one had moved 20 when last heard of" in done.stdout
    assert re.search(r"^what it said last:\n(.*\n)+returns +10 ", done.stdout, re.MULTILINE)
    (left,) = (state / "records").glob(".syphon-*")
    remove_status(state / "records", "another")
    assert left.exists()
    os.utime(left, (0, 0))
    remove_status(state / "records", "another")
    assert not left.exists()


def test_metrics_tell_the_same(shop: Bus, pair: PumpPair, tmp_path: Path) -> None:
    shop.make_lease()
    fill(shop, 20)
    fill(shop, 10, path="returns")
    shop.primary.faults.set("refuse", entity="returns")
    syphon = Syphon(None, pair, state=tmp_path)
    lines: list[str] = []

    def look(port: int) -> set[str]:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            lines[:] = answer.read().decode().splitlines()
        return set(lines)

    told = {
        "pairbus_syphon_moved_total 20.0",
        'pairbus_syphon_waiting{path="returns"} 10.0',
        'pairbus_syphon_has_lease{pair="contoso"} 1.0',
    }
    with running(syphon), served_metrics(syphon, 0) as port:
        until(lambda: told <= look(port))
        taken = pytest.raises(UnreachableError, match=f"cannot listen on 127.0.0.1:{port}")
        with taken, served_metrics(syphon, port):
            pass
    page = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")
    named = {line.split()[2] for line in lines if line.startswith("# TYPE pairbus_syphon")}
    assert named <= set(re.findall(r"`(pairbus_syphon_\w+)`", page))


def test_a_queue_that_could_not_be_read_before_a_pause_is_no_error_afterwards(
    shop: Bus, pair: PumpPair, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The last pump tells what cannot be read."""
    fill(shop, 30)
    shop.secondary.faults.set("refuse", entity=shop.backlog[0])
    options = PumpOptions(patience=300.0, first_back_off=0.1)
    syphon = Syphon(None, pair, state=tmp_path, options=options)
    with running(syphon, once=True) as done:
        until(lambda: "cannot be read" in caplog.text)
        syphon.pause()
        until(lambda: syphon.progress().resting == 1)
        shop.secondary.faults.clear()
        syphon.resume()
    assert (done[0].moved, shop.left(), done[0].queue_errors) == (30, 0, {})
    assert done[0].is_complete


def test_what_waits_for_paths_of_one_name_is_added_up(shop: Bus, pair: PumpPair, tmp_path: Path) -> None:
    other = Bus(shop.broker, primary="fabrikam")
    other.create_entities(queues=["orders"], sessions=[], topics=[])
    fill(shop, 7)
    fill(other, 5)
    for one in (shop, other):
        one.primary.faults.set("full", entity="orders")
    pairs = [pair, PumpPair.from_env(OTHER_ENV, SECONDARY_ENV)]
    summary = Syphon(None, pairs, state=tmp_path).run(once=True)
    assert (summary.waiting, summary.paths["orders"].waiting) == (12, 12)


def test_receipts_whose_directory_goes_away_end_the_run(shop: Bus, pair: PumpPair, tmp_path: Path) -> None:
    """They are written before messages are gone, but nobody could ever read them."""
    fill(shop, 2000)
    records = tmp_path / "records"
    syphon = Syphon(None, pair, state=tmp_path / "state", records=records, options=PumpOptions(max_rate=200))
    gone = when(lambda: len(shop.ids("orders")) > 20, lambda: shutil.rmtree(records))
    with pytest.raises(SyphonError, match="removed, moved or replaced"):
        syphon.run(once=True, on_progress=gone)
    assert shop.left() > 0


def test_a_pair_that_breaks_does_not_cut_the_others_off(shop: Bus, pair: PumpPair, tmp_path: Path) -> None:
    """The run ends, but theirs is the clean end: nothing stays locked, and what was moved has its receipt."""
    other = Bus(shop.broker, primary="fabrikam")
    other.create_entities(queues=["orders"], sessions=[], topics=[])
    ids = fill(shop, 3000)
    fill(other, 3000)
    records = [tmp_path / "whole", tmp_path / "broken"]
    syphon = Syphon(
        None,
        [pair, PumpPair.from_env(OTHER_ENV, SECONDARY_ENV)],
        state=tmp_path / "state",
        records=records,
        options=PumpOptions(max_rate=500),
    )

    def both_move() -> bool:
        return min(len(one.ids("orders")) for one in (shop, other)) > 20

    gone = when(both_move, lambda: shutil.rmtree(records[1]))
    with pytest.raises(SyphonError, match="removed, moved or replaced"):
        syphon.run(once=True, on_progress=gone)
    arrived = shop.ids("orders")
    assert shop.locked() == 0
    assert len(arrived) == len(set(arrived)) == len(ids) - shop.left()
    rows = read_receipts(closed_segments(records[0], "receipts"))
    assert sorted(row["message_id"] for row in rows.values()) == sorted(arrived)
