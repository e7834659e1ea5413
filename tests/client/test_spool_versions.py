"""State of version 0.1.0, as its own code left it behind, is read; that of a newer version is left alone."""

import gzip
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pairbus.broker.engine.settings import QueueSettings
from pairbus.client.sending.message import Message, message_id_of
from pairbus.client.sending.spool import Spool
from pairbus.client.state.directory import spool_dir, status_dir
from pairbus.client.state.landmark import Landmark
from pairbus.client.state.spool_aside import list_refused
from pairbus.client.state.spool_store import SpoolStore
from pairbus.client.state.spool_survey import list_waiting
from pairbus.client.state.status_file import read_status_files
from pairbus.testing import ManualTimers

from .scene import Scene, eventually

OLD = Path(__file__).parent / "version_0_1_0"
ORDERS = ["o0", "o1", "o2", "o3", "o5"]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """What a client of version 0.1.0 left that was killed in an outage, after it had sent b0 and b1."""
    return Path(shutil.copytree(OLD, tmp_path / "state"))


async def test_a_spool_of_version_0_1_0_is_sent_and_what_it_rejected_is_tried_again(
    scene: Scene, state: Path
) -> None:
    scene.primary.create_queue("bills")
    scene.primary.create_queue("strict", QueueSettings(requires_session=True))
    client = scene.client(state_dir=state, enable_spool=True)
    await client.start()
    await eventually(lambda: list_refused(state) != [] and len(scene.ids()) >= 6)
    await eventually(lambda: client.status().spool.messages == 0)  # type: ignore[union-attr]
    assert scene.ids("bills") == ["b2", "b3"]
    orders = scene.messages("orders")
    assert [one.message_id for one in orders if one.message_id != "o4"] == ORDERS
    assert [one.message_id for one in orders if one.message_id == "o4"] == ["o4"]
    assert client.status().spool.refused == 1  # type: ignore[union-attr]
    [refused] = list_refused(state)
    assert (refused.path, refused.message_id) == ("strict", "refused")
    await client.close()
    assert [path.name for path in spool_dir(state).iterdir()] == ["refused"]


async def test_what_version_0_1_0_rejected_for_its_place_alone_arrives(scene: Scene, state: Path) -> None:
    """The queue takes by now what it refused then."""
    scene.primary.create_queue("bills")
    scene.primary.create_queue("strict")
    client = scene.client(state_dir=state, enable_spool=True)
    await client.start()
    await eventually(lambda: scene.ids("strict") == ["refused"])
    assert list_refused(state) == []


async def test_a_list_that_version_0_1_0_took_is_split(scene: Scene, tmp_path: Path) -> None:
    store = SpoolStore.create(spool_dir(tmp_path))
    data = gzip.decompress((OLD / "list.spool.gz").read_bytes())
    (store.directory / "000000-000000.spool").write_bytes(data)
    store.close()
    client = scene.client(state_dir=tmp_path, enable_spool=True)
    await client.start()
    await eventually(lambda: len(scene.ids()) >= 400)
    assert scene.ids() == [f"m{number:03}" for number in range(400)]


def test_what_waits_in_a_spool_of_version_0_1_0_is_listed(state: Path) -> None:
    found = [(one.path, one.message_id) for one in list_waiting(spool_dir(state))]
    expected = [("orders", f"o{number}") for number in range(6)]
    assert found == [*expected, ("bills", "b2"), ("bills", "b3"), ("strict", "refused")]


async def test_types_of_version_0_1_0_are_restored(
    state: Path, tmp_path: Path, manual_timers: ManualTimers
) -> None:
    taken: dict[str, tuple[Any, datetime | None]] = {}

    async def take(path: str, messages: list[Message], when: datetime | None) -> None:
        for message in messages:
            taken[message_id_of(message)] = (message, when)

    spool = Spool(spool_dir(state), limit=1 << 20)
    spool.start(take, timers=manual_timers)
    await eventually(lambda: len(taken) == 9)
    await spool.close()
    assert taken["o0"][0].properties.group_id == "s"
    assert taken["o0"][0].header.time_to_live == 3_600_000
    assert taken["o2"][0].application_properties["when"] == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert taken["o4"][1] == datetime(2046, 1, 1, tzinfo=UTC)
    assert taken["o5"][0].body["a"][2] == (2, "x")


def test_status_and_landmark_of_version_0_1_0_are_read(state: Path) -> None:
    os.utime(status_dir(state) / "9734.json", times=(0.0, 1794817088.0))
    [picture] = read_status_files(status_dir(state), now=1794817089.0)
    assert (picture.pid, picture.is_stale) == (9734, False)
    assert picture.status["spool"]["messages"] == 8
    assert Landmark(state, "127.0.0.1:38879").is_set()


async def test_what_a_newer_version_spooled_is_left_alone_and_told(
    tmp_path: Path, manual_timers: ManualTimers, caplog: pytest.LogCaptureFixture
) -> None:
    newer = tmp_path / "01794817082895-9734-f59fcc.v2"
    newer.mkdir()
    (newer / "000000-000000.spool").write_bytes(b"something else")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    spool = Spool(tmp_path, limit=1 << 20)

    async def take(*_: object) -> None:
        raise AssertionError("nothing is to be sent")

    spool.start(take, timers=manual_timers)
    await eventually(lambda: f"{newer} was written by a newer version" in caplog.text)
    await spool.close()
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_a_status_of_a_newer_version_is_named_and_not_shown(
    state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = status_dir(state) / "9734.json"
    file.write_text(file.read_text(encoding="utf-8").replace("{", '{"format": 2, ', 1), encoding="utf-8")
    assert read_status_files(status_dir(state), now=1794817089.0) == []
    assert f"{file} was written by a newer version" in caplog.text
