"""Each source fails by itself, keeps its last word, and never has two threads."""

import asyncio
import threading
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage

from pairbus.cli.verify import _leave
from pairbus.client.state.directory import spool_dir, status_dir, verdict_file
from pairbus.client.state.packing import pack
from pairbus.client.state.spool_records import SpoolRecord
from pairbus.client.state.spool_store import LineKey, SpoolStore
from pairbus.clock import ManualClock
from pairbus.dashboard import pair_sources
from pairbus.dashboard.pair_sources import (
    check_status_files,
    read_clients,
    read_drain,
    read_spool,
    read_verdict,
)
from pairbus.dashboard.source import Aside, LookSource, Watch
from pairbus.dashboard.watched import WatchedPair
from pairbus.errors import UnreachableError
from pairbus.spark.leash.tether import ControlFile
from pairbus.wire.errors import CONNECTION_LOST, TransportError


def make_watch(read: object, clock: ManualClock, *, limit: float = 10.0) -> Watch:
    source = LookSource(of="shop", name="some", read=read, every=1000.0, limit=limit)  # type: ignore[arg-type]
    return Watch(source, clock, lambda: None)


async def test_a_source_that_fails_keeps_its_last_word() -> None:
    clock = ManualClock()
    lost = TransportError(CONNECTION_LOST, "cannot reach contoso: Connection refused")
    answers: list[object] = [1, OSError("the disk is gone"), ZeroDivisionError(), lost, 2]

    async def read() -> object:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    watch = make_watch(read, clock)
    told = []
    for _ in range(5):
        await watch.look()
        told.append((watch.reading.value, watch.reading.error))
    errors = ["the disk is gone", "ZeroDivisionError", "cannot reach contoso: Connection refused"]
    assert told == [(1, None), *((1, error) for error in errors), (2, None)]


async def test_a_source_that_hangs_is_told_and_has_one_thread() -> None:
    released, calls = threading.Event(), []

    def hang() -> str:
        calls.append(1)
        released.wait(30.0)
        return "at last"

    watch = make_watch(Aside(hang), ManualClock(), limit=0.05)
    for _ in range(3):
        await watch.look()
        assert watch.reading.error == "no answer in time"
    released.set()
    watch = make_watch(watch.source.read, ManualClock())
    await watch.look()
    assert (watch.reading.value, watch.reading.error, len(calls)) == ("at last", None, 1)


async def test_a_poke_is_a_look_at_once() -> None:
    looks = asyncio.Semaphore(0)

    async def read() -> None:
        looks.release()

    watch = make_watch(read, ManualClock())
    running = asyncio.create_task(watch.run())
    async with asyncio.timeout(30.0):
        await looks.acquire()
        watch.poke()
        await looks.acquire()
    running.cancel()
    await asyncio.wait({running})


def test_status_files_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    by_state = WatchedPair(name="shop", state_dir=tmp_path / "state")
    with pytest.raises(UnreachableError, match=r"no client has written to .*state: is it the `state_dir`"):
        check_status_files(by_state)
    directory = status_dir(by_state.state_dir)
    directory.mkdir(parents=True)
    check_status_files(by_state)
    for name in ("one", "two", "three", "four"):
        (directory / f"{name}.json").write_text("{", encoding="utf-8")
    with pytest.raises(UnreachableError, match=r"4 status files cannot be read: four\.json, .*…"):
        check_status_files(by_state)
    assert read_clients(by_state.state_dir, now=0.0) == []


def test_the_verdict_that_verify_leaves_is_found(tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert read_verdict(state) is None
    _leave(
        {"is_clean": False, "lost": 500, "missing": [{"message_id": str(one)} for one in range(500)]}, state
    )
    found = read_verdict(state)
    assert found is not None
    assert (found["is_clean"], found["lost"], len(found["missing"])) == (False, 500, 100)


def test_a_verdict_that_cannot_be_left_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file", encoding="utf-8")
    _leave({"missing": []}, tmp_path / "state")
    assert (tmp_path / "state").read_text(encoding="utf-8") == "a file"


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"is_clean": true, "lost": 0, "at": 1e15}', "null"])
def test_a_file_that_is_no_verdict_is_told(tmp_path: Path, text: str) -> None:
    verdict_file(tmp_path).write_text(text, encoding="utf-8")
    with pytest.raises(UnreachableError, match="is no verdict: `pairbus verify` writes it anew"):
        read_verdict(tmp_path)


@pytest.mark.parametrize("answer", [{}, {"order": "fly"}, {"counts": {}}, {"pumps": None}])
def test_a_syphon_that_is_not_understood_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: dict[str, object]
) -> None:
    counts = {"moved": 1, "dead_lettered": 0, "waiting": 0}
    whole = {"order": "run", "pumps": 1, "trouble": None, "counts": counts}
    monkeypatch.setattr(ControlFile, "read", lambda self: None)
    monkeypatch.setattr(pair_sources, "ask_leash", lambda address: whole)
    assert read_drain(tmp_path) == whole
    monkeypatch.setattr(pair_sources, "ask_leash", lambda address: answer and {**whole, **answer})
    with pytest.raises(UnreachableError, match="not understood"):
        read_drain(tmp_path)


def test_what_a_client_that_is_gone_left_in_the_spool_is_seen(tmp_path: Path) -> None:
    store = SpoolStore.create(spool_dir(tmp_path))
    packed = pack([ServiceBusMessage("w")], scheduled_for=None, stays=False)
    store.append(LineKey.of("orders"), [SpoolRecord("orders", 1, packed)])
    assert read_spool(tmp_path)["bytes_left"] == 0, "its client will send it"
    store.close()
    assert read_spool(tmp_path)["bytes_left"] > len(packed)
