"""The status of a client as a file: whole, fresh, written with every change, gone with the client."""

import asyncio
import errno
import itertools
import json
import logging
import os
import socket
import threading
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from pairbus.backlog.provisioner import ProvisioningReport
from pairbus.client.state import status_file
from pairbus.client.state.directory import default_state_dir, records_dir, status_dir, try_directory
from pairbus.client.state.status_file import StatusFile, read_status_files, unreadable_status_files
from pairbus.client.status import PairStatus, to_json
from pairbus.options import EntityState, StateChange
from pairbus.pairing.rotation import QueueStatus
from tests.logs import our_lines
from tests.waiting import eventually


def picture(at: float = 0.0) -> PairStatus:
    return PairStatus(
        at=at,
        primary="127.0.0.1:1",
        secondary="127.0.0.1:2",
        primary_name="contoso",
        fault=None,
        provisioning="ready",
        had_success=True,
        backlog_limit=262_144,
        entities=(),
        rotation=(QueueStatus(name="q", usable=True, returns_at=None, failures=0, last_failure=None),),
    )


def change() -> StateChange:
    return StateChange("orders", EntityState.HEALTHY, EntityState.SUSPECT, 1.0, "a reason")


async def test_the_file_is_there_while_the_client_runs(tmp_path: Path) -> None:
    directory = tmp_path / "state" / "status"
    file = StatusFile(directory, picture)
    file.start()
    file.start()
    await eventually(lambda: (directory / f"{os.getpid()}.json").exists())
    assert [path.name for path in directory.iterdir()] == [f"{os.getpid()}.json"]
    found = json.loads((directory / f"{os.getpid()}.json").read_text())
    assert (found["pid"], found["host"]) == (os.getpid(), socket.gethostname())
    assert found["status"]["primary_name"] == "contoso"
    assert found["status"]["rotation"][0]["usable"] is True
    await file.close()
    assert list(directory.iterdir()) == []
    await file.close()


async def test_changes_are_written_at_once_and_otherwise_now_and_then(tmp_path: Path) -> None:
    taken: list[float] = []

    def take() -> PairStatus:
        taken.append(asyncio.get_running_loop().time())
        return picture()

    file = StatusFile(tmp_path, take, interval=3600.0)
    file.start()
    await eventually(lambda: len(taken) == 1)
    file.state_changed(change())
    await eventually(lambda: len(taken) == 2)
    file.rotation_changed(9, 10)
    await eventually(lambda: len(taken) == 3)
    file.provisioned(ProvisioningReport(state="ready"))
    await eventually(lambda: len(taken) == 4)
    await file.close()
    again = StatusFile(tmp_path, take, interval=0.02)
    again.start()
    await eventually(lambda: len(taken) >= 8)
    await again.close()


async def test_changes_in_a_storm_are_written_a_few_times_a_second(tmp_path: Path) -> None:
    moments: list[float] = []

    def take() -> PairStatus:
        moments.append(time.monotonic())
        return picture()

    def change_again() -> bool:
        file.state_changed(change())
        return len(moments) >= 4

    file = StatusFile(tmp_path, take, interval=1000.0)  # so that changes alone are written
    file.start()
    await eventually(change_again)
    await file.close()
    assert min(later - earlier for earlier, later in pairwise(moments)) > 0.09


async def test_a_large_picture_is_taken_seldom_and_written_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def text_of(given: object) -> str:
        threads.append(threading.current_thread())
        return to_json(given)

    monkeypatch.setattr(status_file, "to_json", text_of)
    spent = itertools.count(0.0, 0.5)
    monkeypatch.setattr(status_file, "time", SimpleNamespace(thread_time=lambda: next(spent), time=time.time))
    file = StatusFile(tmp_path, picture)
    file.start()
    await eventually(lambda: len(read_status_files(tmp_path, now=0.0)) == 1)
    assert json.loads((tmp_path / f"{os.getpid()}.json").read_text())["interval"] == 10.0
    assert threading.current_thread() not in threads
    await file.close()


async def test_two_clients_of_a_process_have_a_file_each(tmp_path: Path) -> None:
    one, two = StatusFile(tmp_path, picture), StatusFile(tmp_path, picture)
    one.start()
    two.start()
    await eventually(lambda: len(list(tmp_path.glob("*.json"))) == 2)
    assert len(read_status_files(tmp_path, now=0.0)) == 2
    await one.close()
    await two.close()
    assert list(tmp_path.iterdir()) == []


async def test_a_file_of_another_container_with_the_same_pid_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / f"{os.getpid()}.json"
    foreign = {
        "pid": os.getpid(),
        "host": "another",
        "interval": 5.0,
        "status": json.loads(picture().to_json()),
    }
    path.write_text(json.dumps(foreign))
    file = StatusFile(tmp_path, picture)
    file.start()
    await eventually(lambda: len(list(tmp_path.glob("*.json"))) == 2)
    await file.close()
    assert json.loads(path.read_text())["host"] == "another"
    os.utime(path, times=(0.0, time.time() - 60.0))
    file = StatusFile(tmp_path, picture)
    file.start()
    await eventually(lambda: json.loads(path.read_text())["host"] != "another")
    await file.close()
    assert list(tmp_path.iterdir()) == []


async def test_a_directory_that_cannot_be_written_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    in_the_way = tmp_path / "status"
    in_the_way.write_text("a file")
    pictures = 0

    def counted_picture() -> PairStatus:
        nonlocal pictures
        pictures += 1
        return picture()

    file = StatusFile(in_the_way, counted_picture, interval=0.01)
    with caplog.at_level(logging.WARNING, logger="pairbus.client"):
        file.start()
        await eventually(lambda: pictures > 5)
        await file.close()
    (line,) = our_lines(caplog)
    assert "cannot write the status" in line


def test_what_a_dead_client_left_is_told_by_its_age(tmp_path: Path) -> None:
    """Whatever the clock of the client says: in 9 it is a minute behind, in 7 one ahead."""

    def write(pid: int, at: float, *, said: float) -> None:
        status = json.loads(picture().to_json())
        found = {"pid": pid, "host": "h", "written_at": said, "interval": 5.0, "status": status}
        file = tmp_path / f"{pid}.json"
        file.write_text(json.dumps(found))
        os.utime(file, times=(0.0, at))

    write(7, at=1000.0, said=1060.0)
    write(8, at=1014.0, said=1014.0)
    write(9, at=1012.0, said=952.0)
    (tmp_path / "10.json").write_text('{"pid": 10')
    (tmp_path / "11.json").write_text("[]")
    (tmp_path / ".12.json").write_text("{}")
    found = read_status_files(tmp_path, now=1016.0)
    assert [(entry.pid, entry.is_stale) for entry in found] == [(8, False), (9, False), (7, True)]
    assert [entry.written_at for entry in found] == [1014.0, 1012.0, 1000.0]
    assert read_status_files(tmp_path / "missing", now=0.0) == []


def test_the_state_directory_lies_below_that_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_state_dir("contoso") == tmp_path / "pairbus" / "contoso"
    assert records_dir(tmp_path) == tmp_path / "records"
    assert status_dir(tmp_path) == tmp_path / "status"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_state_dir("contoso") == tmp_path / ".local" / "state" / "pairbus" / "contoso"


def test_a_directory_that_takes_nothing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match=f"No space left on device: '{tmp_path}/records'"):
        try_directory(tmp_path / "records", 1)


def test_what_one_that_is_gone_had_not_shipped_waits_ever_longer(tmp_path: Path) -> None:
    shipping = {"to": "s3://bucket/fleet", "lag": 4.0, "waiting": 0, "shipped": 1, "last_error": None}
    status = json.loads(picture().to_json()) | {"shipping": shipping}
    told = {"pid": 1, "host": "h", "written_at": 100.0, "interval": 5.0, "status": status}
    (tmp_path / "1.json").write_text(json.dumps(told))
    os.utime(tmp_path / "1.json", times=(0.0, 100.0))
    for now, lag in ((100.0, 4.0), (700.0, 604.0)):
        (found,) = read_status_files(tmp_path, now=now)
        assert found.status["shipping"]["lag"] == lag


def test_what_is_no_text_is_shown_with_its_escapes(tmp_path: Path) -> None:
    names = ["\ud800x", "caf\udce9", "\U0001f600", "a\\ud800", "\ud83d\U0001f600", "é"]
    status = json.loads(picture().to_json()) | {"warnings": names}
    told = {"pid": 1, "host": "h\udcff", "written_at": 100.0, "interval": 5.0, "status": status}
    (tmp_path / "1.json").write_text(json.dumps(told))
    (found,) = read_status_files(tmp_path, now=100.0)
    shown = ["\\ud800x", "caf\\udce9", "\U0001f600", "a\\ud800", "\\ud83d\U0001f600", "é"]
    assert (found.host, found.status["warnings"]) == ("h\\udcff", shown)


def test_only_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "1.json")
    (tmp_path / "2.json").symlink_to("1.json")
    (tmp_path / "3.json").mkdir()
    (tmp_path / "caf\udce9.json").write_text("{")
    assert read_status_files(tmp_path, now=0.0) == []
    assert unreadable_status_files(tmp_path) == ["1.json", "2.json", "3.json", "caf\\udce9.json"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"entities": [{}]},
        {"entities": None},
        {"rotation": [{"usable": None}]},
        {"primary": 7},
        {"spool": {"messages": "many"}},
        {"shipping": {"to": "s3://b", "lag": float("inf"), "waiting": 0, "last_error": None}},
        {"syphon": []},
    ],
)
def test_a_status_that_readers_would_stumble_over_is_not_read(
    tmp_path: Path, wrong: dict[str, object]
) -> None:
    status = json.loads(picture().to_json()) | wrong
    told = {"pid": 1, "host": "h", "written_at": 100.0, "interval": 5.0, "status": status}
    (tmp_path / "1.json").write_text(json.dumps(told))
    assert read_status_files(tmp_path, now=100.0) == []
    assert unreadable_status_files(tmp_path) == ["1.json"]
