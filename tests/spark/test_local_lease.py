"""The engine without Spark beside others: who holds the lease, and who waits in vain."""

from pathlib import Path

import pytest

from pairbus.pairing.names import lease_queue_name
from pairbus.spark import PumpOptions, PumpPair, Syphon
from pairbus.spark.leases import SyphonLeases
from pairbus.spark.local_engine import LocalEngine
from tests.cli.process import call

from .bus import Bus, Letter, until
from .test_local import PAIR, RUN, fill
from .traffic import running

# Of one who waits in vain: it must have been told why by then, on a machine that has stood still as well.
SOME_PATIENCE = 4.0


def test_a_second_syphon_waits_for_the_first_and_then_does_the_rest(
    shop: Bus, pair: PumpPair, tmp_path: Path
) -> None:
    shop.make_lease()
    fill(shop, 600)
    first = Syphon(None, pair, state=tmp_path / "one", options=PumpOptions(max_rate=50))
    second = Syphon(None, pair, state=tmp_path / "two")
    with running(first) as done:
        until(lambda: len(shop.ids("orders")) > 10)
        with running(second, once=True) as rest:
            until(lambda: "is held by a syphon (local) on" in (second.progress().trouble or ""))
            before = len(shop.pumps())
            call("syphon", "pause", *PAIR, "--state", str(tmp_path / "one"))
            assert len(shop.pumps()) == before, "a paused one keeps its lease"
            shop.put([Letter(path="orders", id="late")])  # the first may have moved all else by now
            first.stop()
    assert done[0].moved + rest[0].moved == 601
    assert rest[0].moved > 0
    assert sorted(shop.ids("orders")) == sorted(["late", *(f"orders-{n}" for n in range(600))])


def test_once_does_not_wait_for_ever(
    shop: Bus, pair: PumpPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.make_lease()
    monkeypatch.setattr("pairbus.spark.syphon.ONCE_PATIENCE", SOME_PATIENCE)
    first = Syphon(None, pair, state=tmp_path / "one")
    with running(first):
        until(lambda: first.progress().pumps == 1 and first.progress().trouble is None)
        done = call(*RUN, "--once", "--state", str(tmp_path / "two"))
        assert (done.returncode, "the lease of contoso is held by a syphon" in done.stderr) == (3, True)
        assert done.stderr.endswith("Let that one do the work, or stop it\n")


def test_a_secondary_that_is_down_is_told_as_that(
    shop: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pairbus.spark.syphon.ONCE_PATIENCE", SOME_PATIENCE)
    shop.secondary.faults.set("refuse")
    done = call(*RUN, "--once", "--state", str(tmp_path))
    assert done.returncode == 3
    assert ": Connection refused; it was waited for 4 s. Is the secondary up, and is" in done.stderr
    assert "pairbus:connection-lost" not in done.stderr
    assert list(tmp_path.rglob(".syphon-*")) == [], "who has ended by an error tells no more"


def test_without_the_queue_of_the_lease_it_works_and_warns(shop: Bus, tmp_path: Path) -> None:
    fill(shop, 5)
    done = call(*RUN, "--once", "--state", str(tmp_path))
    assert (done.returncode, "--secondary-env CONTOSO_DR` makes the queue" in done.stdout) == (0, True)


def test_pumps_end_before_a_lease_that_cannot_be_renewed_and_go_on_when_it_is_back(
    shop: Bus, pair: PumpPair, tmp_path: Path
) -> None:
    shop.make_lease(lock=5.0)
    fill(shop, 2000)
    syphon = Syphon(None, pair, state=tmp_path, options=PumpOptions(max_rate=200))
    with running(syphon):
        until(lambda: len(shop.ids("orders")) > 10)
        shop.secondary.faults.set("refuse", entity=lease_queue_name("contoso"))
        until(lambda: syphon.progress().trouble is not None)
        until(lambda: syphon.progress().resting == syphon.progress().pumps == 1)
        assert shop.locked() == 0
        before = len(shop.ids("orders"))
        shop.put([Letter(path="orders", id="late")])  # it may have moved all else by now
        shop.secondary.faults.clear()
        until(lambda: len(shop.ids("orders")) > before)


def test_a_drain_whose_lease_does_not_come_back_ends(
    shop: Bus, pair: PumpPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pairbus.spark.standstill.ONCE_PATIENCE", SOME_PATIENCE)
    shop.make_lease(lock=5.0)
    fill(shop, 2000)
    syphon = Syphon(None, pair, state=tmp_path, options=PumpOptions(max_rate=200))
    with running(syphon, once=True) as done:
        until(lambda: len(shop.ids("orders")) > 10)
        shop.secondary.faults.set("refuse", entity=lease_queue_name("contoso"))
    (summary,) = done
    assert (summary.stopped, summary.left, summary.is_complete) == (True, 2000 - summary.moved, False)
    assert summary.moved < 2000
    assert "given up" in summary.queue_errors["the backlog"]
    assert "the lease of contoso" in summary.queue_errors["the backlog"]


def test_a_drain_ends_though_somebody_keeps_messages_under_lock(
    shop: Bus, pair: PumpPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pairbus.spark.standstill._LONGEST", SOME_PATIENCE)
    fill(shop, 20)
    shop.shorten_locks(300.0)  # as who renews it without an end
    held = shop.hold(shop.backlog[3], 2)
    summary = Syphon(None, pair, state=tmp_path).run(once=True)
    assert (summary.moved, summary.stopped, summary.left) == (18, True, held)
    assert summary.queue_errors["the backlog"].startswith("given up, since nothing was moved")


def test_who_compacts_holds_the_lease(
    shop: Bus, pair: PumpPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.make_lease()
    fill(shop, 5)
    syphon = Syphon(None, pair, state=tmp_path)
    seen: list[dict[str, str]] = []

    def compact(engine: LocalEngine, places: object) -> tuple[str, ...]:
        assert syphon._leases is not None
        seen.append(syphon._leases.describe())
        return ()

    monkeypatch.setattr(LocalEngine, "compact", compact)
    assert syphon.run(once=True).moved == 5
    assert seen == [{"contoso": "held"}]
    # Without it somebody else may be at the tables.
    monkeypatch.setattr(SyphonLeases, "are_ours", property(lambda leases: False))
    assert syphon._compact() == ()
    assert len(seen) == 1
