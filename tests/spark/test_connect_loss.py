"""Spark Connect: when its client is killed, the server goes on; the pumps there end all the same."""

from pathlib import Path
from typing import Any

import pytest

from tests.processes import killed_at_end

from .bus import Bus, until
from .processes import pumps_below
from .test_command import PAIR, receipts_of, start
from .test_connect import connect
from .traffic import assert_whole, letters

__all__ = ["connect"]

pytestmark = pytest.mark.timeout(900)


def test_pumps_of_a_killed_client_end_by_themselves(
    spark: Any, connect: str, full_bus: Bus, tmp_path: Path
) -> None:
    sent = letters(7_000)
    full_bus.put(sent)
    log = tmp_path / "log"
    run = ["syphon", "run", *PAIR, "--state", str(tmp_path), "--master", connect]
    with killed_at_end(start(*run, "--max-rate", "50", log=log)) as client:
        until(lambda: full_bus.left() < 6_900 or client.poll() is not None, within=150)
        client.kill()
        client.wait()
        assert 0 < full_bus.left() < 7_000, log.read_text()
        server = spark._jvm.java.lang.ProcessHandle.current().pid()
        until(lambda: not pumps_below(server) and full_bus.locked() == 0, within=120)
        assert full_bus.left() > 0, "they have ended, and not run dry"
        with killed_at_end(start(*run, "--once", log=log)) as again:
            assert again.wait(200) == 0, log.read_text()
    assert_whole(full_bus, sent, is_once=True)
    assert receipts_of(tmp_path / "records") == {letter.id for letter in sent}
