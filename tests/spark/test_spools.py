"""What a verdict learns from the spools of clients; no Spark in it."""

import os
import shutil
from pathlib import Path

from azure.servicebus import ServiceBusMessage

import tests.client
from pairbus.client.state.directory import spool_dir
from pairbus.client.state.spool_aside import keep_damaged, keep_refused
from pairbus.spark.verdict import read_spools

VERSION_0_1_0 = Path(tests.client.__file__).parent / "version_0_1_0"


def test_what_was_refused_is_counted_and_what_is_damaged_is_a_gap(tmp_path: Path) -> None:
    assert read_spools([tmp_path]) == (0, (), ())
    message = ServiceBusMessage("x", message_id="m1")
    keep_refused(spool_dir(tmp_path), "1", path="orders", message=message, when=None, reason="no", at=1.0)
    damaged = keep_damaged(spool_dir(tmp_path), "2", b"???")
    assert read_spools([tmp_path]) == (1, (f"3 bytes of the spool cannot be read: {damaged}",), ())
    assert read_spools([tmp_path, tmp_path / "other"]).refused == 1


def test_what_version_0_1_0_has_left_waits(tmp_path: Path) -> None:
    state = shutil.copytree(VERSION_0_1_0, tmp_path / "state")
    refused, gaps, notes = read_spools([state])
    assert (refused, gaps, len(notes)) == (0, (), 1)
    assert notes[0].endswith(f"messages wait in {spool_dir(state)}, and went nowhere yet")


def test_what_cannot_be_read_is_a_gap_before_anybody_has_put_it_aside(tmp_path: Path) -> None:
    state = shutil.copytree(VERSION_0_1_0, tmp_path / "state")
    (file, *_) = sorted(spool_dir(state).glob("*/*.spool"))
    file.write_bytes(bytes(30))
    os.utime(file, (1.0, 1.0))
    assert read_spools([state]).gaps == (f"30 bytes of the spool cannot be read: {file}",)
    os.utime(file)  # what ends a file may be on its way there at this moment
    assert read_spools([state]).gaps == ()


def test_a_newer_spool_is_told_by_name(tmp_path: Path) -> None:
    (spool,) = (VERSION_0_1_0 / "spool").iterdir()
    newer = spool_dir(tmp_path) / f"{spool.name}.v9"
    newer.mkdir(parents=True)
    assert read_spools([tmp_path]).gaps == (f"{newer} was written by a newer version of pairbus",)
