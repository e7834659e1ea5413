"""A turn whose commit fails is refused whole, whatever is being decided on top of it."""

import asyncio
import ssl
import threading
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import pytest

from pairbus.broker.access.policies import Policies
from pairbus.broker.engine.breath import breathe
from pairbus.broker.engine.tiers import Strictness, Tier, limits_of
from pairbus.broker.errors import StoreError
from pairbus.broker.gate import ConnectionLimits
from pairbus.broker.host import NamespaceHost
from pairbus.broker.store.sqlite import SqliteStore
from pairbus.clock import SystemClock
from tests.waiting import PATIENCE, eventually


class FailingStore(SqliteStore):
    """Fails one commit, when it is told to."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.fails = False
        self.may_fail = threading.Event()

    def finish(self) -> None:
        if self.fails:
            self.fails = False
            assert self.may_fail.wait(PATIENCE)
            self._roll_back()
            raise StoreError("disk full")
        super().finish()


async def test_what_is_decided_meanwhile_confirms_nothing_of_a_turn_that_failed(tmp_path: Path) -> None:
    store = FailingStore(tmp_path / "store.db")
    host = NamespaceHost(
        "contoso",
        store=store,
        policies=Policies.generate(()),
        clock=SystemClock(),
        limits=limits_of(Tier.STANDARD, Strictness.STRICT),
        is_alone=False,
    )
    host.start("127.0.0.1", 0, tls=ssl.create_default_context, limits=ConnectionLimits())
    try:
        await host.perform(lambda engine, now: engine.create_queue("before", None, now))
        store.fails = True
        lost = asyncio.create_task(host.perform(lambda engine, now: engine.create_queue("lost", None, now)))
        async with asyncio.timeout(PATIENCE):
            await eventually(lambda: not store.fails)  # the commit has begun

        def decide() -> None:
            while host.decisions._strand._slice != inf:  # until it is to come to its end
                breathe()
            host.engine.create_queue("above", None, host.now())

        def conclude(outcome: Callable[[], Any]) -> None:
            outcome()
            host._schedule_turn()

        host.decisions.make(decide, conclude)
        host._schedule_turn()  # as a connection does that has something to say
        await asyncio.sleep(0)
        assert host.decisions.are_made
        store.may_fail.set()
        with pytest.raises(StoreError, match="disk full"):
            await asyncio.wait_for(lost, PATIENCE)
        async with asyncio.timeout(PATIENCE):
            await eventually(lambda: not host.is_loading)
        assert [queue.path for queue in host.engine.list_queues()] == ["before"]
    finally:
        host.stop()
