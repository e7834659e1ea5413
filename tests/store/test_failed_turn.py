"""Whatever fails between a decision and its commit: the turn has not happened, nobody is told otherwise."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus.exceptions import ServiceBusError

from pairbus.broker import Broker
from pairbus.broker.engine.context import Context
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.stock import Stock
from pairbus.broker.host import NamespaceHost
from pairbus.broker.links.consumers import Consumers
from pairbus.broker.links.receiving_endpoint import ReceivingEndpoint
from pairbus.broker.store import sqlite
from pairbus.broker.store.rows import MOST_PLACES, PLACE_STEP
from pairbus.broker.store.sqlite import SqliteStore
from tests.store.test_failed_commit import host_of, receive, send
from tests.waiting import PATIENCE, eventually

# Where a turn with a send passes between its decision and its commit, in its order.
STEPS: dict[str, tuple[Any, str]] = {
    "enqueue": (Stock, "place"),
    "answer": (ReceivingEndpoint, "_answer"),
    "give out": (Consumers, "serve"),
    "account": (Context, "take_events"),
    "write": (SqliteStore, "write"),
    "commit": (SqliteStore, "finish"),
    "key": (SqliteStore, "_first_key"),
    "row": (sqlite, "message_rows"),
    "rows": (SqliteStore, "_write_many"),
    "numbers": (SqliteStore, "_written_numbers"),
}
ERRORS = [OverflowError, MemoryError, AssertionError, RecursionError]


@contextmanager
def breaking(
    step: str, error: type[Exception], *, after: bool, when: Callable[[], bool] = lambda: True
) -> Iterator[Callable[[], int]]:
    """Let a step fail while something is so, before or after it has done its work; how often it did."""
    owner, name = STEPS[step]
    real = getattr(owner, name)
    failures = 0

    def fail(*args: Any, **kwargs: Any) -> Any:
        nonlocal failures
        if not when():
            return real(*args, **kwargs)
        if after:
            real(*args, **kwargs)
        failures += 1
        raise error("of all things")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, fail)
        yield lambda: failures


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", STEPS)
async def test_what_is_acknowledged_is_there_and_nothing_else(
    step: str, after: bool, tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    acknowledged = {"first"}
    committed = step == "commit" and after
    error = ERRORS[list(STEPS).index(step) % len(ERRORS)]
    with Broker({"contoso": 0, "contoso-dr": 0}, data_dir=tmp_path, certificate=certificate) as broker:

        def has_arrived() -> bool:
            """Turns end without a message too: after the first connection, and in the other namespace."""
            return step == "enqueue" or host_of(broker).engine.node("orders").counts().total > 1

        namespace = broker["contoso"]
        namespace.create_queue("orders")
        await send(broker, "orders", "first")
        with breaking(step, error, after=after, when=has_arrived) as failures:
            sending = asyncio.create_task(send(broker, "orders", "lost"))
            await eventually(lambda: failures() > 0)
        # What was about to be said would be said at the end of the next turn.
        namespace.create_queue("another-turn")
        with pytest.raises(ServiceBusError):
            await sending
        assert namespace.message_count("orders") == 1 + committed
        await send(broker, "orders", "last")
        acknowledged |= {"last"} | ({"lost"} if committed else set())
    with Broker({"contoso": 0, "contoso-dr": 0}, data_dir=tmp_path, certificate=certificate) as broker:
        assert broker["contoso"].message_count("orders") == len(acknowledged)
        kept = [body for _ in acknowledged for body in await receive(broker, "orders", 1)]
    assert set(kept) == acknowledged


@pytest.mark.parametrize("step", ["enqueue", "answer", "give out", "account"])
async def test_a_namespace_in_memory_keeps_what_it_acknowledged(
    step: str, certificate: tuple[Path, Path]
) -> None:
    """And tells its clients at once: they would wait for a minute."""
    with Broker({"contoso": 0}, certificate=certificate) as broker:
        namespace = broker["contoso"]
        namespace.create_queue("orders")
        await send(broker, "orders", "first")
        async with asyncio.timeout(PATIENCE):
            with breaking(step, ValueError, after=False), pytest.raises(ServiceBusError):
                await send(broker, "orders", "lost")
            await send(broker, "orders", "last")
        there = range(namespace.message_count("orders"))
        assert {body for _ in there for body in await receive(broker, "orders", 1)} >= {"first", "last"}


def test_time_that_fails_undoes_the_turn_and_is_tried_again(
    tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    with Broker({"contoso": 0}, data_dir=tmp_path, certificate=certificate) as broker:
        broker["contoso"].create_queue("orders")
        host = host_of(broker)
        before = host.engine

        def let_it_fail() -> None:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Namespace, "tick", _fail)
                host.tick()

        broker.call(let_it_fail)
        assert host.engine is not before
        assert broker["contoso"].message_count("orders") == 0


def test_an_administration_that_fails_half_way_leaves_nothing(
    tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    with Broker({"contoso": 0}, data_dir=tmp_path, certificate=certificate) as broker:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(NamespaceHost, "_review_links", _fail)
            with pytest.raises(ZeroDivisionError):
                broker["contoso"].create_queue("orders")
        broker["contoso"].create_queue("orders")


def _fail(*_: Any) -> None:
    raise ZeroDivisionError("of all things")


def test_the_numbers_of_places_do_not_run_out(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    """A place that is gone leaves its number to the next one, in the same turn, and after a restart."""

    def places(broker: Broker) -> set[int]:
        store = host_of(broker)._store
        assert isinstance(store, SqliteStore)
        return {number // PLACE_STEP for number in store._places.values()}

    for _ in range(2):
        with Broker({"contoso": 0}, data_dir=tmp_path, certificate=certificate) as broker:
            broker["contoso"].create_queue("stays")
            for index in range(20):
                broker["contoso"].create_topic(f"t{index}")
                broker["contoso"].create_subscription(f"t{index}", "s")
                broker["contoso"].delete_topic(f"t{index}")
            assert max(places(broker), default=0) <= 4
            broker["contoso"].delete_queue("stays")
    assert MOST_PLACES * PLACE_STEP + PLACE_STEP - 1 < 1 << 63
