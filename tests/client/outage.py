"""Both sides of a pair are down, on timers that stand still until they are advanced."""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pairbus.aio import PairedServiceBusClient
from tests.waiting import PATIENCE

from .scene import Scene, eventually, text


async def in_time(scene: Scene, is_so: Callable[[], bool]) -> None:
    """Let time pass, a few seconds now and then, until something is so. Calls under way get theirs first."""
    assert scene.timers is not None
    ends = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < ends, "it did not come about"
        await scene.timers.advance(5.0)
        await asyncio.sleep(1.0)
        await scene.rest(at_most=1.0)


async def in_an_outage(scene: Scene, directory: Path, **settings: Any) -> PairedServiceBusClient:
    """A client that has sent once, and then lost both sides."""
    client = scene.client(state_dir=directory, enable_spool=True, rotation_cool_down=30.0, **settings)
    await client.start()
    sessions = client.pair.sessions  # whose first look would be made again, in a time that stands still
    await eventually(lambda: sessions is None or not sessions.is_looking_first)
    await client.get_queue_sender("orders").send_messages(text("before"))
    client.fail_over("orders")
    scene.secondary.faults.set("refuse")
    scene.primary.faults.set("refuse")
    return client


@contextmanager
def hanging_disk() -> Iterator[set[str]]:
    """Nothing that is to be synced is, until the end of the block; the names of the threads that wait."""
    answers, waiting = threading.Event(), set[str]()

    def wait(descriptor: int) -> None:
        waiting.add(threading.current_thread().name)
        answers.wait()

    with pytest.MonkeyPatch.context() as patch:
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, wait)
        try:
            yield waiting
        finally:
            answers.set()
